# The parts of Homebrew that the formula uses: ruby -r homebrew.rb skillsd.rb PREFIX OS ARCH installs what lies in
# the working directory, and runs the formula's test.
require "fileutils"
require "open3"

PREFIX, SYSTEM, MACHINE = ARGV.map(&:dup)

# A directory of the installation.
class Place
  def initialize(dir)
    @dir = dir
  end

  def to_s
    @dir
  end

  def install(*names)
    FileUtils.mkdir_p(@dir)
    names.flatten.each do |name|
      pairs = name.is_a?(Hash) ? name : { name => File.basename(name) }
      pairs.each { |from, to| FileUtils.mv(from, File.join(@dir, to)) }
    end
  end
end

class Formula
  class << self
    attr_reader :tested

    %i[desc homepage license].each { |field| define_method(field) { |_| nil } }

    def version(value = nil)
      value.nil? ? @version : @version = value
    end

    { on_macos: ["darwin", :SYSTEM], on_linux: ["linux", :SYSTEM],
      on_arm: ["arm64", :MACHINE], on_intel: ["amd64", :MACHINE] }.each do |name, (value, of)|
      define_method(name) { |&block| block.call if Object.const_get(of) == value }
    end

    def url(value)
      @url = value
    end

    def sha256(value)
      puts "#{@url} #{value}"
    end

    def test(&block)
      @tested = block
    end
  end

  { bin: "bin", man1: "share/man/man1", bash_completion: "etc/bash_completion.d",
    zsh_completion: "share/zsh/site-functions", fish_completion: "share/fish/vendor_completions.d",
    doc: "share/doc/skillsd" }.each do |name, dir|
    define_method(name) { Place.new(File.join(PREFIX, dir)) }
  end

  def version
    self.class.version
  end

  def shell_output(command)
    text, status = Open3.capture2(command)
    raise "#{command}: #{status}" unless status.success?

    text
  end

  def assert_match(want, text)
    raise "#{text} does not have #{want}" unless text.include?(want)
  end
end

at_exit do
  next if $!

  formula = Skillsd.new
  formula.install
  formula.instance_eval(&Skillsd.tested)
end
