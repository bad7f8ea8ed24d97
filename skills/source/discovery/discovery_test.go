package discovery

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
)

var base = &url.URL{Scheme: "https", Host: "example.com", Path: Path}

func entry(name, at string) string {
	return fmt.Sprintf(`{"name":%q,"type":"skill-md","description":"x","url":%q,"digest":%q,"more":[{}]}`,
		name, at, digest.FromString(name))
}

func index(entries ...string) []byte {
	return []byte(`{"$schema":"` + Schema + `","skills":[` + strings.Join(entries, ",") + `],"other":1}`)
}

func TestParse(t *testing.T) {
	x, err := Parse(index(entry("a", "a/SKILL.md"), entry("b", "/b.md"), entry("c", "https://cdn.example.com/c?v=1"),
		entry("d-1", "//other.example.com/d")), base)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"https://example.com/.well-known/agent-skills/a/SKILL.md", "https://example.com/b.md",
		"https://cdn.example.com/c?v=1", "https://other.example.com/d"} {
		if e := x.Skills[i]; e.Problem != "" || e.At.String() != want || e.Digest != digest.FromString(e.Name) {
			t.Errorf("entry %d = %+v, want %s", i, e, want)
		}
	}
	again, err := Parse(x.Encode(), base)
	if err != nil || len(again.Skills) != 4 || again.Skills[2].At.String() != x.Skills[2].At.String() {
		t.Errorf("again = %+v, %v", again, err)
	}
	if x.Find("b") != x.Skills[1] || x.Find("x") != nil {
		t.Error("Find finds another entry")
	}
}

// What is wrong with an entry leaves the others usable.
func TestBadEntries(t *testing.T) {
	good := entry("good", "x")
	for what, test := range map[string]struct{ entry, want string }{
		"type":        {strings.Replace(entry("a", "x"), "skill-md", "plugin", 1), "unknown type"},
		"no digest":   {strings.Replace(entry("a", "x"), "sha256:", "", 1), "digest"},
		"md5":         {strings.Replace(entry("a", "x"), "sha256:", "md5:", 1), "digest"},
		"upper case":  {strings.Replace(entry("a", "x"), string(digest.FromString("a")[7:]), strings.ToUpper(string(digest.FromString("a")[7:])), 1), "digest"},
		"name":        {entry("../a", "x"), "not a name"},
		"long name":   {entry(strings.Repeat("a", 65), "x"), "not a name"},
		"dashes":      {entry("a--b", "x"), "not a name"},
		"no URL":      {entry("a", ""), "no URL"},
		"bad URL":     {entry("a", "https://%zz"), "no URL"},
		"fragment":    {entry("a", "x#y"), "fragment"},
		"a number":    {"7", "not a name"},
		"odd content": {`{"name":7}`, "not a name"},
		"null":        {"null", "not a name"},
		"twice":       {entry("a", "x") + "," + entry("a", "y"), "shares its name"},
	} {
		x, err := Parse(index(good, test.entry), base)
		if err != nil || len(x.Skills) != 2 || x.Skills[0].Problem != "" || !strings.Contains(x.Skills[1].Problem, test.want) {
			t.Errorf("%s: index = %+v, %v", what, x, err)
		}
	}
}

// An index that cannot be used says why.
func TestBadIndex(t *testing.T) {
	for what, test := range map[string]struct {
		data []byte
		want string
	}{
		"html":       {[]byte("<html>"), "not the JSON"},
		"version 3":  {[]byte(`{"$schema":"https://schemas.agentskills.io/discovery/0.3.0/schema.json","skills":[]}`), "not known"},
		"no list":    {[]byte(`{"$schema":"` + Schema + `"}`), "no list"},
		"list":       {[]byte(`[]`), "not the JSON"},
		"thousands":  {index(strings.Split(strings.Repeat("1 ", maxEntries+1), " ")[:maxEntries+1]...), "more than 5000"},
		"deep":       {[]byte(`{"$schema":"` + Schema + `","skills":` + strings.Repeat("[", 20000)), "not the JSON"},
		"long":       {make([]byte, MaxIndex+1), "more than"},
		"null":       {[]byte("null"), "no list"},
		"two values": {append(index(), index()...), "not the JSON"},
	} {
		if _, err := Parse(test.data, base); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error = %v, want %q", what, err, test.want)
		}
	}
}

func TestIsIndex(t *testing.T) {
	const want = "https://example.com" + Path
	for _, text := range []string{want, "https://example.com/.well-known/agent-skills", "https://example.com/.well-known/agent-skills/"} {
		if got, ok := IsIndex(text); !ok || got != want {
			t.Errorf("%s = %s, %t", text, got, ok)
		}
	}
	if _, ok := IsIndex("https://example.com/index.json"); ok {
		t.Error("any index.json is an index")
	}
}

// FuzzParse reads any bytes: every entry that may be used has a name, a digest and a place, and an index that is
// written is read alike.
func FuzzParse(f *testing.F) {
	f.Add(index(entry("a", "x"), entry("b", "https://h/y")))
	f.Add(index(entry("a", "x"), entry("a", "x"), "null", `{"name":"b"}`))
	f.Add([]byte(`{"skills":[]}`))
	f.Add([]byte(`{"skills":[{"name":"a","files":["SKILL.md","../x"]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := Parse(data, base)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, e := range x.Skills {
			if !ValidName(e.Name) || seen[e.Name] {
				t.Errorf("name %q", e.Name)
			}
			seen[e.Name] = true
			if e.Problem == "" && (e.At == nil || e.Type != TypeFiles && e.Digest.Validate() != nil) {
				t.Errorf("entry %+v", e)
			}
		}
		again, err := Parse(x.Encode(), base)
		if err != nil || len(again.Skills) != len(x.Skills) {
			t.Fatalf("again: %+v, %v", again, err)
		}
	})
}
