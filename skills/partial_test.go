package skills_test

import (
	"testing"

	"github.com/skillsd/skillsd/skills"
)

// A snapshot that no scan made, or that is a part of one, tells no directories.
func TestDirsWithoutScan(t *testing.T) {
	r := skills.NewRegistry([]skills.Root{{Dir: t.TempDir()}}, nil)
	for name, s := range map[string]*skills.Snapshot{"empty": r.Snapshot(), "part": r.Snapshot().Only(nil)} {
		if dirs, files := s.Dirs(), s.SkillFiles(); len(dirs)+len(files) > 0 {
			t.Errorf("%s: Dirs = %q, SkillFiles = %q", name, dirs, files)
		}
	}
	if _, err := r.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if dirs := r.Snapshot().Dirs(); len(dirs) != 1 {
		t.Errorf("Dirs = %q after a scan, want one", dirs)
	}
}
