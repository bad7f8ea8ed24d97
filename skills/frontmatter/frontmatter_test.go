package frontmatter_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// The values are those the JavaScript package yaml 2.8 gives, which verifiers use.
func TestFrontmatterJSON(t *testing.T) {
	t.Parallel()
	tests := []struct{ yaml, want string }{
		{"a: 1", `1`}, {"a: 0777", `777`}, {"a: 0o17", `15`}, {"a: 0xff", `255`}, {"a: 0xFF", `255`},
		{"a: 0b1", `"0b1"`}, {"a: 1_000", `"1_000"`},
		{"a: 1.0", `1`}, {"a: 1.50", `1.5`}, {"a: 1e3", `1000`}, {"a: 1e21", `1e+21`}, {"a: .5", `0.5`},
		{"a: 5.", `5`}, {"a: -0", `0`}, {"a: +7", `7`},
		{"a: -0x1", `"-0x1"`}, {"a: 1e", `"1e"`}, {"a: .", `"."`}, {"a: -", `[null]`},
		{"a: 1.2.3", `"1.2.3"`}, {"a: 1e999", `null`},
		{"a: .inf", `null`}, {"a: -.INF", `null`}, {"a: .NaN", `null`},
		{"a: 12345678901234567890", `12345678901234567000`},
		{"a: yes", `"yes"`}, {"a: no", `"no"`}, {"a: on", `"on"`}, {"a: off", `"off"`}, {"a: y", `"y"`},
		{"a: true", `true`}, {"a: True", `true`}, {"a: FALSE", `false`},
		{"a: tRUE", `"tRUE"`}, {"a: null", `null`}, {"a: ~", `null`}, {"a:", `null`}, {"a: Null", `null`},
		{"a: nULL", `"nULL"`}, {`a: ""`, `""`}, {"a: 'true'", `"true"`},
		{"a: 2024-01-01", `"2024-01-01"`}, {"a: 2001-12-14t21:59:43.10-05:00",
			`"2001-12-14t21:59:43.10-05:00"`}, {"a: 190:20:30", `"190:20:30"`}, {"a: 12:30", `"12:30"`},
		{"a: !!str 12", `"12"`}, {"a: |\n  x\n  y\n", `"x\ny\n"`}, {"a: >-\n  x\n  y\n", `"x y"`},
		{`a: "\x41\u00e9\t"`, `"Aé\u0009"`}, {`a: "q\"b\\"`, `"q\"b\\"`},
		{"a: [1, x, null]", `[1,"x",null]`}, {"a: {z: 1, b: 2}", `{"z":1,"b":2}`},
		{"a:\n  1: x\n  1.0e1: y\n  true: z\n  ~: n", `{"1":"x","10":"y","true":"z","":"n"}`},
		{"a: ünï", `"ünï"`}, {"a: <&>", `"<&>"`},
	}
	for _, test := range tests {
		doc, err := frontmatter.Parse([]byte("---\n" + test.yaml + "\n---\nbody\n"))
		if test.yaml == "a: -" {
			continue // the library reads a sequence there, and JavaScript refuses it
		}
		if err != nil {
			t.Errorf("%q: %v", test.yaml, err)
			continue
		}
		if got := string(doc.Fields.JSON); got != `{"a":`+test.want+`}` {
			t.Errorf("%q = %s, want the value %s", test.yaml, got, test.want)
		}
		if got := string(doc.Fields.Value("a")); got != test.want {
			t.Errorf("Value of %q = %s, want %s", test.yaml, got, test.want)
		}
	}
}

func TestFrontmatterFields(t *testing.T) {
	t.Parallel()
	doc, err := frontmatter.Parse([]byte(`---
name: pdf
description: >
  Reads
  PDF.
license: MIT
compatibility: 12
when_to_use: often
allowed-tools: Bash(git add:*, x), Read  Write
disable-model-invocation: "yes"
user-invocable: no
version: 3
triggers: [a, b]
metadata:
  author: someone
  version: 1.0
  tags: x  y
  requires: jq git
  vendor: {requires: {bins: [curl], env: [TOKEN]}}
mixed: [1, null]
---
# Title
`))
	if err != nil || doc.Repaired() {
		t.Fatalf("Parse = %v, %v", doc, err)
	}
	f := doc.Fields
	f.JSON = nil
	want := frontmatter.Fields{
		Name: "pdf", Description: "Reads PDF.", License: "MIT", Compatibility: "12", WhenToUse: "often",
		AllowedTools: []string{"Bash(git add:*, x)", "Read", "Write"}, AllowedToolsDeclared: true,
		DisableModelInvocation: true, UserInvocable: false, Author: "someone", Version: "1.0",
		Tags:     []string{"x", "y"},
		Requires: frontmatter.Requires{Commands: []string{"jq", "git", "curl"}, Env: []string{"TOKEN"}},
	}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	const plain = `{"name":"pdf","description":"Reads PDF.\n","license":"MIT","when_to_use":"often","allowed-tools":"Bash(git add:*, x), Read  Write",` +
		`"disable-model-invocation":"yes","user-invocable":"no","triggers":["a","b"]}`
	if got := string(doc.Fields.Plain()); got != plain {
		t.Errorf("Plain = %s\nwant %s", got, plain)
	}
	if got := doc.Fields.Value("missing"); got != nil {
		t.Errorf("Value(missing) = %s, want nil", got)
	}
}

func TestAllowedTools(t *testing.T) {
	t.Parallel()
	for yaml, want := range map[string][]string{
		"x: y": nil, "allowed-tools:": nil, `allowed-tools: ""`: {}, "allowed-tools: []": {},
		"allowed-tools: {a: b}": {}, "allowed-tools: a": {"a"},
		"allowed-tools: a b": {"a", "b"}, "allowed-tools: a,b": {"a", "b"},
		"allowed-tools: [a, B(c d)]": {"a", "B(c d)"}, "allowed-tools: A(b c) d": {"A(b c)", "d"},
		"allowed-tools: 'A(b c'": {"A(b c"}, "allowed-tools: 'A) b'": {"A)", "b"},
	} {
		doc, err := frontmatter.Parse([]byte("---\n" + yaml + "\n---\nbody\n"))
		if err != nil || !cmp.Equal(doc.Fields.AllowedTools, want) ||
			doc.Fields.AllowedToolsDeclared != (want != nil) {
			t.Errorf("%q = %#v, %v; want %#v", yaml, doc, err, want)
		}
	}
}

func TestFrontmatterRepairs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, data, description, body string
		lines                         []int // of the repairs
	}{
		{"as it is", "---\nname: a\ndescription: d\n---\nB\n", "d", "B\n", nil},
		{"CRLF", "---\r\nname: a\r\ndescription: d\r\n---\r\nB\r\n", "d", "B\r\n", nil},
		{"byte order mark", "\xef\xbb\xbf---\nname: a\ndescription: d\n---\nB\n", "d", "B\n", nil},
		{"blank lines above", "\n \n---\nname: a\ndescription: d\n---\nB\n", "d", "B\n", []int{1}},
		{"a comment above", "<!-- licence\nof it -->\n---\nname: a\ndescription: d\n---\nB\n", "d", "B\n", []int{1}},
		{"a comment and a repair", "# x\n---\nname: a\ndescription: Use when: x\n---\nB\n", "Use when: x", "B\n", []int{1, 4}},
		{"a rule below a heading", "# x\n\n---\nsome text\n---\nB\n", "some text", "# x\n\n---\nsome text\n---\nB\n", []int{1, 1}},
		{"text above", "Hello\n---\nname: a\n---\nB\n", "Hello", "Hello\n---\nname: a\n---\nB\n", []int{1, 1}},
		{"blanks behind the fences", "--- \nname: a\ndescription: d\n---\t\nB\n", "d", "B\n", nil},
		{"no newline at the end", "---\nname: a\ndescription: d\n---", "d", "", nil},
		{"colon", "---\nname: a\ndescription: Use when: x\n---\nB\n", "Use when: x", "B\n", []int{3}},
		{"colon and quote", "---\nname: a\ndescription: It's for: x\n---\nB\n", "It's for: x", "B\n",
			[]int{3}},
		{"colon in a continued value", "---\nname: a\ndescription: Use\n  when: x\n  and y\nlicense: " +
			"MIT\n---\nB\n", "Use when: x and y", "B\n", []int{3}},
		{"star", "---\nname: a\ndescription: *bold* text\n---\nB\n", "*bold* text", "B\n", []int{3}},
		{"backquote", "---\nname: a\ndescription: `x` is\n---\nB\n", "`x` is", "B\n", []int{3}},
		{"at", "---\nname: a\ndescription: @x\n---\nB\n", "@x", "B\n", []int{3}},
		{"percent", "---\nname: a\ndescription: %x\n---\nB\n", "%x", "B\n", []int{3}},
		{"bracket", "---\nname: a\ndescription: [Beta] reads\n---\nB\n", "[Beta] reads", "B\n", []int{3}},
		{"text behind >", "---\nname: a\ndescription: > Reads\n  files.\n---\nB\n", "Reads files.", "B\n",
			[]int{3}},
		{"two lines", "---\nname: a: b\ndescription: c: d\n---\nB\n", "c: d", "B\n", []int{2, 3}},
		{"no frontmatter", "# Title\n\nFirst\nparagraph.\n\nSecond.\n", "First paragraph.",
			"# Title\n\nFirst\nparagraph.\n\nSecond.\n", []int{1, 1}},
		{"no description", "---\nname: a\n---\n<!-- c\nd -->\n# T\n```\ncode\n```\nText.\n", "Text.",
			"<!-- c\nd -->\n# T\n```\ncode\n```\nText.\n", []int{1}},
		{"description is a list", "---\nname: a\ndescription: [x]\n---\nText.\n", "Text.", "Text.\n",
			[]int{1}},
		{"rules around text", "---\n\n**Title** of it\n\n- a list\n---\nMore.\n", "**Title** of it",
			"---\n\n**Title** of it\n\n- a list\n---\nMore.\n", []int{1, 1}},
		{"a field that is broken", "---\nname: a\ndescription: d\nmetadata: {a: [b}\nlicense: MIT\n---\nB\n",
			"d", "B\n", []int{4}},
		{"text in a field that is a list", "---\nname: a\ndescription: d\nread_when:\n  - \"x\" in " +
			"y\n---\nB\n", "d", "B\n", []int{4}},
		{"empty block", "---\n---\nText.\n", "Text.", "Text.\n", []int{1}},
		{"number", "---\nname: a\ndescription: 1.0\n---\nB\n", "1.0", "B\n", nil},
		{"quotes in quotes", "---\nname: a\ndescription: \"say \"x\" now\"\n---\nB\n", "say \"x\" now", "B\n",
			[]int{3}},
		{"lines at the margin", "---\nname: a\ndescription: **Bold**\n\n- one: x\n- two\nlicense: " +
			"MIT\n---\nB\n", "**Bold** - one: x - two", "B\n", []int{3}},
		{"quoted lines at the margin", "---\nname: a\ndescription: \"one\ntwo\"\n---\nB\n", "one two", "B\n",
			[]int{4}},
		{"anchor", "---\nname: a\ndescription: &more text\n---\nB\n", "&more text", "B\n", []int{3}},
		{"tag", "---\nname: a\ndescription: ![image](x) and text\n---\nB\n", "![image](x) and text", "B\n",
			[]int{3}},
		{"placeholder", "---\nname: a\ndescription: {{WHAT}} it does\n---\nB\n", "{{WHAT}} it does", "B\n",
			[]int{3}},
		{"open bracket", "---\nname: a\ndescription: [Extended: text\n---\nB\n", "[Extended: text", "B\n",
			[]int{3}},
		{"colon on the next line", "---\nname: a\ndescription:\n  one: two: three\n---\nB\n",
			"one: two: three", "B\n", []int{3}},
		{"colon in a nested value", "---\nname: a\ndescription: d\nmetadata:\n  author: me: you\n---\nB\n",
			"d", "B\n", []int{5}},
		{"a mapping too deep to repair", "---\nname: a\nmetadata:\n  a:\n    b:\n      c:\n        d: e: f\n" +
			"description: g: h\n---\nB\n", "g: h", "B\n", []int{3, 8}},
		{"a mapping not too deep to repair", "---\nname: a\nmetadata:\n  a:\n    b:\n      c: e: f\n" +
			"description: g: h\n---\nB\n", "g: h", "B\n", []int{6, 7}},
		{"tabs", "---\nname: a\ndescription: d\ntags:\n\t- b\n---\nB\n", "d", "B\n", []int{5}},
		{"control character", "---\nname: a\nemoji: \x01\ndescription: d\n---\nB\n", "d", "B\n", []int{3}},
		{"text behind the end", "---\nname: a\ndescription: d\n---# T\nB\n", "d", "# T\nB\n", []int{4}},
		{"four dashes at the end", "---\nname: a\ndescription: d\n----\nB\n", "d", "B\n", []int{4}},
		{"never closed", "---\nname: a\ndescription: d\n\n# T\n\n---\nB\n", "d", "B\n", nil},
		{"never closed, no rule", "---\nname: a\ndescription: d\n\n# T\nB\n", "d", "# T\nB\n", []int{5}},
		{"rule instead of frontmatter", "---\n\nText here.\n", "Text here.", "---\n\nText here.\n",
			[]int{1, 1}},
		{"one fault beside another", "---\nname: a\ndescription: b: c\nmetadata:\n  x: \"one\n " +
			"two\"\n---\nB\n", "b: c", "B\n", []int{3, 6}},
		{"explicit key", "---\nname: a\n? description\n: d\n---\nB\n", "d", "B\n", []int{3}},
		{"ends in the middle of a line", "---\nname: a\ndescription: d\nlicense: x --- {\n---\nB\n", "d",
			"B\n", nil},
		{"duplicate key", "---\nname: a\ndescription: d\nname: b\n---\nB\n", "d", "B\n", []int{4}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			doc, err := frontmatter.Parse([]byte(test.data))
			if err != nil {
				t.Fatal(err)
			}
			var lines []int
			for _, r := range doc.Repairs {
				lines = append(lines, r.Line)
			}
			if doc.Fields.Description != test.description || string(doc.Body) != test.body ||
				!cmp.Equal(lines, test.lines) {
				t.Errorf("description %q, body %q, repairs at %v; want %q, %q, %v", doc.Fields.Description,
					doc.Body, lines, test.description, test.body, test.lines)
			}
			if doc.Repaired() != (len(test.lines) > 0) {
				t.Errorf("Repaired = %v", doc.Repaired())
			}
			if got := frontmatter.BodyOffset([]byte(test.data)); got != doc.BodyOffset ||
				test.data[got:] != test.body {
				t.Errorf("BodyOffset = %d, want %d", got, doc.BodyOffset)
			}
		})
	}
}

func TestFrontmatterRefused(t *testing.T) {
	t.Parallel()
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := range 9 {
		bomb.WriteString(strings.NewReplacer("N", string(rune('1'+i)), "P",
			string(rune('0'+i))).Replace("aN: &aN [*aP,*aP,*aP,*aP,*aP,*aP,*aP,*aP,*aP]\n"))
	}
	tests := []struct {
		name, block string
		kind        frontmatter.Kind
		line        int
	}{
		{"map as a key", "{{},<<}", frontmatter.Syntax, 2},
		{"alias bomb", bomb.String(), frontmatter.Syntax, 2},
		{"alias to itself", "a: &a [*a]", frontmatter.Syntax, 2},
		{"anchor", "name: a\nb: &x y", frontmatter.Syntax, 3},
		{"merge key", "a: 1\n<<: {b: 1}", frontmatter.Syntax, 3},
		{"tag", "a: !!binary aGk=", frontmatter.Syntax, 2},
		{"own tag", "a: !x y", frontmatter.Syntax, 2},
		{"python tag", "a: !!python/object:os.system x", frontmatter.Syntax, 2},
		{"list", "- a\n- b", frontmatter.Syntax, 2},
		{"tools that are broken", "name: a\ndescription: d\nallowed-tools: [a", frontmatter.Syntax, 4},
		{"a flag that is broken", "name: a\ndescription: d\ndisable-model-invocation: {", frontmatter.Syntax,
			4},
		{"deep", "a: " + strings.Repeat("[", 300) + strings.Repeat("]", 300), frontmatter.Syntax, 2},
		{"very deep", "a: " + strings.Repeat("{a: ", 15_000), frontmatter.Syntax, 2},
		{"many values", "a: [" + strings.Repeat("1,", 12_000) + "]", frontmatter.Syntax, 2},
		{"many values in one line of wide characters", "a: [" + strings.Repeat("é,", 12_000) + "]",
			frontmatter.Syntax, 2},
		{"keys of 1 MiB", manyKeys(1 << 20), frontmatter.Syntax, 2},
		{"one key of 1 MiB", strings.Repeat("k", 1<<20) + ": v", frontmatter.Syntax, 2},
		{"tab and nothing clear", "a:\n\t- b\n\t c d\n\te: f", frontmatter.Syntax, 3},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var err error
			quick(t, func() { _, err = frontmatter.Parse([]byte("---\n" + test.block + "\n---\nbody\n")) })
			invalid, ok := errors.AsType[*frontmatter.Error](err)
			if !ok || invalid.Kind != test.kind || invalid.Line != test.line {
				t.Errorf("Parse = %#v, want kind %d at line %d", err, test.kind, test.line)
			}
		})
	}
	for data, want := range map[string]frontmatter.Kind{
		"---\nname: a\n": frontmatter.Syntax, "---": frontmatter.Syntax, "": frontmatter.NoDescription,
		"# Only\n## headings\n": frontmatter.NoDescription,
		"---\nname: a\n---\n":   frontmatter.NoDescription, "text\x00": frontmatter.Encoding,
		"\xff\xfe": frontmatter.Encoding,
	} {
		_, err := frontmatter.Parse([]byte(data))
		if invalid, ok := errors.AsType[*frontmatter.Error](err); !ok || invalid.Kind != want {
			t.Errorf("Parse(%q) = %v, want kind %d", data, err, want)
		}
	}
}

// manyKeys is a block of distinct keys.
func manyKeys(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		b.WriteString("key" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + strings.Repeat("y", i%5) +
			": v\n")
	}
	return b.String()
}

// A block of thousands of entries that each need a repair must cost no more than one that needs none.
func TestRepairIsBounded(t *testing.T) {
	t.Parallel()
	block := strings.Repeat("a: b: c\n", 8_000)
	if doc, err := frontmatter.Parse([]byte("---\n" + block + "---\nbody\n")); err == nil {
		t.Errorf("Parse = %d repairs, want an error", len(doc.Repairs))
	}
	doc, err := frontmatter.Parse([]byte("---\n" + strings.Repeat("a: b: c\n", 150) + "---\nbody\n"))
	if err != nil || !doc.Repaired() || len(doc.Repairs) > 50 {
		t.Errorf("Parse = %+v, %v; want repairs", doc, err)
	}
}

// quick fails unless do takes a few seconds of the processor at most, in this goroutine.
func quick(t *testing.T, do func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := spent(t)
	do()
	if took := spent(t) - begin; took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestRepairsAreNamed: the reason of a repair says what was repaired, and its fix what to do about it.
func TestRepairsAreNamed(t *testing.T) {
	t.Parallel()
	const quotes, start = "put the value in quotes", "begin every key at the start of its line"
	tests := []struct {
		block, description string
		line               int
		reason, fix        string
	}{
		{" name: x\ndescription: wanted", "wanted", 2, "the first key is indented", start},
		{"# note\n   name: x\n   description: >\n     wanted\n     too\nlicense: MIT", "wanted too", 3, "the first key is indented", start},
		{"  description: wanted\nmetadata:\n  a: b", "wanted", 2, "the first key is indented", start},
		{"name: x\ndescription: use when: wanted", "use when: wanted", 3, "the value of description needs quotes", quotes},
		{"description: wanted\nlicense: a: b", "wanted", 3, "the value of license needs quotes", quotes},
		{"description: wanted\ndescription: late", "wanted", 3, "duplicate key", "remove one of the two"},
		{"name: x", "Body.", 1, "there is no description", "add description:"},
		{"description: wanted\nsecretive: a: b", "wanted", 3, "the value needs quotes", quotes},
	}
	for _, test := range tests {
		doc, err := frontmatter.Parse([]byte("---\n" + test.block + "\n---\nBody.\n"))
		if err != nil || len(doc.Repairs) != 1 {
			t.Errorf("%q: %+v, %v", test.block, doc, err)
			continue
		}
		r := doc.Repairs[0]
		if doc.Fields.Description != test.description || r.Line != test.line || !strings.HasPrefix(r.Reason, test.reason) ||
			!strings.HasPrefix(frontmatter.Fix(r.Reason), test.fix) {
			t.Errorf("%q: %q, %+v, fix %q; want %+v", test.block, doc.Fields.Description, r, frontmatter.Fix(r.Reason), test)
		}
	}
	// Two keys that are indented alike are a mapping; text below is not a key.
	doc, err := frontmatter.Parse([]byte("---\n  name: x\n  description: wanted\n---\nBody.\n"))
	if err != nil || len(doc.Repairs) != 0 || doc.Fields.Description != "wanted" {
		t.Errorf("%+v, %v", doc, err)
	}
	_, err = frontmatter.Parse([]byte("---\ndescription: use when: this\nallowed-tools: *\n---\nBody.\n"))
	if err == nil || !strings.Contains(err.Error(), "line 3: the value of allowed-tools begins with *") {
		t.Errorf("error %v, want the line and the character", err)
	}
}

// What is no text is named with its line, so that its author finds it.
func TestNotText(t *testing.T) {
	for data, want := range map[string]string{
		"\xff\xfe-\x00-\x00":                         "line 1: the file is UTF-16 text, not UTF-8",
		"---\nname: a\ndescription: \xb0\xa1\n---\n": "line 3: the file is not UTF-8 text: the byte 0xB0",
		"---\nname: a\n---\nx\n\xe2\x82":             "line 5: the file is not UTF-8 text: the byte 0xE2",
		"a\x00b":                                     "line 1: the file is not UTF-8 text: a NUL byte",
	} {
		if _, err := frontmatter.Parse([]byte(data)); err == nil || err.Error() != want {
			t.Errorf("Parse(%q) = %v, want %s", data, err, want)
		}
	}
	got := frontmatter.Validate("a", "SKILL.md", []byte("---\nname: \xff\n---\n"))
	if len(got) != 1 || got[0].Line != 2 || got[0].Message != "The file is not UTF-8 text: the byte 0xFF" {
		t.Errorf("Validate = %+v", got)
	}
}
