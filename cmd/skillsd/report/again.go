package report

import (
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/pattern"
)

// commands finds commands, and what is quoted and thus the argument of one.
var commands = pattern.New("(?:^|[\\s`(])" +
	`(?:(skillsd(?: [a-z][a-z-]*)+)|'[^']*'(?:\\''[^']*')*|"(?:[^"\\]|\\.)*")`)

// Again returns a text in which the commands of skillsd have further flags. flags returns those of the
// command that some words begin with, each with its value, and how many of the words name the command. A flag
// that the text gives the command already is left out.
func Again(text string, flags func(words []string) (named int, more [][]string)) string {
	var out strings.Builder
	done := 0
	for _, at := range commands().FindAllStringSubmatchIndex(text, -1) {
		if at[2] < 0 {
			continue
		}
		words := strings.Split(text[at[2]:at[3]], " ")
		named, more := flags(words[1:])
		end := at[2] + len(strings.Join(words[:1+named], " "))
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
