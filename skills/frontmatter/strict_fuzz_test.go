package frontmatter

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// FuzzVerdicts holds the three verdicts to each other: what is strict loads, what is loaded as it is
// has no repairs, and the strict verdict of a scan is that of Validate.
func FuzzVerdicts(f *testing.F) {
	for _, seed := range []string{
		"---\nname: x\ndescription: d\n---\nb", "---\nname: x\ndescription: a --- b: c\n", "---\r\nname: x\r\ndescription: >-\r\n  a\r\n\r\n  b\r\n---\r\n", "\ufeff---\nname: x\n---\nText.",
		"---\nname: x\ndescription: d\nmetadata:\n  a: \"1\"\n  b:\n  - c\n  - d: e\n---# T\n", "---\nname: 'x'\ndescription: \"\\u00e9\\\n  b\"\n<<:\n  a: b\n...\n---", "---\nname: x\ndescription: d: e\nk: {a: [b, 'c'], \"d\":1}\n---\n",
		"---\nname: a\ndescription: **b**\nmore\n\n- c\nx: &a b\n---\n", "---\nname: a\nx:\n\t- b\n? a\n: b\n\u2028: c\u0085\n---\nT", "---\ndescription: |2+\n   a\n\n# c\nname: x # y\n---- z", "---\n# T\ntext\n", "---\nname: x\ndescription: \"a\nb\"\n---\n", "---\na: \"\\ud83d\\ude00\"\n---\nx",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		violations := Validate("x", "SKILL.md", data)
		for _, v := range violations {
			if v.Message == "" || v.Fix == "" || v.Line < 0 || v.Line > 2+bytes.Count(data, []byte("\n"))+bytes.Count(data, []byte("\r")) {
				t.Errorf("violation %+v", v)
			}
		}
		doc, err := Parse(data)
		if err != nil {
			// The reference has no limits, takes null for a word, and lets the body hold anything.
			excused := len(data) > MaxSize || bytes.IndexByte(data, 0) >= 0 || err.(*Error).Kind == NoDescription
			if len(violations) == 0 && !excused && !strings.Contains(err.Error(), "no closing line") {
				t.Errorf("strict, but not loaded: %v", err)
			}
			return
		}
		if strict := doc.StrictName == "x"; strict != (len(violations) == 0) {
			t.Errorf("strict in %q, Validate says %v", doc.StrictName, violations)
		}
		if !json.Valid(doc.Fields.JSON) {
			t.Errorf("JSON %s", doc.Fields.JSON)
		}
		if doc.BodyOffset != BodyOffset(data) || !bytes.Equal(data[doc.BodyOffset:], doc.Body) {
			t.Errorf("body at %d and %d", doc.BodyOffset, BodyOffset(data))
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"---\nname: a\ndescription: b\n---\nBody.\n", "---\n{{},<<}\n---\n", "---\na: &a [*a]\n---\n", "---\nname: a: b\ndescription: > x\n---\ny", "\xef\xbb\xbf---\r\nname: 1\r\n---\r\nt", "text", "---\n? a\n: b\n---\n",
		"---\na: !!str 1\nb: 0x1F\n\"\\0\": |\n  x\n---\n", "---\ndescription: [x] y\n---\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := Parse(data)
		if err != nil {
			return
		}
		if !json.Valid(doc.Fields.JSON) || !json.Valid(doc.Fields.Plain()) {
			t.Errorf("JSON %q, plain %q", doc.Fields.JSON, doc.Fields.Plain())
		}
		if doc.Fields.Description == "" || !utf8.ValidString(doc.Fields.Description) {
			t.Errorf("description %q", doc.Fields.Description)
		}
		if doc.BodyOffset != BodyOffset(data) || string(data[doc.BodyOffset:]) != string(doc.Body) {
			t.Errorf("body at %d, %d", doc.BodyOffset, BodyOffset(data))
		}
		for _, d := range doc.Repairs {
			if strings.ContainsAny(d.Reason, "\n\r") {
				t.Errorf("repair %q", d.Reason)
			}
		}
	})
}

// FuzzName holds the rules for names to what they promise.
func FuzzName(f *testing.F) {
	for _, seed := range []string{"a", "a-b", "A", "-a", "a--b", "ａ", "²", "Ⅷ", "навык", "cafe\u0301", " a ", "\x1ca", "İ", "ß", strings.Repeat("a", 65)} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, name, dir string) {
		var rules []string
		checkName(strictField{key: "name", line: 2, text: name}, dir, func(rule string, _ int, _, _ string, _ ...any) { rules = append(rules, rule) })
		plain := Publishable(name)
		if plain && dir == name && len(rules) > 0 {
			t.Errorf("%q breaks %v", name, rules)
		}
		if len(rules) > 0 {
			return
		}
		n := norm.NFKC.String(strip(name))
		if n == "" || len([]rune(n)) > MaxName || strings.ToLower(n) != n || strings.ContainsAny(n, "/\\. \x00") || norm.NFKC.String(dir) != n {
			t.Errorf("%q is a name in %q", name, dir)
		}
	})
}

// FuzzJSON proves that every frontmatter that loads is JSON which decodes to what encodes alike, keys
// in order and once each.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{"a: 1\nb: [x, 1.5, -0, 1e400, null]\n", "a: {\"b\":\"\\u0000\\u2028\"}\n", "1: x\n1.0: y\n", "a: \"\\ud83d\\ude00\"\nb: .nan\n", "a:\n- - 'x'\n  - y: z\n", "a: 0x1F\nb: 0o17\nc: 12345678901234567890\n~: 5e-324\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, block string) {
		doc, err := Parse([]byte("---\n" + block + "\n---\nText.\n"))
		if err != nil {
			return
		}
		raw := doc.Fields.JSON
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil || compact.String() != string(raw) {
			t.Fatalf("%s is no compact JSON: %v", raw, err)
		}
		var whole any
		if err := json.Unmarshal(raw, &whole); err != nil {
			t.Fatal(err)
		}
		once, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		var again any
		if err := json.Unmarshal(once, &again); err != nil {
			t.Fatal(err)
		}
		if twice, err := json.Marshal(again); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s becomes %s, %v", once, twice, err)
		}
		var keys []string
		for key, value := range doc.Fields.fields() {
			if slices.Contains(keys, key) || !bytes.Equal(value, doc.Fields.Value(key)) {
				t.Errorf("%s has %q twice", raw, key)
			}
			keys = append(keys, key)
		}
	})
}
