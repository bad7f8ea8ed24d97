package skills_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store"
)

// TestLinkedSkillFile: a skill file that is a link to the one of another directory of its root is served,
// verified, staged and read again as a file of its own directory; other links out of the directory are not.
func TestLinkedSkillFile(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	root, outside := filepath.Join(top, "root"), filepath.Join(top, "outside")
	write := func(name, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text := func(name string) string { return "---\nname: " + name + "\ndescription: d\n---\nBody.\n" }
	write(filepath.Join(root, "a/SKILL.md"), text("a"))
	write(filepath.Join(root, "a/secret.md"), text("secret"))
	write(filepath.Join(root, "b/notes.md"), "notes")
	write(filepath.Join(outside, "SKILL.md"), text("outside"))
	for link, target := range map[string]string{
		"b": "../a/SKILL.md", "twice": "../b/SKILL.md", "out": "../../outside/SKILL.md",
		"key": "../a/secret.md", "gone": "../none/SKILL.md", "absolute": filepath.Join(root, "a/SKILL.md"),
	} {
		if err := os.MkdirAll(filepath.Join(root, link), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(root, link, "SKILL.md")); err != nil {
			t.Fatal(err)
		}
	}
	registry := skills.NewRegistry([]skills.Root{{Dir: root}}, nil)
	if _, err := registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	snapshot := registry.Snapshot()
	var got []string
	for _, sk := range snapshot.Skills {
		got = append(got, sk.Path)
	}
	if want := "a absolute b twice"; strings.Join(got, " ") != want {
		t.Errorf("skills %q, want %s; %v", got, want, snapshot.Diagnostics)
	}
	wants := map[string]string{"out": "put the file here", "key": "put the file here",
		"gone": "make SKILL.md a regular file"}
	for _, d := range snapshot.Diagnostics {
		name, _, _ := strings.Cut(d.Path, "/")
		if want := wants[name]; want == "" || !strings.HasPrefix(d.Fix(), want) {
			t.Errorf("%+v has the fix %q, want %q", d, d.Fix(), want)
		}
		delete(wants, name)
	}
	if len(wants) > 0 {
		t.Errorf("no diagnostic of %v", wants)
	}
	b := snapshot.Skill("b")
	content, err := b.Read(t.Context(), "SKILL.md", 1<<20)
	if err != nil || !content.Matches || string(content.Data) != text("a") {
		t.Errorf("Read = %+v, %v", content, err)
	}
	index, err := b.Index(t.Context())
	if err != nil || len(index.Files) != 2 || len(index.Resources) != 1 {
		t.Fatalf("Index = %+v, %v", index, err)
	}
	st, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Stage(t.Context(), st); err != nil {
		t.Error(err)
	}
	if err := b.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	write(filepath.Join(root, "a/SKILL.md"), text("a")+"More.\n")
	if err := b.Verify(t.Context()); err == nil {
		t.Error("Verify does not notice that the file behind the link changed")
	}
	fresh, err := registry.RescanSkill(t.Context(), b)
	if err != nil || fresh.Digest == b.Digest {
		t.Errorf("RescanSkill = %+v, %v", fresh, err)
	}
	// A link that leads elsewhere later is judged again.
	if err := os.Remove(filepath.Join(root, "b/SKILL.md")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../outside/SKILL.md", filepath.Join(root, "b/SKILL.md")); err != nil {
		t.Fatal(err)
	}
	if sk, err := registry.RescanSkill(t.Context(), b); err == nil {
		t.Errorf("RescanSkill = %+v of a link out of the root", sk)
	}
}
