// Package script derives facts about a script without running it: its interpreter, from its shebang or its
// name, and the argv that runs it from a read-only tree.
//
// A runtime is never guessed: an unknown flag or permission in the shebang makes the script unsupported, with
// a reason. The package reads no files and executes nothing.
//
// Everything specific to an interpreter comes from one table, [Interpreters].
package script

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxHead is the number of bytes of a script that Inspect needs. A longer shebang is a problem, since its
// rest could change its meaning.
const MaxHead = 4096

// Info holds the facts about a script.
type Info struct {
	Executable bool     // from the file's mode; has no effect, since public collections lose it
	Shebang    string   // the first line after "#!", without CR; may be empty
	Runtime    Runtime  // empty if the script cannot be run
	Flags      []string // flags of the shebang to keep; permissions for deno
	Problem    string   // why Runtime is empty, as shown to clients
}

// Inspect returns the facts about the script at name, a slash-separated path: the shebang determines the
// runtime, or without one the extension. head is the first MaxHead bytes, or the whole file if it is shorter.
func Inspect(name string, head []byte, executable bool) Info {
	info := inspect(name, head, executable)
	if in := info.Runtime.Interpreter(); in != nil && in.Shell {
		info.Problem = misread(head)
		if info.Problem != "" {
			info.Runtime, info.Flags = "", nil
		}
	}
	return info
}

// Reasons why a shell would misread a text, and perhaps go on without a command that it did not understand,
// such as set -e.
const (
	marked = "it begins with a byte order mark, which a shell takes for a part of its first command"
	crlf   = "it has CRLF line endings, which a shell takes for parts of its commands"
)

// misread returns the reason why a shell would misread a text, or "".
func misread(head []byte) string {
	head = head[:min(len(head), MaxHead)]
	first, _, _ := bytes.Cut(head, []byte("\n"))
	ends, lines := bytes.Count(head, []byte("\r\n")), bytes.Count(head, []byte("\n"))
	switch {
	case bytes.HasPrefix(head, []byte(mark)):
		return marked
	// The kernel would look for an interpreter whose name ends in CR.
	case bytes.HasSuffix(first, []byte("\r")) || 2*ends > lines:
		return crlf
	}
	return ""
}

// Fix returns the remedy for a script that is not run because of its encoding, or "".
func (i Info) Fix() string {
	switch i.Problem {
	case marked:
		return `remove the mark: sed -i '1s/^\xEF\xBB\xBF//' FILE`
	case crlf:
		return `convert it: sed -i 's/\r$//' FILE`
	}
	return ""
}

// mark is the byte order mark of UTF-8.
const mark = "\xef\xbb\xbf"

// inspect is Inspect without the checks of the encoding.
func inspect(name string, head []byte, executable bool) Info {
	line, complete := shebang(head)
	info := Info{Executable: executable, Shebang: line}
	if !complete {
		info.Problem = "the shebang is longer than 4 KiB"
		return info
	}
	if info.Shebang == "" {
		if in := byExtension(strings.ToLower(path.Ext(name))); in != nil {
			info.Runtime = in.Runtime
			return info
		}
		info.Problem = "no shebang, and the file name names no supported runtime"
		return info
	}
	words, problem := shebangWords(info.Shebang)
	if problem != "" {
		info.Problem = problem
		return info
	}
	program := path.Base(words[0])
	for i := range interpreters {
		in := &interpreters[i]
		flags := in.launchers[program]
		if in.isProgram(program) {
			flags = in.flags
		}
		if flags == nil {
			continue
		}
		info.Flags, info.Problem = flags(words[1:])
		if info.Problem == "" {
			info.Runtime = in.Runtime
		}
		return info
	}
	info.Problem = fmt.Sprintf("interpreter %q is not supported", clip(program))
	return info
}

// otherPrograms are extensions of programs without an interpreter in the table.
var otherPrograms = []string{".rb", ".pl", ".php", ".bat", ".cmd", ".exe", ".lua"}

// IsProgram reports whether a file outside of scripts/ looks like a program to start: at the top or below
// bin/ or tools/ with the extension of a program, or executable. The name is a slash-separated path. A module
// for other programs may look like one.
func IsProgram(name string, executable bool) bool {
	first, _, below := strings.Cut(name, "/")
	base, extension := path.Base(name), strings.ToLower(path.Ext(name))
	isTools := below && (first == "bin" || first == "tools")
	switch {
	case strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_"):
		return false
	case extension == "":
		// On file systems without modes, LICENSE and Makefile are executable too.
		return isTools || executable && base[0] > 'Z'
	}
	known := slices.Contains(otherPrograms, extension) || byExtension(extension) != nil
	return known && (!below || isTools || executable)
}

// InspectOutside returns the facts about a file that is not below scripts/ if its name allows an entry for it
// (see [CleanFile]) and it has an extension of the table or a shebang, otherwise nil.
func InspectOutside(name string, head []byte, executable bool) *Info {
	clean, err := CleanFile(name)
	if err != nil || clean != name || path.Ext(name) == "" && !bytes.HasPrefix(head, []byte("#!")) {
		return nil
	}
	info := Inspect(name, head, executable)
	return &info
}

// byExtension returns the interpreter of files with a lower-case extension, or nil.
func byExtension(extension string) *Interpreter {
	i := slices.IndexFunc(interpreters,
		func(in Interpreter) bool { return slices.Contains(in.extensions, extension) })
	if i < 0 {
		return nil
	}
	return &interpreters[i]
}

// Extensions returns the extensions of the table.
func Extensions() (all []string) {
	for i := range interpreters {
		all = append(all, interpreters[i].extensions...)
	}
	return all
}

// ReferenceRuntime returns the runtime in the terms of the reference's registry: deno, shebang or unknown.
func (i Info) ReferenceRuntime() string {
	if in := i.Runtime.Interpreter(); in != nil && in.reference != "" {
		return in.reference
	}
	if i.Shebang != "" {
		return "shebang"
	}
	return "unknown"
}

// shebang returns the first line after "#!", and whether head contains all of it.
func shebang(head []byte) (text string, complete bool) {
	head = head[:min(len(head), MaxHead)]
	// The kernel does not see a shebang after a byte order mark, but here its interpreter runs the script.
	rest, ok := bytes.CutPrefix(bytes.TrimPrefix(head, []byte(mark)), []byte("#!"))
	if !ok {
		return "", true
	}
	line, _, ended := bytes.Cut(rest, []byte("\n"))
	return strings.TrimSpace(strings.ToValidUTF8(string(line), "\uFFFD")), ended || len(head) < MaxHead
}

// shebangWords splits a shebang into the interpreter and its flags, without env. Some systems pass everything
// after a plain `env NAME` as one word; here it is always split, which is safe since only harmless flags are
// kept.
func shebangWords(line string) (words []string, problem string) {
	words = strings.Fields(line)
	// env -S has its own quotes and variables, which systems parse differently.
	if strings.ContainsAny(line, `"'\$`) {
		return nil, "the shebang uses quotes, escapes or variables"
	}
	if path.Base(words[0]) != "env" {
		return words, ""
	}
	words = words[1:]
	switch {
	case len(words) > 0 && words[0] == "-S":
		words = words[1:]
	case len(words) > 0 && strings.HasPrefix(words[0], "-S"):
		words[0] = strings.TrimPrefix(words[0], "-S")
	case len(words) > 0 && words[0] == "--split-string":
		words = words[1:]
	case len(words) > 0 && strings.HasPrefix(words[0], "-"):
		return nil, fmt.Sprintf("env flag %q in the shebang", clip(words[0]))
	}
	if len(words) == 0 {
		return nil, "the shebang names no interpreter"
	}
	// env NAME=VALUE would change the environment that the entry determines.
	if strings.Contains(words[0], "=") {
		return nil, "the shebang sets an environment variable"
	}
	return words, ""
}

// clip truncates a word of the script for a message.
func clip(s string) string {
	if r := []rune(s); len(r) > 64 {
		return string(r[:64]) + "…"
	}
	return s
}

// Limits of a script's arguments. A single argument must fit the kernel's limit for strings.
const (
	MaxArgs     = 1_000
	MaxArgBytes = 128 << 10
	maxAllBytes = 1 << 20
)

// Argv returns the command that runs a script. interpreter is its absolute path; file is the absolute path of
// the script where it runs, so that no interpreter can parse it as a flag; args are passed unchanged. info
// must have a Runtime.
func Argv(info Info, interpreter, file string, args []string) []string {
	in := info.Runtime.Interpreter()
	return slices.Concat([]string{interpreter}, in.options, info.Flags, []string{file}, in.ends, args)
}

// Environ returns the variables by which scripts find the modules of their skill in dir, as if they were
// started there. It includes the variables of all interpreters, since a script may start programs in other
// languages.
func Environ(dir string) (env []string) {
	for i := range interpreters {
		if name := interpreters[i].modulesVar; name != "" {
			env = append(env, name+"="+dir)
		}
	}
	return env
}

// offline makes package managers fail at once without a network, instead of retrying for a minute.
var offline = []string{"NPM_CONFIG_OFFLINE=true", "NPM_CONFIG_AUDIT=false",
	"NPM_CONFIG_UPDATE_NOTIFIER=false", "PIP_RETRIES=0", "PIP_DISABLE_PIP_VERSION_CHECK=1", "UV_OFFLINE=1"}

// Offline returns the variables for a script without a network.
func Offline() []string { return offline }

// CheckArgs rejects arguments that cannot be passed to a command: too many or too long, with a NUL byte, or
// not UTF-8.
func CheckArgs(args []string) error {
	if len(args) > MaxArgs {
		return fmt.Errorf("%d arguments, the limit is %d", len(args), MaxArgs)
	}
	total := 0
	for i, arg := range args {
		total += len(arg)
		switch {
		case strings.ContainsRune(arg, 0):
			return fmt.Errorf("argument %d has a NUL byte", i)
		case !utf8.ValidString(arg):
			return fmt.Errorf("argument %d is not UTF-8", i)
		// The kernel's limit, MAX_ARG_STRLEN, includes the final NUL.
		case len(arg) >= MaxArgBytes:
			return fmt.Errorf("argument %d has %d bytes, the limit is %d", i, len(arg), MaxArgBytes-1)
		}
	}
	if total > maxAllBytes {
		return fmt.Errorf("the arguments have %d bytes together, the limit is %d", total, maxAllBytes)
	}
	return nil
}

// PathError reports an invalid script path.
type PathError struct {
	Path   string
	Reason string // as worded by the reference, if it has this rule
}

func (e *PathError) Error() string { return "script path " + e.Reason }

// CleanPath returns the canonical form of a script's path: relative, slash-separated, below scripts/, without
// empty or "." segments and without surrounding spaces. Paths that could name another file on another system
// or in another notation are rejected, not resolved: with "..", backslashes, ":", "*", control characters or
// a trailing slash.
//
// Errors: *PathError.
func CleanPath(p string) (string, error) { return cleanPath(p, true) }

// CleanFile is CleanPath for a file of the skill that need not be below scripts/. A file elsewhere must be
// one that an interpreter could run: with an extension of the table, or with none, where the shebang
// decides. So the texts of a skill are never scripts, whatever they begin with.
//
// Errors: *PathError.
func CleanFile(p string) (string, error) {
	clean, err := cleanPath(p, false)
	if err != nil || !Outside(clean) {
		return clean, err
	}
	base := path.Base(clean)
	extension := strings.ToLower(path.Ext(base))
	switch {
	case strings.EqualFold(base, "SKILL.md"):
		return "", &PathError{Path: p, Reason: "must not be the instructions of a skill"}
	case strings.Contains(clean, "="):
		// In an entry it would read as an option of a script that was left out.
		return "", &PathError{Path: p, Reason: "must not contain = outside scripts/"}
	// Hidden files outside of scripts/ configure programs, and a listing does not show them to the operator.
	case strings.HasPrefix(base, "."):
		return "", &PathError{Path: p, Reason: "must not name a hidden file outside scripts/"}
	case extension != "" && byExtension(extension) == nil:
		return "", &PathError{Path: p, Reason: "must be under scripts/, or end in one of " +
			strings.Join(Extensions(), ", ")}
	}
	return clean, nil
}

// Outside reports whether a canonical path is not below scripts/.
func Outside(p string) bool { return !strings.HasPrefix(p, "scripts/") }

// cleanPath is CleanPath; below requires a path below scripts/.
func cleanPath(p string, below bool) (string, error) {
	refuse := func(reason string) (string, error) { return "", &PathError{Path: p, Reason: reason} }
	p = strings.Trim(p, " ")
	switch {
	case p == "":
		return refuse("must be non-empty")
	case strings.ContainsRune(p, 0):
		return refuse("must not contain null bytes")
	case !utf8.ValidString(p):
		return refuse("must be UTF-8")
	case strings.ContainsFunc(p, unicode.IsControl):
		return refuse("must not contain control characters")
	case strings.HasPrefix(p, "/"):
		return refuse("must be relative to the skill directory")
	case strings.ContainsAny(p, `\:*`):
		return refuse(`must not contain \, : or *`)
	}
	var kept []string
	for segment := range strings.SplitSeq(p, "/") {
		switch segment {
		case "", ".":
		case "..":
			return refuse("must stay within the skill directory")
		default:
			kept = append(kept, segment)
		}
	}
	clean := strings.Join(kept, "/")
	switch {
	// The reference has this rule and these words for paths elsewhere.
	case below && Outside(clean):
		return refuse("must be under scripts/")
	case clean == "" || clean == "scripts":
		return refuse("must name a file")
	// Windows drops a space at the end of a name.
	case strings.HasSuffix(p, "/"), strings.HasSuffix(clean, " "):
		return refuse("must name a file")
	}
	return clean, nil
}

// Started returns the script in a command line of two words, an interpreter and a script, or "" for any other
// text.
func Started(command string) string {
	words := strings.Fields(command)
	// With options or arguments the command may do something else than run the script.
	if len(words) != 2 || strings.HasPrefix(words[1], "-") {
		return ""
	}
	for i := range interpreters {
		if interpreters[i].isProgram(path.Base(words[0])) {
			return words[1]
		}
	}
	return ""
}
