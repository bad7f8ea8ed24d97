package skills_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills"
)

func TestCleanPath(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a": "a", "a/b": "a/b", "./a": "a", "a//b": "a/b", "a/./b": "a/b", "a/": "a", " a ": " a ", "a b/c": "a b/c", "ü": "ü", "%2e%2e": "%2e%2e", "a?b#c": "a?b#c",
		"b:c.txt": "b:c.txt", "scripts/b:c.ts": "scripts/b:c.ts", "...": "...", ".a": ".a", "-": "-", "a:b/c": "a:b/c", "http": "http",
	} {
		if got, err := skills.CleanPath(in); err != nil || got != want {
			t.Errorf("CleanPath(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", ".", "./", "/", "/a", "//a", "..", "a/..", "a/../b", "../a", "./../a", `a\b`, `..\a`, `C:\a`, "C:/a", "c:/a", "a\x00", "a\nb", "a\x7f", "a\u0085", "a\u2028b",
		"\xff", "file:///etc/passwd", "file:/etc/passwd", "http://x/y", "skill://a/b", "x+y:/z", "data:text/plain,x", "javascript:x", "./file:///x", strings.Repeat("a", 5000)} {
		if got, err := skills.CleanPath(in); !isPathError(err) {
			t.Errorf("CleanPath(%q) = %q, %v; want *PathError", in, got, err)
		}
	}
	if _, err := skills.CleanScriptPath("references/x.md"); err == nil {
		t.Error("CleanScriptPath accepts a text outside scripts/")
	}
}

func TestInDir(t *testing.T) {
	for _, tt := range []struct {
		dir, at string
		want    bool
	}{
		{".", "a/b", true},
		{".", ".", true},
		{"a", "a", true},
		{"a", "a/b", true},
		{"a/b", "a", false},
		{"a", "ab", false},
		{"a", ".", false},
		{"a", "b/a", false},
	} {
		if got := skills.InDir(tt.dir, tt.at); got != tt.want {
			t.Errorf("InDir(%q, %q) = %t", tt.dir, tt.at, got)
		}
	}
}

func TestURI(t *testing.T) {
	t.Parallel()
	sk := &skills.Skill{Path: "acme/pdf tools"}
	for file, want := range map[string]string{
		"SKILL.md": "skill://acme/pdf%20tools/SKILL.md", "a/ü#?.md": "skill://acme/pdf%20tools/a/%C3%BC%23%3F.md", "100%.txt": "skill://acme/pdf%20tools/100%25.txt",
		"%2F": "skill://acme/pdf%20tools/%252F", "a:b@c": "skill://acme/pdf%20tools/a%3Ab%40c",
	} {
		if got := sk.URI(file); got != want {
			t.Errorf("URI(%q) = %q, want %q", file, got, want)
		}
		if got, err := skills.ParseURI(want); err != nil || got != sk.Path+"/"+file {
			t.Errorf("ParseURI(%q) = %q, %v", want, got, err)
		}
	}
	for uri, want := range map[string]string{"skill://a/b/": "a/b", "skill://a": "a", "skill://%61/b": "a/b", "skill://a/ü": "a/ü", "skill://a/b%20c": "a/b c"} {
		if got, err := skills.ParseURI(uri); err != nil || got != want {
			t.Errorf("ParseURI(%q) = %q, %v; want %q", uri, got, err, want)
		}
	}
	for _, uri := range []string{"", "skill:", "skill://", "skill:///a", "skill://a//b", "skill://a/../b", "skill://a/%2e%2e/b", "skill://a/%2E./b", "skill://a/./b", "skill://a%2Fb", "skill://a/%5Cb",
		"skill://a/%00", "skill://a/%0a", "skill://a/%", "skill://a/%4", "skill://a/%zz", "skill://a?x", "skill://a#x", "skill://a/%FF", "http://a/b", "SKILL://a", "skill://a//", `skill://a\b`,
		"skill://" + strings.Repeat("a", 20_000)} {
		if got, err := skills.ParseURI(uri); !isPathError(err) {
			t.Errorf("ParseURI(%q) = %q, %v; want *PathError", uri, got, err)
		}
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"a/SKILL.md": document("a", "d"), "a/sub/n/SKILL.md": document("n", "d"), "b c/SKILL.md": document("b", "d")})
	snapshot := scan(t, nil, skills.Root{Dir: dir})
	for uri, want := range map[string][2]string{
		"skill://a/SKILL.md": {"a", "SKILL.md"}, "skill://a/sub/x": {"a", "sub/x"}, "skill://a/sub/n/SKILL.md": {"a/sub/n", "SKILL.md"}, "skill://a": {"a", ""}, "skill://a/": {"a", ""},
		"skill://b%20c/x%2520y": {"b c", "x%20y"},
	} {
		sk, file, err := snapshot.Resolve(uri)
		if err != nil || sk.Path != want[0] || file != want[1] {
			t.Errorf("Resolve(%q) = %v, %q, %v; want %q", uri, sk, file, err, want)
		}
	}
	for _, uri := range []string{"skill://x/y", "skill://ab/SKILL.md", "skill://sub/n", "skill://a%2FSKILL.md"} {
		if sk, _, err := snapshot.Resolve(uri); err == nil {
			t.Errorf("Resolve(%q) = %v, want an error", uri, sk.Path)
		}
	}
}

func FuzzCleanPath(f *testing.F) {
	for _, seed := range []string{"a/b", "./a//b/", "../x", "a/..", "C:/x", "x:y", "a\x00", `\`, "\xff", "é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		clean, err := skills.CleanPath(in)
		if err != nil {
			return
		}
		if again, err := skills.CleanPath(clean); err != nil || again != clean {
			t.Errorf("CleanPath(%q) = %q, which cleans to %q, %v", in, clean, again, err)
		}
		for segment := range strings.SplitSeq(clean, "/") {
			if segment == "" || segment == "." || segment == ".." {
				t.Errorf("CleanPath(%q) = %q", in, clean)
			}
		}
		sk := &skills.Skill{Path: "x/y"}
		uri := sk.URI(clean)
		if got, err := skills.ParseURI(uri); err != nil || got != "x/y/"+clean {
			t.Errorf("ParseURI(URI(%q)) = %q, %v", clean, got, err)
		}
	})
}

func FuzzParseURI(f *testing.F) {
	for _, seed := range []string{"skill://a/b", "skill://a/%41", "skill://%2e/%2F", "skill://a/%ZZ", "skill://a?x", "skill://a//b/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		path, err := skills.ParseURI(uri)
		if err != nil {
			return
		}
		skill, file, nested := strings.Cut(path, "/")
		if !nested {
			return
		}
		if got, err := skills.ParseURI((&skills.Skill{Path: skill}).URI(file)); err != nil || got != path {
			t.Errorf("%q is %q, whose own URI is %q, %v", uri, path, got, err)
		}
	})
}

// The recorded verdicts of the reference validator are those of a scan.
func TestStrictParity(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("frontmatter/testdata/skills-ref.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Label, Dir, File string
		Content          []byte `json:"content_base64"`
		Valid            bool
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if c.Dir == "" || strings.Contains(c.Dir, "/") || c.File != "SKILL.md" && c.File != "skill.md" {
			continue
		}
		root := t.TempDir()
		writeTree(t, root, map[string]string{c.Dir + "/" + c.File: string(c.Content)})
		snapshot, err := skills.Scan(context.Background(), []skills.Root{{Dir: root}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		strict := len(snapshot.Skills) == 1 && snapshot.Skills[0].Form.Strict
		if strict != c.Valid {
			t.Errorf("%s: strict %v, the reference says %v", c.Label, strict, c.Valid)
		}
	}
}
