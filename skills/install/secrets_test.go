package install

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The real path of a file decides whether it may be private, also below a skill in a hidden directory.
func TestPrivate(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{"closed/x.md": "", ".curated/a/.x/y.md": "", ".claude/skills/b/x.md": "",
		"docs/x.md": "", ".github/plugin/plugin.json": ""})
	if err := os.Chmod(filepath.Join(dir, "closed"), 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, test := range []struct {
		kind              Kind
		part, skill, real string
		private           bool
	}{
		{KindGit, ".", "skills/a", ".git/config", true},
		{KindGit, ".", "skills/a", "node_modules/x.md", true},
		{KindGit, "node_modules", "node_modules/a", "node_modules/x.md", false},
		{KindGit, "node_modules/a", "node_modules/a", "node_modules/x.md", true},
		{KindGit, ".", "skills/a", ".github/workflows/x.yml", true},
		{KindGit, ".", "skills/a", ".github/skills/x.md", false},
		{KindGit, ".", "skills/a", ".env", false},
		{KindDirectory, ".", "skills/a", ".env", true},
		{KindDirectory, ".", "skills/a", ".GIT/config", true},
		{KindDirectory, ".", "skills/a", "GIT~1/config", true},
		{KindDirectory, ".", "skills/a", "docs/x.md", false},
		{KindDirectory, ".", "skills/a", "closed/x.md", true},
		{KindDirectory, ".", "skills/a", ".claude/skills/b/x.md", false},
		{KindDirectory, ".", "skills/a", ".claude/settings.local.json", true},
		{KindDirectory, ".", "skills/a", ".claude", true}, // a file
		{KindDirectory, ".", "skills/a", ".github/plugin/plugin.json", false},
		{KindDirectory, ".", ".curated/a", ".curated/x.md", false},
		{KindDirectory, ".", ".curated/a", ".curated/a/.x/y.md", true},
	} {
		f := &fetched{origin: Origin{Kind: test.kind, Path: test.part}, all: heldDir{root}}
		taker := &taker{f: f, into: &contents{}, at: test.skill}
		if got := taker.private(test.real, false); got != test.private {
			t.Errorf("private(%s) for %s of %s in a %s = %v", test.real, test.skill, test.part, test.kind, got)
		}
	}
}

// Files of a directory that its links lead to are left out if others cannot read them; a commit has no such mode.
func TestUnreadableByOthers(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{"skills/a/SKILL.md": skillText("a"), "notes.txt": "N.", "x.md": "X."})
	if err := os.Chmod(filepath.Join(dir, "notes.txt"), 0o640); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"notes.txt", "x.md"} {
		if err := os.Symlink("../../"+name, filepath.Join(dir, "skills/a", name)); err != nil {
			t.Skip("missing capability: symbolic links:", err)
		}
	}
	m := newMachine(t)
	plan, err := m.open().Add(t.Context(), Request{Source: dir, All: true})
	if err != nil {
		t.Fatal(err)
	}
	defer plan.Close()
	note := `files that may be private are left out (hidden, of version control, or not readable by other users): ` +
		`1, "skills/a/notes.txt"`
	if !slices.Contains(plan.Notes, note) || len(plan.Changes[0].After.Files) != 2 {
		t.Errorf("notes = %q, files %v", plan.Notes, plan.Changes[0].After.Files)
	}
}
