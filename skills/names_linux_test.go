package skills_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/skillsd/skillsd/skills"
)

// A skill does not get a private file by giving it a second name.
func TestIndexLeavesOutPrivateLinks(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "skills", "demo")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"SKILL.md": "---\nname: demo\ndescription: d\n---\n", "shared": "s", "alone": "a"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "alone"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(top, "secret"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for old, name := range map[string]string{filepath.Join(top, "secret"): "stolen", filepath.Join(dir, "shared"): "second"} {
		if err := os.Link(old, filepath.Join(dir, name)); err != nil {
			t.Skipf("missing capability: hard links: %v", err)
		}
	}
	snapshot, err := skills.Scan(t.Context(), []skills.Root{{Dir: filepath.Dir(dir), Tier: skills.TierUser}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	index, err := snapshot.Skills[0].Index(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, indexed := range map[string]bool{"alone": true, "shared": true, "second": true, "stolen": false} {
		if got := index.Resource(name) != nil; got != indexed {
			t.Errorf("%s is indexed: %v, want %v", name, got, indexed)
		}
	}
	found := false
	for _, d := range index.Diagnostics {
		found = found || d.Code == skills.CodeUnreadableResource && d.Path == "stolen"
	}
	if !found {
		t.Errorf("no diagnostic tells of it: %v", index.Diagnostics)
	}
}
