package script

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Runtime is an interpreter family, and the name of its program. It is empty for a script that cannot be run.
type Runtime string

// The runtimes.
const (
	Bash    Runtime = "bash"
	Sh      Runtime = "sh"
	Zsh     Runtime = "zsh"
	Python3 Runtime = "python3"
	Node    Runtime = "node"
	Deno    Runtime = "deno"
	Bun     Runtime = "bun"
	Pwsh    Runtime = "pwsh"
	Dotnet  Runtime = "dotnet"
)

// An Interpreter is a row in the table of interpreters. Everything that depends on the interpreter of a
// script derives from its row: adding a row adds an interpreter.
type Interpreter struct {
	Runtime Runtime
	Shell   bool     // it reads shell syntax
	Ask     []string // arguments that make it print its paths in the form of Layout; nil if not supported
	Layout  Layout
	Version []string // arguments that make it print its version; nil if not supported
	says    string   // lower-case text in the line with its version

	// CacheDir is the directory for compiled modules, relative to the home directory. It is empty if the
	// interpreter stores them next to the sources, or compiles nothing.
	CacheDir string

	// modulesVar is the variable with directories to search for modules, after the directory of the script;
	// may be empty.
	modulesVar string

	// launchers are programs in a shebang that only start the interpreter, each with its rule for the words
	// after it.
	launchers map[string]flagRule

	reference  string     // its name in records of the reference; "" means "shebang"
	programs   []string   // base names in a shebang; a final "*" matches digits
	extensions []string   // lower case
	words      []string   // its other names in allowed-tools, lower case
	flags      flagRule   // rule for flags in a shebang
	options    []string   // options of every run, before the flags of the shebang
	ends       []string   // words between the script and its arguments, so that these are not options
	Vars       []string   // variables NAME=VALUE of every run
	stdin      *stdinForm // nil if it runs scripts only from files
	cache      *cacheForm // nil if nothing is compiled ahead of a run

	// network returns the flags that allow a script the granted hosts for which the words of its shebang ask.
	// It is nil if the interpreter needs no flag for the network.
	network func(words, granted []string) []string

	// proxyFrom are the first versions MAJOR.MINOR of the interpreter that use the proxy of the environment,
	// one for each series that has it; later series have it too. It is nil if all versions use it, or if the
	// programs that a script starts decide.
	proxyFrom []string
}

// A flagRule returns the flags of a shebang to keep, or the reason why the script is not run.
type flagRule func(words []string) (kept []string, problem string)

// A stdinForm describes how an interpreter reads a script from standard input.
type stdinForm struct {
	operands  []string              // between the interpreter's options and the script's arguments
	keepFlags bool                  // flags of the shebang are supported
	relative  func() *regexp.Regexp // matches includes by a relative path
}

// Layout is the kind of directories that an interpreter outside of /usr needs, and of the text that
// [Interpreter.Ask] makes it print: first the absolute path of its program, one fact per line.
type Layout int

// The layouts.
const (
	// OwnDirectory needs the directory of the program.
	OwnDirectory Layout = iota

	// Prefix needs PREFIX, or PREFIX/lib/node_modules and PREFIX/bin, if the program lies in PREFIX/bin.
	Prefix

	// Prefixes prints two prefixes, the directory of the library that the program is linked with, or an empty
	// line, and then the directories of modules.
	Prefixes
)

// interpreters is the table, in the order of reports.
var interpreters = []Interpreter{
	{
		Runtime: Bash, Shell: true, Version: []string{"--version"}, says: "bash",
		programs: []string{"bash"}, extensions: []string{".sh", ".bash"},
		flags: shellFlags, stdin: shellStdin,
	},
	{
		Runtime: Sh, Shell: true, // POSIX has no option for a version
		programs: []string{"sh", "dash"},
		flags:    shellFlags, stdin: shellStdin,
	},
	{
		Runtime: Zsh, Shell: true, Version: []string{"--version"}, says: "zsh",
		programs: []string{"zsh"}, extensions: []string{".zsh"},
		flags: shellFlags, stdin: shellStdin,
		// A root file system may contain startup files.
		options: []string{"-f"},
	},
	{
		Runtime: Python3, Version: []string{"--version"}, says: "py",
		Layout: Prefixes,
		// -S: a .pth file among the packages may contain code.
		Ask: []string{"-E", "-s", "-S", "-c", `import sys, sysconfig as c
print(sys.executable)
print(sys.base_prefix)
print(sys.prefix)
print(c.get_config_var('LIBDIR') if c.get_config_var('Py_ENABLE_SHARED') else '')
for n in ('stdlib', 'platstdlib', 'purelib', 'platlib'): print(c.get_path(n))`},
		programs: []string{"python", "python3", "python3.*"}, extensions: []string{".py"},
		flags: onlyFlags("-u"), launchers: map[string]flagRule{"uv": uvFlags},
		// No user packages and no bytecode. Not -I and -E: the directories of the script and of its skill
		// must stay importable, and the runner sets the environment.
		options: []string{"-s", "-B"}, modulesVar: "PYTHONPATH",
		cache: &cacheForm{suffixes: []string{".py"}, least: 2, job: pythonJob},
	},
	{
		Runtime: Node, Version: []string{"--version"},
		Layout: Prefix, Ask: []string{"-e", "console.log(process.execPath)"},
		programs: []string{"node", "nodejs"}, extensions: []string{".js", ".mjs", ".cjs"},
		flags: onlyFlags(), proxyFrom: []string{"22.21", "24.0"},
		launchers: map[string]flagRule{"tsx": tsxFlags, "npx": npxFlags},
	},
	{
		Runtime: Deno, Version: []string{"--version"}, says: "deno",
		Ask:       []string{"eval", "--no-config", "console.log(Deno.execPath())"},
		CacheDir:  ".cache/deno/gen",
		reference: "deno",
		programs:  []string{"deno"}, extensions: []string{".ts", ".tsx", ".mts"},
		flags: denoFlags,
		// No prompts, no configuration files and no remote code.
		options: []string{"run", "--no-prompt", "--cached-only", "--no-config", "--no-lock"},
		stdin:   &stdinForm{operands: []string{"-"}, keepFlags: true, relative: moduleImport},
		network: denoNetwork,
		cache:   &cacheForm{suffixes: []string{".ts", ".tsx", ".mts", ".jsx"}, least: 1, job: denoJob},
	},
	{
		Runtime: Bun, Version: []string{"--version"},
		Ask:      []string{"-e", "console.log(process.execPath)"},
		programs: []string{"bun"},
		flags:    bunFlags,
		// Files in the working directory neither configure it nor set variables, and nothing is installed.
		options: []string{"run", "--config=/dev/null", "--env-file=/dev/null", "--no-install"},
	},
	{
		Runtime: Pwsh, Version: []string{"--version"}, says: "powershell",
		Ask: []string{"-NoLogo", "-NoProfile", "-NonInteractive", "-Command",
			"[Environment]::ProcessPath"},
		programs: []string{"pwsh"}, extensions: []string{".ps1"},
		flags: pwshFlags, words: []string{"powershell"},
		// No profile of the user, no questions. -File comes last: what follows is the script with its
		// arguments.
		options: []string{"-NoLogo", "-NoProfile", "-NonInteractive", "-File"},
		Vars:    []string{"POWERSHELL_TELEMETRY_OPTOUT=1", "POWERSHELL_UPDATECHECK=Off"},
	},
	{
		// A C# file is compiled and run by .NET 10 and later; earlier versions refuse it.
		Runtime: Dotnet, Version: []string{"--version"},
		programs: []string{"dotnet"}, extensions: []string{".cs"},
		flags:   dotnetFlags,
		options: []string{"run", "--file"}, ends: []string{"--"},
		Vars: []string{"DOTNET_CLI_TELEMETRY_OPTOUT=1", "DOTNET_NOLOGO=1"},
	},
}

var shellStdin = &stdinForm{operands: []string{"-s", "--"}, relative: shellInclude}

// Interpreters returns the table of interpreters, in the order of reports. The caller must not change it.
func Interpreters() []Interpreter { return interpreters }

// Interpreter returns the row of a runtime, or nil if the table has no such row.
func (r Runtime) Interpreter() *Interpreter {
	i := slices.IndexFunc(interpreters, func(in Interpreter) bool { return in.Runtime == r })
	if i < 0 {
		return nil
	}
	return &interpreters[i]
}

// FindVersion returns the first word that looks like a version in the first line of an interpreter's output.
// It returns "" for the output of another program, such as true, that prints a version too.
func (in *Interpreter) FindVersion(printed string) string {
	line, _, _ := strings.Cut(printed, "\n")
	if !strings.Contains(strings.ToLower(line), in.says) {
		return ""
	}
	for word := range strings.FieldsSeq(line) {
		word = strings.TrimPrefix(word, "v")
		if word != "" && word[0] >= '0' && word[0] <= '9' {
			return word
		}
	}
	return ""
}

// NoProxy returns the reason why this version of an interpreter cannot reach hosts through the proxy, or ""
// if it can or the version is unknown.
func NoProxy(r Runtime, version string) string {
	in := r.Interpreter()
	if in == nil || in.proxyFrom == nil {
		return ""
	}
	var major, minor int
	if n, _ := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &major, &minor); n != 2 {
		return ""
	}
	var series, first int
	for _, from := range in.proxyFrom {
		_, _ = fmt.Sscanf(from, "%d.%d", &series, &first)
		if major == series && minor >= first {
			return ""
		}
	}
	// The last series of the table and all later ones use the proxy.
	if major > series {
		return ""
	}
	return fmt.Sprintf("%s %d.%d does not use the proxy through which scripts reach granted hosts; %s "+
		"and later do",
		r, major, minor, strings.Join(in.proxyFrom, ".x, "))
}

// isProgram reports whether the base name of a program in a shebang is this interpreter.
func (in *Interpreter) isProgram(name string) bool {
	return slices.ContainsFunc(in.programs, func(pattern string) bool {
		before, any := strings.CutSuffix(pattern, "*")
		rest, ok := strings.CutPrefix(name, before)
		if !any || !ok {
			return name == pattern
		}
		return rest != "" && strings.Trim(rest, "0123456789") == ""
	})
}

// IsCalled reports whether a word in any case, such as python or tsx, names the interpreter or a program that
// starts it.
func (in *Interpreter) IsCalled(word string) bool {
	for launcher := range in.launchers {
		if strings.EqualFold(launcher, word) {
			return true
		}
	}
	called := func(name string) bool { return strings.EqualFold(name, word) }
	return slices.ContainsFunc(in.programs, called) || slices.ContainsFunc(in.words, called) ||
		in.isProgram(word)
}

// IsInterpreter reports whether a word in any case names an interpreter of the table.
func IsInterpreter(word string) bool {
	return slices.ContainsFunc(interpreters, func(in Interpreter) bool { return in.IsCalled(word) })
}

// shellFlags keeps -e -u -x -f, alone or together, and -o pipefail.
func shellFlags(words []string) (kept []string, problem string) {
	for i := 0; i < len(words); i++ {
		letters, ok := strings.CutPrefix(words[i], "-")
		// A second o in one word would take its name from a later word.
		if !ok || letters == "" || strings.Trim(letters, "euxfo") != "" || strings.Count(letters, "o") > 1 {
			return nil, unknownFlag(words[i])
		}
		kept = append(kept, words[i])
		if !strings.Contains(letters, "o") {
			continue
		}
		// Other options change how the rest of the script is parsed.
		if !strings.HasSuffix(letters, "o") || i+1 == len(words) || words[i+1] != "pipefail" {
			return nil, unknownFlag(words[i])
		}
		i++
		kept = append(kept, words[i])
	}
	return kept, ""
}

// onlyFlags returns a rule that accepts the allowed words and no others.
func onlyFlags(allowed ...string) flagRule {
	return func(words []string) (kept []string, problem string) {
		for _, word := range words {
			if !slices.Contains(allowed, word) {
				return nil, unknownFlag(word)
			}
			kept = append(kept, word)
		}
		return kept, ""
	}
}

// uvFlags drops the flags of a `uv run` shebang: the packages that uv would fetch come from an environment.
// Flags for other packages or another interpreter are rejected.
func uvFlags(words []string) (kept []string, problem string) {
	if len(words) == 0 || words[0] != "run" {
		return nil, "uv is only known with the subcommand run"
	}
	_, problem = onlyFlags("--script", "-s", "--quiet", "-q", "--no-project")(words[1:])
	return nil, problem
}

// tsxFlags loads the package tsx from the environment, which runs TypeScript in Node.
func tsxFlags(words []string) (kept []string, problem string) {
	if len(words) > 0 {
		return nil, unknownFlag(words[0])
	}
	return []string{"--import", "tsx"}, ""
}

// npxFlags accepts only `npx tsx`. Nothing is fetched: --yes has no effect.
func npxFlags(words []string) (kept []string, problem string) {
	words = slices.DeleteFunc(slices.Clone(words),
		func(word string) bool { return word == "-y" || word == "--yes" })
	if len(words) == 0 || words[0] != "tsx" {
		return nil, "npx is only known with the program tsx"
	}
	return tsxFlags(words[1:])
}

// bunFlags drops the subcommand run, which every run uses.
func bunFlags(words []string) (kept []string, problem string) {
	if len(words) > 0 && words[0] == "run" {
		words = words[1:]
	}
	return onlyFlags()(words)
}

// pwshFlags drops the flags that every run has.
func pwshFlags(words []string) (kept []string, problem string) {
	for _, word := range words {
		switch strings.ToLower(word) {
		case "-nologo", "-noprofile", "-nop", "-noninteractive", "-file":
		default:
			return nil, unknownFlag(word)
		}
	}
	return nil, ""
}

// dotnetFlags drops the words of `dotnet run --file`, which every run uses.
func dotnetFlags(words []string) (kept []string, problem string) {
	for i, word := range [...]string{"run", "--file"} {
		if i < len(words) && words[i] != word {
			return nil, unknownFlag(words[i])
		}
	}
	_, problem = onlyFlags()(words[min(2, len(words)):])
	return nil, problem
}

// denoFlags keeps the permissions of a `deno run` shebang, since the sandbox limits them all. It drops
// --allow-net, since there is no network unless the entry grants one. Values of flags must follow "=", or the
// next word could be parsed as the script.
func denoFlags(words []string) (kept []string, problem string) {
	if len(words) == 0 {
		return nil, ""
	}
	// Other subcommands, such as eval and task, take code or commands from elsewhere.
	if words[0] != "run" {
		return nil, fmt.Sprintf("deno subcommand %q is not run", clip(words[0]))
	}
	for _, word := range words[1:] {
		name, _, hasValue := strings.Cut(word, "=")
		refused := hasValue
		switch name {
		case "--allow-read", "--allow-write", "--allow-env", "--allow-run", "--allow-ffi", "--allow-sys":
			kept, refused = append(kept, word), false
		case "--allow-net":
			refused = false
		case "-A", "--allow-all":
			kept = append(kept, "--allow-read", "--allow-write", "--allow-env")
		case "--no-prompt", "--quiet", "-q":
		default:
			refused = true
		}
		if refused {
			return nil, unknownFlag(word)
		}
	}
	return kept, ""
}

func unknownFlag(word string) string {
	return fmt.Sprintf("flag %q in the shebang is not supported", clip(word))
}

// NetFlags returns flags, in addition to info's, that let a script use the network: they name each HOST:PORT
// in granted that its shebang asks for. It returns nil if the interpreter needs no flags, nothing is granted,
// or the shebang asks for nothing.
func NetFlags(info Info, granted []string) []string {
	in := info.Runtime.Interpreter()
	if in == nil || in.network == nil || len(granted) == 0 || info.Shebang == "" {
		return nil
	}
	words, problem := shebangWords(info.Shebang)
	if problem != "" {
		return nil
	}
	return in.network(words, granted)
}

func denoNetwork(words, granted []string) []string {
	all, asked := false, []string{}
	for _, word := range words {
		name, hosts, some := strings.Cut(word, "=")
		switch {
		case name == "--allow-net" && some:
			asked = append(asked, strings.Split(hosts, ",")...)
		case name == "--allow-net":
			all = true
		}
	}
	var both []string
	for _, target := range granted {
		host := target[:max(strings.LastIndexByte(target, ':'), 0)]
		// The flags name the granted targets, never more than the entry grants.
		if all || slices.Contains(asked, target) || slices.Contains(asked, host) {
			both = append(both, target)
		}
	}
	if both == nil {
		return nil
	}
	return []string{"--allow-net=" + strings.Join(both, ",")}
}
