package signal

import "testing"

func TestUnquoted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{ // of a shell, and of another program
		`a"b"c`:      {"ac", "ac"},
		`a\"b"c"d`:   {"abd", "abd"},
		`a'b\'c'd'e`: {"ace", "ad"},
		"a`b`c":      {"a`b`c", "ac"},
		`a\|b|c`:     {"ab|c", "ab|c"},
		`a"b\"c"d`:   {"ad", "ad"},
		`a"b`:        {"a", "a"},
		`a\`:         {"a", "a"},
	} {
		for i, isShell := range []bool{true, false} {
			got := ""
			for at, c := range unquoted([]byte(text), isShell) {
				if text[at] != c {
					t.Errorf("%s: %q is at %d", text, c, at)
				}
				got += string(c)
			}
			if got != want[i] {
				t.Errorf("%s, of a shell %v: %s, want %s", text, isShell, got, want[i])
			}
		}
	}
}
