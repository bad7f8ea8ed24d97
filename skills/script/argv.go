package script

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a script's arguments. A single argument must fit the kernel's limit for strings.
const (
	MaxArgs     = 1_000
	MaxArgBytes = 128 << 10
	MaxAllBytes = 1 << 20
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
	if total > MaxAllBytes {
		return fmt.Errorf("the arguments have %d bytes together, the limit is %d", total, MaxAllBytes)
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
