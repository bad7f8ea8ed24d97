package frontmatter

import (
	"strings"
	"testing"
)

// slowly parses a block without parsePlain, with the library.
func slowly(block string) (string, error) {
	var found notes
	v, err := parseYAML(block, 1, &found)
	if err != nil {
		return "", err
	}
	if len(found.repairs) > 0 {
		return "repaired", nil
	}
	root, read, failed := strictRoot(block)
	if failed != nil {
		return failed.Message, nil
	}
	if strict := read.valueOf(root); describe(v) != describe(&strict) {
		return "the lenient reader has " + describe(v) + ", the strict one " + describe(&strict), nil
	}
	return describe(v), nil
}

// describe writes a value with the types and sources of its scalars, which JSON does not show.
func describe(v *value) string {
	var b strings.Builder
	b.Write(v.appendJSON(nil))
	var walk func(v *value)
	walk = func(v *value) {
		b.WriteString(" " + v.source)
		b.WriteByte(byte('0' + v.kind))
		for i := range v.items {
			walk(&v.items[i])
		}
	}
	walk(v)
	return b.String()
}

func TestParsePlain(t *testing.T) {
	tests := []struct {
		name, block string
		plain       bool
	}{
		{"usual", "name: a\ndescription: What, (it) is [for] — 10% 'x'.\nlicense: MIT\nmetadata:\n  author: b\n  version: \"1.0\"\nend: true\n", true},
		{"list", "allowed-tools:\n  - Bash(git add:*)\n  - Read\nname: a\n", true},
		{"list without indentation", "tags:\n- a\n- 12\nname: a\n", true},
		{"types", "a: 1\nb: 0777\nc: 1_000\nd: null\ne:\nf: yes\ng: 2024-01-01\nh: .5\ni: 'x'\nj: \"\"\nk: TRUE\n", true},
		{"no newline at the end", "name: a", true},
		{"colon in a word", "a: https://example.org/x:y\n", true},
		{"hash in a word", "a: c#\n", true},
		{"null at the end", "a:\n", true},
		{"null in a mapping", "a:\n  b:\n  c: 1\n", true},
		{"colon", "a: b: c\n", false},
		{"comment", "a: b # c\n", false},
		{"continued", "a: b\n  c\n", false},
		{"block", "a: >\n  b\n", false},
		{"flow", "a: [b]\n", false},
		{"escape", "a: \"\\n\"\n", false},
		{"doubled quote", "a: 'it''s'\n", false},
		{"blank line", "a: b\n\nc: d\n", false},
		{"tab", "a:\tb\n", false},
		{"CRLF", "a: b\r\n", false},
		{"equal keys", "a: b\na: c\n", false},
		{"null key", "null: b\n", false},
		{"boolean key", "True: b\n", false},
		{"anchor", "a: &b c\n", false},
		{"three levels", "a:\n  b:\n    c: d\n", false},
		{"mapping in a list", "a:\n  - b: c\n", false},
		{"list in a list", "a:\n  - - b\n", false},
		{"mappings indented differently", "a:\n  b: c\nd:\n   e: f\n", false},
		{"indentation changes", "a:\n  b: c\n   d: e\n", false},
		{"indented", " a: b\n", false},
		{"document", "a: b\n...\n", false},
		{"next line", "a: b\u0085c: d\n", false},
		{"empty", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, ok := parsePlain(tt.block)
			if ok != tt.plain {
				t.Fatalf("parsePlain = %v, want %v", ok, tt.plain)
			}
			if want, err := slowly(tt.block); ok && (err != nil || describe(v) != want) {
				t.Errorf("parsePlain = %s, YAML says %s, %v", describe(v), want, err)
			}
		})
	}
}

// FuzzParsePlain proves that what parsePlain reads, YAML reads alike.
func FuzzParsePlain(f *testing.F) {
	for _, seed := range []string{
		"name: a\ndescription: b c\nmetadata:\n  author: b\n  version: \"1.0\"\n", "a:\n  - b\n  - 'c'\nd: e\n", "a:\n- b\n", "a:\nb: 1\n", "a: .\n", "a: ...\n",
		"a:  b  \n", "a: \"b\" \n", "a:\n b: c\nd:\n   e: f\n", "ä: é\na: ü\u00a0\n", "a: b:c\n", "a: 1e3\nb: 0x1F\n", "a: (b\n", "a-b_c: _\n", "a: '\"'\n", "a:\n  b: c\n d: e\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, block string) {
		v, ok := parsePlain(block)
		if !ok {
			return
		}
		if want, err := slowly(block); err != nil || describe(v) != want {
			t.Errorf("parsePlain(%q) = %s, YAML says %s, %v", block, describe(v), want, err)
		}
	})
}

func BenchmarkParseFrontmatter(b *testing.B) {
	const usual = "name: a-skill\ndescription: Convert reports between formats and check every figure against its source.\nlicense: MIT\nmetadata:\n  author: b\n  version: \"1.0\"\n"
	for name, block := range map[string]string{"plain": usual, "yaml": usual + "# comment\n"} {
		data := []byte("---\n" + block + "---\nBody.\n")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
