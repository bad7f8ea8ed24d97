package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/skillsd/skillsd/skills"
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
		if got := printable(tt.in); got != tt.want {
			t.Errorf("%s: printable(%q) = %q, want %q", tt.name, tt.in, got, tt.want)
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
		if got := shorten(tt.in, tt.most); got != tt.want || cells(got) > tt.most {
			t.Errorf("shorten(%q, %d) = %q (%d columns), want %q", tt.in, tt.most, got, cells(got), tt.want)
		}
	}
}

func TestColumns(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int{"": 80, "120": 120, "0": 80, "-3": 80, "wide": 80} {
		a := &app{env: func(name string) (string, bool) { return value, name == "COLUMNS" }}
		if got := a.columns(&bytes.Buffer{}); got != want {
			t.Errorf("columns with COLUMNS=%q = %d, want %d", value, got, want)
		}
	}
}

// Whatever a skill says takes one line, moves nothing and hides nothing.
func FuzzPrintable(f *testing.F) {
	for _, seed := range []string{"plain", "a\x1b]0;t\a", "\u202e\u2066\u2028", "\xff\xc0", "e\u0301技\u200d", "\U000e0041"} {
		f.Add(seed, 20)
	}
	f.Fuzz(func(t *testing.T, text string, most int) {
		got := printable(text)
		for _, r := range got {
			if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) || unicode.Is(unicode.Cf, r) && r != '\u200c' && r != '\u200d' {
				t.Fatalf("printable(%q) = %q holds %U", text, got, r)
			}
		}
		if !utf8.ValidString(got) {
			t.Fatalf("printable(%q) = %q is not UTF-8", text, got)
		}
		if most < 1 || most > 1000 {
			return
		}
		if short := shorten(text, most); cells(short) > most {
			t.Fatalf("shorten(%q, %d) = %q takes %d columns", text, most, short, cells(short))
		}
	})
}

// No line of the table is wider than asked for, but those a path or a reason makes so.
func TestPrintRowsFits(t *testing.T) {
	t.Parallel()
	rows := []skillRow{
		{Path: "a", Tier: "user", State: "enabled", Description: strings.Repeat("word ", 100)},
		{Path: "team/技能", Tier: "third-party", State: "hidden", Reasons: []string{"because"}, Description: strings.Repeat("描述", 100)},
		{Path: strings.Repeat("long/", 20) + "path", Tier: "org", State: "unavailable", Description: "x\ny"},
	}
	for _, most := range []int{74, 80, 100, 200} {
		var out bytes.Buffer
		if err := printRows(&out, rows, most); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			line = strings.TrimSuffix(line, "\n")
			if cells(line) > most && !strings.HasSuffix(line, rows[2].Path) {
				t.Errorf("at %d: a line has %d columns: %q", most, cells(line), line)
			}
		}
		for _, want := range []string{"✓ a ", "○ team/技能 ", "✗ " + rows[2].Path + "\n", "    hidden: because\n", "x y\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("at %d: no %q in\n%s", most, want, out.String())
			}
		}
	}
}

// Errors come first, and what is left out is counted.
func TestPrintDiagnosticsMost(t *testing.T) {
	t.Parallel()
	var all []skills.Diagnostic
	for i := range 10 {
		all = append(all, skills.Diagnostic{Severity: skills.Warning, Code: skills.CodeShadowed, Path: fmt.Sprint(i)})
	}
	all = append(all, skills.Diagnostic{Severity: skills.Error, Code: skills.CodeInvalidFrontmatter, Path: "bad", Line: 3, Detail: "odd\x1b\n"})
	var out bytes.Buffer
	if err := printDiagnostics(&out, diagnosticRows(all), 3); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], "error: bad:3: invalid-frontmatter: odd  ") || !strings.HasPrefix(lines[1], "warning: 0: shadowed: ") ||
		!strings.HasPrefix(lines[3], "and 8 more") {
		t.Errorf("printDiagnostics printed\n%s", out.String())
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	quiet := newProgress(&out, "skills", 2)
	quiet.step()
	quiet.clear()
	if out.Len() > 0 {
		t.Errorf("progress on no terminal wrote %q", out.String())
	}
	shown := &progress{w: &out, what: "skills", total: 2}
	shown.step()
	shown.shown = time.Now().Add(time.Hour)
	shown.step()
	shown.clear()
	shown.clear()
	if want := "\rskills: 1 of 2\x1b[K\r\x1b[K"; out.String() != want {
		t.Errorf("progress wrote %q, want %q", out.String(), want)
	}
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
		if got := visible(in); got != want {
			t.Errorf("visible(%q) = %q, want %q", in, got, want)
		}
	}
}
