package script

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Runtime is an interpreter family, and the name of its program. It is empty for a script that cannot be
// run.
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
)

// An Interpreter is one row of the table of interpreters. Whatever depends on which interpreter a
// script wants is derived from its row: adding a row adds an interpreter.
type Interpreter struct {
	Runtime Runtime
	Shell   bool     // it reads shell syntax
	Ask     []string // arguments that make it print what Layout says; nil if it cannot be asked
	Layout  Layout
	Version []string // arguments that make it print its version; nil if it has none
	says    string   // in small letters, what is in the line with its version

	// CacheDir is where the interpreter looks for what it compiled, below its home directory. It is
	// empty if it looks next to the sources, or compiles nothing.
	CacheDir string

	// modulesVar is the variable with directories in which the interpreter looks for modules, after that of
	// the script; empty if there is none.
	modulesVar string

	// launchers are programs in a shebang that only start the interpreter, each with its rule for the words
	// after it.
	launchers map[string]flagRule

	reference  string     // its name in the reference's records; "" is "shebang"
	programs   []string   // base names in a shebang; "*" at the end stands for digits
	extensions []string   // in small letters
	flags      flagRule   // of a shebang
	options    []string   // that every run gets, before the flags of the shebang
	stdin      *stdinForm // nil if it runs scripts from their files only
	cache      *cacheForm // nil if nothing is compiled ahead of a run

	// network returns the flags that give a script the part of granted that the words of its shebang
	// ask for. It is nil if the interpreter needs no flag to use the network.
	network func(words, granted []string) []string

	// proxyFrom are the first versions of the interpreter that use the proxy of the environment, one for each
	// series that has them, MAJOR.MINOR; later series have it too. It is nil if all versions do, or if the
	// programs that a script starts decide.
	proxyFrom []string
}

// A flagRule returns the flags of a shebang that are kept, or why the script is not run.
type flagRule func(words []string) (kept []string, problem string)

// A stdinForm is how an interpreter reads a script from standard input.
type stdinForm struct {
	operands  []string              // between the interpreter's options and the script's arguments
	keepFlags bool                  // flags of the shebang can be given in this form
	relative  func() *regexp.Regexp // finds includes by a relative path
}

// Layout says which directories an interpreter outside /usr needs, and what [Interpreter.Ask] makes it
// print: first the absolute path of its program, one fact on a line.
type Layout int

// The layouts.
const (
	// OwnDirectory needs the directory of the program.
	OwnDirectory Layout = iota

	// Prefix needs PREFIX, or PREFIX/lib/node_modules and PREFIX/bin, if the program lies in PREFIX/bin.
	Prefix

	// Prefixes prints two prefixes, the directory of the library that the program is linked with, or
	// an empty line, and then the directories of modules.
	Prefixes
)

// interpreters is the table, in the order in which reports list them.
var interpreters = []Interpreter{
	{
		Runtime: Bash, Shell: true, Version: []string{"--version"}, says: "bash",
		programs: []string{"bash"}, extensions: []string{".sh", ".bash"},
		flags: shellFlags, stdin: shellStdin,
	},
	{
		Runtime: Sh, Shell: true, // the standard has no option for a version
		programs: []string{"sh", "dash"},
		flags:    shellFlags, stdin: shellStdin,
	},
	{
		Runtime: Zsh, Shell: true, Version: []string{"--version"}, says: "zsh",
		programs: []string{"zsh"}, extensions: []string{".zsh"},
		flags: shellFlags, stdin: shellStdin,
		// A root file system may have startup files.
		options: []string{"-f"},
	},
	{
		Runtime: Python3, Version: []string{"--version"}, says: "py",
		Layout: Prefixes,
		// -S: a .pth file among the packages may hold code.
		Ask: []string{"-E", "-s", "-S", "-c", `import sys, sysconfig as c
print(sys.executable)
print(sys.base_prefix)
print(sys.prefix)
print(c.get_config_var('LIBDIR') if c.get_config_var('Py_ENABLE_SHARED') else '')
for n in ('stdlib', 'platstdlib', 'purelib', 'platlib'): print(c.get_path(n))`},
		programs: []string{"python", "python3", "python3.*"}, extensions: []string{".py"},
		flags: onlyFlags("-u"), launchers: map[string]flagRule{"uv": uvFlags},
		// No user packages and no bytecode, but not -I and -E: the script's own directory and that of its
		// skill stay importable. The environment is the runner's.
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
		// It is asked nothing, configured by nothing and loads no remote code.
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
		// Files of the working directory neither configure it nor set variables, and nothing is installed.
		options: []string{"run", "--config=/dev/null", "--env-file=/dev/null", "--no-install"},
	},
}

var shellStdin = &stdinForm{operands: []string{"-s", "--"}, relative: shellInclude}

// Interpreters returns the table of interpreters, in the order in which reports list them. The caller
// must not change what it points to.
func Interpreters() []Interpreter { return interpreters }

// Interpreter returns the row of a runtime, or nil if the table has no such row.
func (r Runtime) Interpreter() *Interpreter {
	i := slices.IndexFunc(interpreters, func(in Interpreter) bool { return in.Runtime == r })
	if i < 0 {
		return nil
	}
	return &interpreters[i]
}

// FindVersion returns the first word that looks like a version in the first line of what an interpreter
// prints, or "": of another program, such as true, that prints a version too.
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

// NoProxy returns why a script of a runtime does not reach the hosts that are granted to it, by the version
// of its interpreter: it is empty if it does, or if the version is unknown.
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
	if major > series {
		return ""
	}
	return fmt.Sprintf("%s %d.%d does not use the proxy through which scripts reach granted hosts; %s "+
		"and later do",
		r, major, minor, strings.Join(in.proxyFrom, ".x, "))
}

// isProgram reports whether the base name of a shebang's program means this interpreter.
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

// shellFlags keeps -e -u -x -f, alone or together, and -o pipefail.
func shellFlags(words []string) (kept []string, problem string) {
	for i := 0; i < len(words); i++ {
		letters, ok := strings.CutPrefix(words[i], "-")
		if !ok || letters == "" || strings.Trim(letters, "euxfo") != "" || strings.Count(letters, "o") > 1 {
			return nil, unknownFlag(words[i])
		}
		kept = append(kept, words[i])
		if !strings.Contains(letters, "o") {
			continue
		}
		// Other options change how the rest of the script is read.
		if !strings.HasSuffix(letters, "o") || i+1 == len(words) || words[i+1] != "pipefail" {
			return nil, unknownFlag(words[i])
		}
		i++
		kept = append(kept, words[i])
	}
	return kept, ""
}

// onlyFlags returns a rule that keeps the allowed words and refuses all others.
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

// uvFlags keeps nothing of a `uv run` shebang: an environment has the packages that uv would fetch.
// Flags that ask for other packages or another interpreter are refused.
func uvFlags(words []string) (kept []string, problem string) {
	if len(words) == 0 || words[0] != "run" {
		return nil, "uv is only known with the subcommand run"
	}
	_, problem = onlyFlags("--script", "-s", "--quiet", "-q", "--no-project")(words[1:])
	return nil, problem
}

// tsxFlags loads the package tsx, of an environment, which reads TypeScript for Node.
func tsxFlags(words []string) (kept []string, problem string) {
	if len(words) > 0 {
		return nil, unknownFlag(words[0])
	}
	return []string{"--import", "tsx"}, ""
}

// npxFlags knows `npx tsx` only. Nothing is fetched: --yes has no effect.
func npxFlags(words []string) (kept []string, problem string) {
	words = slices.DeleteFunc(slices.Clone(words),
		func(word string) bool { return word == "-y" || word == "--yes" })
	if len(words) == 0 || words[0] != "tsx" {
		return nil, "npx is only known with the program tsx"
	}
	return tsxFlags(words[1:])
}

// bunFlags keeps nothing: "run" is how each script is run.
func bunFlags(words []string) (kept []string, problem string) {
	if len(words) > 0 && words[0] == "run" {
		words = words[1:]
	}
	return onlyFlags()(words)
}

// denoFlags keeps the permissions of a `deno run` shebang. The sandbox bounds all of them; --allow-net
// is dropped, since there is no network unless the entry grants one. Flags that take a value must have
// it after "=", or the next word could be read as the script.
func denoFlags(words []string) (kept []string, problem string) {
	if len(words) == 0 {
		return nil, ""
	}
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

// NetFlags returns the flags, in addition to info's, that let a script use the network: they name each
// HOST:PORT of granted that its shebang asks for. It returns nil if the interpreter needs no flags, if
// nothing is granted and if the shebang asks for nothing.
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
		if all || slices.Contains(asked, target) || slices.Contains(asked, host) {
			both = append(both, target)
		}
	}
	if both == nil {
		return nil
	}
	return []string{"--allow-net=" + strings.Join(both, ",")}
}
