package policy

import "testing"

// TestShellWord has names stand in command lines as one word that runs nothing.
func TestShellWord(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"pdf:scripts/extract-1_a.py":       "pdf:scripts/extract-1_a.py",
		"a/b:scripts/x@2.sh":               "a/b:scripts/x@2.sh",
		"a:scripts/a;touch${IFS}pwned;.sh": "'a:scripts/a;touch${IFS}pwned;.sh'",
		"a:scripts/it's`id`.sh":            `'a:scripts/it'\''s` + "`id`.sh'",
		"a:scripts/two words":              "'a:scripts/two words'",
		"a:scripts/\u2028":                 "'a:scripts/\u2028'",
		"a:scripts/~":                      "'a:scripts/~'",
		"":                                 "''",
	} {
		if got := shellWord(name); got != want {
			t.Errorf("shellWord(%q) = %s, want %s", name, got, want)
		}
	}
}
