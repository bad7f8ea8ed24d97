package install

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// Under a umask that hides new files, a skill that is hidden itself gets the hidden files that its links lead to.
// Another skill of the same source gets none, and no skill gets a file that has a second name.
func TestHiddenByUmask(t *testing.T) {
	m := newMachine(t)
	dir := write(t, t.TempDir(), map[string]string{"skills/a/SKILL.md": skillText("a"),
		"skills/b/SKILL.md": skillText("b"), "shared.txt": "Shared.\n", "linked.txt": "Linked.\n"})
	for _, name := range []string{"a/shared.txt", "a/linked.txt", "b/shared.txt"} {
		if err := os.Symlink("../../"+filepath.Base(name), filepath.Join(dir, "skills", name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(dir, "linked.txt"), filepath.Join(t.TempDir(), "second")); err != nil {
		t.Skip("missing capability: hard links:", err)
	}
	for _, name := range []string{"skills/a/SKILL.md", "shared.txt", "linked.txt"} {
		if err := os.Chmod(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	defer syscall.Umask(syscall.Umask(0o077))
	m.install(Request{Source: dir, All: true})
	lock := m.open().Lock()
	for name, want := range map[string][]string{"a": {"SKILL.md", "shared.txt"}, "b": {"SKILL.md"}} {
		var got []string
		for _, file := range lock.Find(name).Files {
			got = append(got, file.Path)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
}
