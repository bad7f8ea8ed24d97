package report

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, in, want string }{
		{"plain", "Grüße, 技能", "Grüße, 技能"},
		{"escape sequence", "a\x1b[2Jb", "a [2Jb"},
		{"C1 control", "a\u009b2Jb", "a 2Jb"},
		{"line breaks", "a\nb\r\nc\u2028d\u2029e", "a b  c d e"},
		{"direction", "a\u202eb\u2066c", "a\ufffdb\ufffdc"},
		{"tag characters", "a\U000e0041b", "a\ufffdb"},
		{"joiners", "می\u200cخواهم 👩\u200d🔬", "می\u200cخواهم 👩\u200d🔬"},
		{"invalid bytes", "a\xffb", "a\ufffdb"},
	}
	for _, tt := range tests {
		if got := Printable(tt.in); got != tt.want {
			t.Errorf("%s: Printable(%q) = %q, want %q", tt.name, tt.in, got, tt.want)
		}
	}
}

func TestShorten(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in   string
		most int
		want string
	}{
		{"short", 12, "short"},
		{"exactly twelv", 13, "exactly twelv"},
		{"words that do not fit", 16, "words that do…"},
		{"words  that\n do not fit", 16, "words that do…"},
		{"onelongwordwithoutspaces", 12, "onelongword…"},
		{"a onelongwordwithoutspaces", 12, "a onelongwo…"},
		{"短い説明は列に合わせて", 12, "短い説明は…"},
		{"e\u0301e\u0301e\u0301", 3, "e\u0301e\u0301e\u0301"},
	}
	for _, tt := range tests {
		if got := Shorten(tt.in, tt.most); got != tt.want || Cells(got) > tt.most {
			t.Errorf("Shorten(%q, %d) = %q (%d columns), want %q", tt.in, tt.most, got, Cells(got), tt.want)
		}
	}
}

// Whatever a skill says takes one line, moves nothing and hides nothing.
func FuzzPrintable(f *testing.F) {
	for _, seed := range []string{"plain", "a\x1b]0;t\a", "\u202e\u2066\u2028", "\xff\xc0", "e\u0301技\u200d",
		"\U000e0041"} {
		f.Add(seed, 20)
	}
	f.Fuzz(func(t *testing.T, text string, most int) {
		got := Printable(text)
		for _, r := range got {
			if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) || unicode.Is(unicode.Cf, r) &&
				r != '\u200c' && r != '\u200d' {
				t.Fatalf("Printable(%q) = %q holds %U", text, got, r)
			}
		}
		if !utf8.ValidString(got) {
			t.Fatalf("Printable(%q) = %q is not UTF-8", text, got)
		}
		if most < 1 || most > 1000 {
			return
		}
		if short := Shorten(text, most); Cells(short) > most {
			t.Fatalf("Shorten(%q, %d) = %q takes %d columns", text, most, short, Cells(short))
		}
	})
}

func TestVisible(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"Grüße, 技能 → ✓":                 "Grüße, 技能 → ✓",
		`a\n "b" 'c' \`:                 `a\n "b" 'c' \`,
		"\ta":                           "    a",
		"# x\rrm":                       `# x\rrm`,
		"# x\u2028a\u2029b\u0085c":      `# x\u2028a\u2029b\u0085c`,
		"a\bb\x00c\x1b[2Jd\x7fe\u009bf": `a\bb\x00c\x1b[2Jd\x7fe\u009bf`,
		"a\u202eb\u00adc\u200bd\ufeff":  `a\u202eb\u00adc\u200bd\ufeff`,
		"a\U000e0041b\u034fc\u2800d":    `a\U000e0041b\u034fc\u2800d`,
		"a\u00a0b\u3164c":               `a\u00a0b\u3164c`,
		"a\u200db":                      `a\u200db`,
		"می\u200cخواهم 👩\u200d🔬":        "می\u200cخواهم 👩\u200d🔬",
		"a\xffb\xe2\x80":                `a\xffb\xe2\x80`,
		"a\ufffdb":                      "a\ufffdb",
	} {
		if got := Visible(in); got != want {
			t.Errorf("Visible(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestColumns(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int{"": 0, "120": 120, "0": 0, "-3": 0, "wide": 0} {
		env := func(name string) (string, bool) { return value, name == "COLUMNS" }
		if got := Columns(env, &bytes.Buffer{}); got != want {
			t.Errorf("Columns with COLUMNS=%q = %d, want %d", value, got, want)
		}
	}
}

func TestFold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text  string
		width int
		want  string
	}{
		{"", 10, ""},
		{"one two three", 7, "one two|three"},
		{"one  two\nthree", 20, "one two three"},
		{"averylongword b", 5, "averylongword|b"},
	} {
		if got := strings.Join(Fold(tt.text, tt.width), "|"); got != tt.want {
			t.Errorf("Fold(%q, %d) = %q, want %q", tt.text, tt.width, got, tt.want)
		}
	}
}

func TestWrap(t *testing.T) {
	t.Parallel()
	line := strings.Repeat("word ", 10) + "end"
	if got := Wrap(line, 0); got != line {
		t.Errorf("Wrap at an unknown width = %q", got)
	}
	for _, columns := range []int{25, 40, 80} {
		for part := range strings.SplitSeq(Wrap(line, columns), "\n") {
			if Cells(part) > columns {
				t.Errorf("Wrap at %d: a line has %d columns: %q", columns, Cells(part), part)
			}
		}
	}
}
