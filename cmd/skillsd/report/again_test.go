package report

import (
	"slices"
	"testing"
)

// Of a text only commands of skillsd get flags, once each, and no flag that they have or that help does not need.
func TestAgain(t *testing.T) {
	commands := []string{"list", "session show"}
	flags := func(words []string) (int, [][]string) {
		for n := len(words); n > 0; n-- {
			if name := words[0]; n == 1 && slices.Contains(commands, name) ||
				n == 2 && slices.Contains(commands, name+" "+words[1]) {
				return n, [][]string{{"--state", "a b"}, {"--all"}}
			}
		}
		return 0, nil
	}
	for text, want := range map[string]string{
		"see `skillsd list`, or use latest":      "see `skillsd list --state 'a b' --all`, or use latest",
		"skillsd session show ses_1 --output x":  "skillsd session show --state 'a b' --all ses_1 --output x",
		"run: skillsd list, or: skillsd list x":  "run: skillsd list --state 'a b' --all, or: skillsd list --state 'a b' --all x",
		"skillsd list --all":                     "skillsd list --state 'a b' --all",
		"see `skillsd list --help`; give --all":  "see `skillsd list --help`; give --all",
		"a server of skillsd lists; skillsd":     "a server of skillsd lists; skillsd",
		"myskillsd list, skillsd-sigstore list":  "myskillsd list, skillsd-sigstore list",
		"`skillsd listen` and `skillsd session`": "`skillsd listen` and `skillsd session`",
	} {
		for range 2 {
			if text = Again(text, flags); text != want {
				t.Errorf("Again = %q, want %q", text, want)
			}
		}
	}
}
