package report

import (
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/pattern"
)

var commands = pattern.New(`\bskillsd( [a-z][a-z-]*)+`)

// Again returns a text in which the commands of skillsd have further flags. flags returns those of the
// command that some words begin with, each with its value, and how many of the words name the command. A flag
// that the text gives the command already is left out.
func Again(text string, flags func(words []string) (named int, more [][]string)) string {
	var out strings.Builder
	done := 0
	for _, at := range commands().FindAllStringIndex(text, -1) {
		words := strings.Split(text[at[0]:at[1]], " ")
		named, more := flags(words[1:])
		end := at[0] + len(strings.Join(words[:1+named], " "))
		rest, _, _ := strings.Cut(text[end:], "`")
		given := strings.Fields(rest)
		if slices.Contains(given, "--help") {
			continue
		}
		out.WriteString(text[done:end])
		done = end
		for _, flag := range more {
			if !slices.Contains(given, flag[0]) {
				out.WriteString(" " + ShellLine(flag...))
			}
		}
	}
	return out.String() + text[done:]
}
