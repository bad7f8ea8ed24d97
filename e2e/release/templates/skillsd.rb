# Rendered by `make release`.
class Skillsd < Formula
  desc "Agent Skills over MCP, with scripts that run only as you allowed"
  homepage "{{.repository}}"
  version "{{.version}}"
  license "MIT"

  on_macos do
{{- range .darwin}}
    on_{{if eq .Arch "arm64"}}arm{{else}}intel{{end}} do
      url "{{.URL}}"
      sha256 "{{.SHA256}}"
    end
{{- end}}
  end

  on_linux do
{{- range .linux}}
    on_{{if eq .Arch "arm64"}}arm{{else}}intel{{end}} do
      url "{{.URL}}"
      sha256 "{{.SHA256}}"
    end
{{- end}}
  end

  def install
    bin.install "skillsd", "skillsd-sigstore"
    man1.install Dir["man/man1/*.1"]
    bash_completion.install "completions/skillsd.bash" => "skillsd"
    zsh_completion.install "completions/_skillsd"
    fish_completion.install "completions/skillsd.fish"
    doc.install "README.md", "THIRD_PARTY_NOTICES"
  end

  test do
    assert_match "skillsd v#{version}", shell_output("#{bin}/skillsd version")
  end
end
