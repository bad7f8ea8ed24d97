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
