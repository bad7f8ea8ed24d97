package script

import (
	"bytes"
	"fmt"
	"regexp"
)

// StdinProblem says why a script cannot be handed to its interpreter on standard input, in words fit
// for a client, or "" when it can. In that form it has no place of its own: bash, sh and deno read it,
// without flags of the shebang but deno's permissions, and what it names relative to itself would be
// looked for in the working directory, which is somebody else's. Only literal includes and imports are
// found, and text that looks like one counts; what a script computes is not.
func StdinProblem(info Info, text []byte) string {
	var relative *regexp.Regexp
	switch info.Runtime {
	case Bash, Sh:
		if len(info.Flags) > 0 {
			return fmt.Sprintf("flag %q in the shebang is lost on standard input", clip(info.Flags[0]))
		}
		relative = shellInclude
	case Deno:
		relative = moduleImport
	case "":
		return info.Problem
	default:
		return string(info.Runtime) + " scripts run from their files only"
	}
	if at := relative.FindIndex(text); at != nil {
		line := 1 + bytes.Count(text[:at[1]], []byte("\n"))
		return fmt.Sprintf("line %d includes a file by a relative path, which standard input has not", line)
	}
	return ""
}

// shellInclude finds source and "." where a command may stand, with a word that begins neither with a
// slash nor with something to be expanded.
var shellInclude = regexp.MustCompile("(?m)(?:^|[;&|({!]|\\b(?:then|do|else|elif|if|while|until|builtin|command)\\s)[ \\t]*(?:source|\\.)[ \\t]+(?:--[ \\t]+)?[\"']?[^\"'\\s/$`~;&|()<>#]")

// moduleImport finds import and export of "./", "../" or "/", as statements and as calls.
var moduleImport = regexp.MustCompile("\\b(?:from|import|import[ \\t\\r\\n]*\\()[ \\t\\r\\n]*[\"'`](?:\\.{1,2}/|/|\\.{1,2}[\"'`])")

// StdinArgv returns the command that runs a script from its standard input. info must have no
// [StdinProblem]; interpreter is its absolute path, args are passed as they are.
func StdinArgv(info Info, interpreter string, args []string) []string {
	argv := []string{interpreter}
	switch info.Runtime {
	case Deno:
		argv = append(append(argv, denoRun...), info.Flags...)
		argv = append(argv, "-")
	default:
		argv = append(argv, "-s", "--")
	}
	return append(argv, args...)
}
