package signal

import (
	"bytes"
	"strings"
)

// language is the kind of a program, as far as the rules differ.
type language uint8

const (
	none  language = iota // not a program
	shell                 // its lines are commands
	code                  // its strings may be commands
)

var languages = map[string]language{
	"sh": shell, "bash": shell, "zsh": shell, "ksh": shell, "fish": shell, "command": shell, "ps1": shell,
	"psm1": shell, "bat": shell, "cmd": shell,
	"py": code, "pyw": code, "js": code, "mjs": code, "cjs": code, "ts": code, "mts": code, "cts": code,
	"rb": code,
	"pl": code, "php": code, "lua": code, "applescript": code, "scpt": code,
}

// languageOf returns the language of a file by its name, in lower case.
func languageOf(base string) language {
	if base == "makefile" || base == "justfile" {
		return shell
	}
	return languages[base[strings.LastIndexByte(base, '.')+1:]]
}

// interpreterOf returns the language of a file by its first line, which begins with "#!".
func interpreterOf(line []byte) language {
	if containsAny(line, "python", "node", "deno", "bun", "ruby", "perl", "php", "osascript", "lua") {
		return code
	}
	return shell
}

// escapeOf returns the character that escapes others in a shell, and the end of a line. The name of the
// script is in lower case.
func escapeOf(base string) byte {
	switch base[strings.LastIndexByte(base, '.')+1:] {
	case "ps1", "psm1":
		return '`'
	case "bat", "cmd":
		return '^'
	default:
		return '\\'
	}
}

// togglesDocs reports whether a docstring begins or ends in a line, but not both.
func togglesDocs(line []byte) bool {
	return (bytes.Count(line, []byte(`"""`))+bytes.Count(line, []byte(`'''`)))%2 == 1
}

// isComment reports whether a line is nothing but a comment.
func isComment(line []byte) bool {
	text := bytes.TrimLeft(line, " \t")
	for _, mark := range []string{"#", "//", "/*", "* ", "*/", "--", "::", "REM ", "rem "} {
		if bytes.HasPrefix(text, []byte(mark)) {
			return true
		}
	}
	return false
}
