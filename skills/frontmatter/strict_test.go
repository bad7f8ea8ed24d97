package frontmatter_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// The recorded verdicts of the reference validator, message by message. What a parser says about YAML
// is its own; where the reference crashes, the skill is invalid.
func TestValidateParity(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/skills-ref.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Label, Dir, File string
		Content          []byte `json:"content_base64"`
		Valid, Crash     bool
		Errors           []string
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		got := frontmatter.Validate(filepath.Base(c.Dir), c.File, c.Content)
		if c.Crash {
			if len(got) != 1 || got[0].Rule != frontmatter.RuleEncoding {
				t.Errorf("%s: %v, want %s", c.Label, got, frontmatter.RuleEncoding)
			}
			continue
		}
		if (len(got) == 0) != c.Valid || len(got) != len(c.Errors) {
			t.Errorf("%s: %v, the reference says %q", c.Label, got, c.Errors)
			continue
		}
		for i, v := range got {
			const invalid = "Invalid YAML in frontmatter: "
			same := v.Message == c.Errors[i] || strings.HasPrefix(v.Message, invalid) && strings.HasPrefix(c.Errors[i], invalid)
			if !same && c.Label != "slash" {
				t.Errorf("%s: %q, the reference says %q", c.Label, v.Message, c.Errors[i])
			}
			if v.Fix == "" || v.Line == 0 && v.Rule != frontmatter.RuleEncoding {
				t.Errorf("%s: %+v has no fix or line", c.Label, v)
			}
		}
	}
}

func TestValidateRules(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, dir, block string
		want             []string // rule and line
	}{
		{"valid", "x", "name: x\ndescription: d\n", nil},
		{"V8", "x", "name: x\ndescription: d\nb: 1\na: 2\n", []string{"V8 4"}},
		{"V9 missing", "x", "description: d\n", []string{"V9 1"}},
		{"V9 empty", "x", "description: d\nname: ' '\n", []string{"V9 3"}},
		{"V9 list", "x", "name:\n- x\ndescription: d\n", []string{"V9 2"}},
		{"V10 to V15", "y", "name: -A--_" + strings.Repeat("b", 60) + "\ndescription: d\n", []string{"V10 2", "V11 2", "V12 2", "V13 2", "V14 2", "V15 2"}},
		{"V16 missing", "x", "name: x\n", []string{"V16 1"}},
		{"V16 mapping", "x", "name: x\ndescription:\n  a: b\n", []string{"V16 3"}},
		{"V17", "x", "name: x\n\n# c\ndescription: " + strings.Repeat("é", 1025) + "\n", []string{"V17 5"}},
		{"V18 list", "x", "name: x\ndescription: d\ncompatibility:\n- a\n", []string{"V18 4"}},
		{"V18 long", "x", "name: x\ndescription: d\ncompatibility: " + strings.Repeat("c", 501) + "\n", []string{"V18 4"}},
		{"V18 empty", "x", "name: x\ndescription: d\ncompatibility:\n", nil},
		{"V18 default key", "x", "name: x\ndescription: d\ncompatibility: =\n", []string{"V18 4"}},
		{"all fields", "x", "a: b\n", []string{"V8 2", "V9 1", "V16 1"}},
		{"V7 scalar", "x", "text\n", []string{"V7 2"}},
		{"V7 list", "x", "\n- a\n", []string{"V7 3"}},
		{"V7 empty", "x", "", []string{"V7 1"}},
		{"flow", "x", "name: x\ndescription: d\nmetadata: {a: b}\n", []string{"V6 4"}},
		{"anchor", "x", "name: x\ndescription: &a d\n", []string{"V6 3"}},
		{"tag", "x", "name: !!str x\n", []string{"V6 2"}},
		{"alias", "x", "name: *x\n", []string{"V6 2"}},
		{"equal keys", "x", "name: x\ndescription: d\n'name': x\n", []string{"V6 4"}},
		{"colon", "x", "name: x\ndescription: a: b\n", []string{"V6 3"}},
		{"tab", "x", "name: x\ndescription: d\nmetadata:\n\ta: b\n", []string{"V6 5"}},
		{"tab after an empty line", "x", "name: x\ndescription: d\nmetadata:\n\n\ta: b\n", []string{"V6 6"}},
		{"open quote", "x", "name: x\ndescription: \"d\n", []string{"V6 3"}},
		{"escape", "x", "name: x\ndescription: \"\\q\"\n", []string{"V6 3"}},
		{"quoted text at the margin", "x", "name: x\ndescription: \"a\nb\"\n", nil},
		{"directive", "x", "%YAML 1.2\n", []string{"V6 2"}},
		{"document end", "x", "name: x\ndescription: d\n...\n", nil},
		{"second document", "x", "name: x\ndescription: d\n...\na: b\n", []string{"V6 5"}},
		{"uneven mappings", "x", "name: x\ndescription: d\nmetadata:\n  a:\n    b: c\n  d:\n      e: f\n", []string{"V6 8"}},
		{"uneven plain mappings", "x", "name: x\ndescription: d\nmetadata:\n  b: c\nlicense:\n   e: f\n", []string{"V6 7"}},
		{"merge key", "x", "name: x\ndescription: d\n<<:\n  foo: bar\n", nil},
		{"merge key with text", "x", "name: x\ndescription: d\n<<: foo\n", []string{"V6 4"}},
		{"list as a key", "x", "name: x\ndescription: d\n? - a\n: b\n", []string{"V6 4"}},
		{"long key", "x", "name: x\ndescription: d\n" + strings.Repeat("k", 1030) + ": v\n", []string{"V6 4"}},
		{"control character", "x", "name: x\ndescription: \ad\n", []string{"invalid-encoding 3"}},
		{"dashes end it", "x", "name: x\ndescription: a --- b: c\n", nil},
		{"surrogate", "x", "name: x\ndescription: \"\\ud83d\"\n", nil},
		{"separator characters around a name", "x", "name: \"\\x1cx\\x1f\"\ndescription: d\n", nil},
	}
	for _, test := range tests {
		data := []byte("---\n" + test.block + "---\nbody\n")
		var got []string
		for _, v := range frontmatter.Validate(test.dir, "SKILL.md", data) {
			got = append(got, fmt.Sprintf("%s %d", v.Rule, v.Line))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
		crlf := frontmatter.Validate(test.dir, "skill.md", []byte(strings.ReplaceAll(string(data), "\n", "\r\n")))
		if len(crlf) != len(test.want) {
			t.Errorf("%s with CRLF: %v, want %q", test.name, crlf, test.want)
		}
	}
	if got := frontmatter.Validate("x", "Skill.md", []byte("---\nname: x\ndescription: d\n---\n")); len(got) != 1 || got[0].Rule != "V3" {
		t.Errorf("Skill.md: %v, want V3", got)
	}
}

// Messages quote what foreign people wrote; on a terminal it must stay one harmless line.
func TestViolationsArePrintable(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"\\e[31mred", "a\\nb", "\\u202ertl", strings.Repeat("x", 100_000)} {
		for _, v := range frontmatter.Validate("d\x1b]", "SKILL.md", []byte("---\nname: \""+name+"\"\n\""+name[:min(len(name), 1000)]+"\": x\n---\n")) {
			if strings.ContainsFunc(v.String(), func(r rune) bool { return r < ' ' || r == 0x7f || r == '\u202e' }) || len(v.Message) > 2_000 {
				t.Errorf("%q", v.Message)
			}
		}
	}
}

// The time a hostile file takes is proportional to its size.
func TestValidateHostile(t *testing.T) {
	t.Parallel()
	const size = 1 << 19
	for name, block := range map[string]string{
		"keys":    manyKeys(size),
		"words":   "a: " + strings.Repeat("b ", size/2),
		"lines":   "a:\n" + strings.Repeat("  b\n", size/4),
		"breaks":  "a: |\n" + strings.Repeat("\n", size),
		"spaces":  "a: |\n" + strings.Repeat(" ", size),
		"entries": strings.Repeat("- ", size/2),
		"quoted":  "a: \"" + strings.Repeat("\\n\n", size/3) + "\"",
		"flow":    "a: " + strings.Repeat("[", size),
		"colons":  strings.Repeat(": ", size/2),
		"deeper":  strings.Repeat("? ", size/2),
	} {
		if got := frontmatter.Validate("x", "SKILL.md", []byte("---\n"+block+"\n---\n")); len(got) == 0 {
			t.Errorf("%s: valid", name)
		}
	}
}
