package skills_test

import (
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills"
)

// TestAttackURI proves that every file that is indexed has a URI that leads back to it, and that
// other notations lead nowhere.
func TestAttackURI(t *testing.T) {
	dir := t.TempDir()
	names := []string{"a b.md", "a%20b.md", "100%.md", "q?.md", "h#.md", "größe/技能.md", "e\u0301.md", "a+b&c=d;e,f@g!$'()*~.md", "..hidden", "...", ".x/..y", "c:d.md", "[x].md", "a//b"[:1] + "'\".md"}
	files := map[string]string{"s p%2F/SKILL.md": attackManifest("x")}
	for _, name := range names {
		files["s p%2F/"+name] = name
	}
	attackPlant(t, dir, files)
	snapshot := attackScan(t, nil, skills.Root{Dir: dir})
	if len(snapshot.Skills) != 1 {
		t.Fatalf("Scan found %q: %+v", attackPaths(snapshot.Skills), snapshot.Diagnostics)
	}
	sk := snapshot.Skills[0]
	index, err := sk.Index(t.Context())
	if err != nil || len(index.Resources) != len(names) {
		t.Fatalf("Index has %d files, want %d: %v, %+v", len(index.Resources), len(names), err, index.Diagnostics)
	}
	for _, r := range index.Resources {
		uri := sk.URI(r.Path)
		back, file, err := snapshot.Resolve(uri)
		if err != nil || back != sk || file != r.Path {
			t.Errorf("Resolve(%q) = %q, %v; want %q", uri, file, err, r.Path)
		}
		if content, err := sk.Read(t.Context(), r.Path, 1<<20); err != nil || string(content.Data) != r.Path {
			t.Errorf("Read(%q) = %v, %v", r.Path, content, err)
		}
	}
	base := strings.TrimSuffix(sk.URI("x"), "x")
	for _, uri := range []string{
		"", "skill://", "skill:///x", "file:///etc/passwd", "SKILL://x/SKILL.md", base + "../SKILL.md", base + "%2e%2e/SKILL.md", base + "a%2fb", base + "a%5Cb",
		base + "a%00b", base + "%", base + "%4", base + "%zz", base + "x?y", base + "x#y", base + "./SKILL.md", base + "%2E/SKILL.md", base + "/SKILL.md", base + "%ff",
		"skill://nothing/SKILL.md",
	} {
		if sk, file, err := snapshot.Resolve(uri); err == nil {
			t.Errorf("Resolve(%q) = %s, %q", uri, sk.Path, file)
		}
	}
}
