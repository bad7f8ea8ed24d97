package script

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/skillsd/skillsd/skills/pattern"
)

// StdinProblem returns the reason why a script cannot be passed to its interpreter on standard input, as
// shown to clients, or "" if it can. On standard input the script has no path, so files named relative to it
// would be searched in the working directory, which others control. Only literal includes and imports are
// found, including text that looks like one. Computed paths are not found.
func StdinProblem(info Info, text []byte) string {
	in := info.Runtime.Interpreter()
	switch {
	case in == nil:
		return info.Problem
	case in.stdin == nil:
		return string(info.Runtime) + " scripts run from their files only"
	// The shell would run without set -e, for example, and go on after a failure.
	case len(info.Flags) > 0 && !in.stdin.keepFlags:
		return fmt.Sprintf("flag %q in the shebang is lost on standard input", clip(info.Flags[0]))
	}
	if at := in.stdin.relative().FindIndex(text); at != nil {
		// The match may span lines, and the path is on the last one.
		line := 1 + bytes.Count(text[:at[1]], []byte("\n"))
		return fmt.Sprintf("line %d includes a file by a relative path, "+
			"which cannot be found from standard input", line)
	}
	return ""
}

// shellInclude matches source and "." as a command, with an argument that begins neither with a slash nor
// with an expansion.
var shellInclude = pattern.New(
	"(?m)(?:^|[;&|({!]|\\b(?:then|do|else|elif|if|while|until|builtin|command)\\s)[ \\t]*" +
		"(?:source|\\.)[ \\t]+(?:--[ \\t]+)?[\"']?[^\"'\\s/$`~;&|()<>#]")

// moduleImport matches imports and exports of "./", "../" or "/", as statements and as calls.
var moduleImport = pattern.New(
	"\\b(?:from|import|import[ \\t\\r\\n]*\\()[ \\t\\r\\n]*" +
		"[\"'`](?:\\.{1,2}/|/|\\.{1,2}[\"'`])")

// StdinArgv returns the command that runs a script from its standard input. info must have no [StdinProblem];
// interpreter is its absolute path; args are passed unchanged.
func StdinArgv(info Info, interpreter string, args []string) []string {
	in := info.Runtime.Interpreter()
	return slices.Concat([]string{interpreter}, in.options, info.Flags, in.stdin.operands, args)
}
