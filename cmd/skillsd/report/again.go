package report

import (
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/pattern"
)

// commands matches commands of skillsd, and quoted texts, which are arguments.
var commands = pattern.New("(?:^|[\\s`(])" +
	`(?:(skillsd(?: [a-z][a-z-]*)+)|'[^']*'(?:\\''[^']*')*|"(?:[^"\\]|\\.)*")`)

// Again adds flags to the skillsd commands in a text. flags returns the flags of the command at the start of
// some words, each with its value, and how many of the words name the command. Flags that the command has
// already are left out.
func Again(text string, flags func(words []string) (named int, more [][]string)) string {
	var out strings.Builder
	done := 0
	for _, at := range commands().FindAllStringSubmatchIndex(text, -1) {
		// The match is a quoted text: an argument may contain the name of a command.
		if at[2] < 0 {
			continue
		}
		words := strings.Split(text[at[2]:at[3]], " ")
		named, more := flags(words[1:])
		end := at[2] + len(strings.Join(words[:1+named], " "))
		// The backquote ends a command within a sentence.
		rest, _, _ := strings.Cut(text[end:], "`")
		given := strings.Fields(rest)
		if slices.Contains(given, "--help") {
			continue
		}
		out.WriteString(text[done:end])
		done = end
		for _, flag := range more {
			name, _, _ := strings.Cut(flag[0], "=")
			if !slices.ContainsFunc(given, func(word string) bool {
				return word == name || strings.HasPrefix(word, name+"=")
			}) {
				out.WriteString(" " + ShellLine(flag...))
			}
		}
	}
	return out.String() + text[done:]
}
