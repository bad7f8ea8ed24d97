package approval

import (
	"slices"
	"strings"
	"testing"
)

// thirteen arguments and an input, as they fit a form with fields and a message without.
var thirteen = Facts{
	Script: "scripts/tally.py", Skill: "wordlab", Tier: "user",
	Reach:  "only the files of its skill; no network",
	Reason: "asked because you have not yet let this script run without asking",
	Args: []string{"--out", "https://example.org/collect?token=abc", "--recursive", "--include", "secrets/**",
		"--delete-after",
		"--force", "--user", "ünï", "--retries", "5", "--quiet", "a b\n; rm"},
	Stdin: []byte("first line\nsecond line\n"),
}

func TestFormShowsAll(t *testing.T) {
	form := thirteen.Form(true)
	var shown string
	for _, field := range form.Fields {
		if columns(field.Text) > fieldColumns {
			t.Errorf("%s is too wide: %s", field.Title, field.Text)
		}
		shown += field.Text
	}
	const args, stdin = `"--out" "https://example.org/collect?token=abc" "--recursive" "--include" "secrets/**" "--delete-after" "--force" "--user" "ünï" "--retries" "5" "--quiet" "a b\n; rm"`,
		`"first line\nsecond line\n"`
	if shown != args+stdin || !form.Whole {
		t.Errorf("fields %q, whole %v", shown, form.Whole)
	}
	if n := strings.Count(form.Message, "\n"); n != 2 || strings.Contains(form.Message, "--out") {
		t.Errorf("message %q", form.Message)
	}
	message := thirteen.Form(false)
	if text := strings.ReplaceAll(message.Message, "\n| ", ""); !message.Whole || message.Fields != nil ||
		!strings.HasSuffix(text, "\narguments: "+args+"\nstdin: "+stdin) {
		t.Errorf("message %q", message.Message)
	}
}

// Long names are fields of their own, and words stay whole where that takes no more rows.
func TestFormWrapsNames(t *testing.T) {
	facts := Facts{Script: "scripts/quarterly/summarize-the-reports.py", Skill: "finance-department/csv-report",
		Tier: "third-party", Reach: "project /home/anna/projects/reports (changes are checked, then kept)",
		Reason: "asked because the skill is third-party", Args: []string{}}
	want := []Field{
		{"shown01", "script", "scripts/quarterly/summarize-the-reports.py"},
		{"shown02", "skill", "finance-department/csv-report (third-party)"},
		{"shown03", "can use 1/2", "project /home/anna/projects/reports (changes are "},
		{"shown04", "can use 2/2", "checked, then kept)"},
		{"shown05", "arguments", "none, and no stdin"},
	}
	form := facts.Form(true)
	if !slices.Equal(form.Fields, want) || !form.Whole {
		t.Errorf("fields %q, whole %v", form.Fields, form.Whole)
	}
	message := facts.Form(false).Message
	if !strings.Contains(message, "\nscript: "+want[0].Text+"\nskill: "+want[1].Text+"\ncan use: ") {
		t.Errorf("message %q", message)
	}
	// More is shown if words are cut, so they are.
	facts.Script = strings.Repeat("seven x", fieldColumns*2/7) + "/" + strings.Repeat("y", fieldColumns-1)
	facts.Reach = "only the files of its skill; no project, no network"
	for _, field := range facts.Form(true).Fields[:3] {
		if !strings.HasPrefix(field.Title, "script ") {
			t.Errorf("%q", field)
		}
	}
}

// A question has its size whatever is asked about, counts what it does not show, and none of it looks like
// another line.
func TestFormIsBounded(t *testing.T) {
	long := strings.Repeat("x", 5000)
	wide := strings.Repeat("漢", 600)
	for name, change := range map[string]func(*Facts){
		"one long argument": func(f *Facts) { f.Args = []string{long} },
		"many arguments":    func(f *Facts) { f.Args = make([]string, 1000) },
		"a long input":      func(f *Facts) { f.Stdin = []byte(strings.Repeat(long, 200)) },
		"wide characters":   func(f *Facts) { f.Args = []string{wide} },
		"all is long": func(f *Facts) {
			f.Script, f.Skill, f.Reach, f.Cwd, f.Args, f.Stdin = long, long, long, long, []string{long},
				[]byte(long)
		},
	} {
		facts := thirteen
		change(&facts)
		for _, fields := range []bool{true, false} {
			form := facts.Form(fields)
			lines := strings.Split(form.Message, "\n")
			most, widest := maxLines, 80
			if fields {
				most, widest = 4, 80
			}
			if len(lines) > most || len(form.Fields) > maxFields || form.Whole ||
				!strings.HasPrefix(lines[len(lines)-1], "NOT SHOWN: ") {
				t.Errorf("%s, fields %v: %d lines, %d fields, %q", name, fields, len(lines), len(form.Fields),
					form.Message)
			}
			for _, line := range lines {
				if columns(line) > widest {
					t.Errorf("%s, fields %v: %d columns: %s", name, fields, columns(line), line)
				}
			}
		}
	}
	facts := thirteen
	facts.Args = []string{strings.Repeat("x", 9*fieldColumns)}
	facts.Stdin = nil
	if form := facts.Form(true); !strings.HasSuffix(form.Message, "NOT SHOWN: 2 characters of arguments") {
		t.Errorf("message %q", form.Message)
	}
	facts.Args = nil
	if form := facts.Form(true); !strings.Contains(form.Message, "\nit gets no arguments and no stdin") {
		t.Errorf("message %q", form.Message)
	}
}

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"a b":                                    `a b`,
		"ünï 漢字":                                 `ünï 漢字`,
		"a\nb\tc\x1b[K":                          `a\nb\tc\x1b[K`,
		"\u202eevil":                             `\u202eevil`,
		"a\u200bb\ufeff\u00a0\u2028\u3164\u2800": `a\u200bb\ufeff\u00a0\u2028\u3164\u2800`,
		"e\u0301":                                `e\u0301`,
		"\U000e0041":                             `\U000e0041`,
		"bad\xff\\n":                             `bad\xff\\n`,
		"\x00\x7f\u0085":                         `\x00\x7f\u0085`,
		"\ufffd":                                 `` + "\ufffd",
		"\u202a\u2066\u2069x":                    `\u202a\u2066\u2069x`,
	} {
		if got := Visible(text); got != want {
			t.Errorf("Visible(%q) = %s, want %s", text, got, want)
		}
	}
	if got := quote(`a" "b`); got != `"a\" \"b"` {
		t.Errorf("Quote = %s", got)
	}
}

// An answer may leave a text out, but not change it.
func TestEdited(t *testing.T) {
	form := thirteen.Form(true)
	same := map[string]any{"decision": "Run it once"}
	for _, field := range form.Fields {
		same[field.Name] = " " + field.Text
	}
	for name, tt := range map[string]struct {
		content map[string]any
		edited  bool
	}{
		"nothing":        {nil, false},
		"as it is":       {same, false},
		"a changed text": {map[string]any{"shown01": `"--help"`}, true},
		"an empty text":  {map[string]any{"shown02": ""}, true},
		"no text":        {map[string]any{"shown02": 7.0}, true},
	} {
		if got := form.Edited(tt.content); got != tt.edited {
			t.Errorf("%s: edited %v", name, got)
		}
	}
}
