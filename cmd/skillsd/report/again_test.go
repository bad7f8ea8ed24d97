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
				return n, [][]string{{"--state", "a b"}, {"--all=no"}}
			}
		}
		return 0, nil
	}
	for text, want := range map[string]string{
		"see `skillsd list`, or use latest":                   "see `skillsd list --state 'a b' --all=no`, or use latest",
		"skillsd session show ses_1 --output x":               "skillsd session show --state 'a b' --all=no ses_1 --output x",
		"run: skillsd list, or: skillsd list x":               "run: skillsd list --state 'a b' --all=no, or: skillsd list --state 'a b' --all=no x",
		"skillsd list --all":                                  "skillsd list --state 'a b' --all",
		"see `skillsd list --help`; give --all":               "see `skillsd list --help`; give --all",
		"a server of skillsd lists; skillsd":                  "a server of skillsd lists; skillsd",
		"myskillsd list, skillsd-sigstore list":               "myskillsd list, skillsd-sigstore list",
		"skillsd list --all=yes --state=x":                    "skillsd list --all=yes --state=x",
		`no "./skillsd list x" in ../skillsd list`:            `no "./skillsd list x" in ../skillsd list`,
		`"a\" skillsd list" or 'it'\''s skillsd list'`:        `"a\" skillsd list" or 'it'\''s skillsd list'`,
		"its owner's file: `skillsd list 'x' 'skillsd list'`": "its owner's file: `skillsd list --state 'a b' --all=no 'x' 'skillsd list'`",
		"`skillsd listen` and `skillsd session`":              "`skillsd listen` and `skillsd session`",
	} {
		for range 2 {
			text = Again(text, flags)
			if text != want {
				t.Errorf("Again = %q, want %q", text, want)
			}
		}
	}
}
