package skills

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/skillsd/skillsd/e2e/nightly"
)

// A skill nobody touched is known by the marks of its files alone; whatever was done to it, the marks
// never say less than a comparison file by file.
func TestUntouched(t *testing.T) {
	t.Parallel()
	changes := []func(dir string, n int) error{
		func(string, int) error { return nil },
		func(dir string, n int) error { return os.WriteFile(pick(dir, n), []byte("changed"), 0o600) },
		func(dir string, n int) error { return os.Remove(pick(dir, n)) },
		func(dir string, n int) error { return os.Rename(pick(dir, n), pick(dir, n)+".old") },
		func(dir string, n int) error { return os.Rename(pick(dir, n), pick(dir, n+1)) },
		func(dir string, n int) error { return os.Link(pick(dir, n), filepath.Join(dir, "linked")) },
		func(dir string, n int) error { return os.Symlink(pick(dir, n), filepath.Join(dir, "scripts", "link")) },
		func(dir string, _ int) error { return os.Symlink("scripts", filepath.Join(dir, "again")) },
		func(dir string, n int) error { return os.Mkdir(filepath.Join(dir, fmt.Sprint("empty", n)), 0o700) },
		func(dir string, n int) error { return os.WriteFile(filepath.Join(dir, fmt.Sprint("a", n)), nil, 0o600) },
		func(dir string, _ int) error { return os.WriteFile(filepath.Join(dir, "skipped~"), nil, 0o600) },
		func(dir string, _ int) error {
			return os.Rename(filepath.Join(dir, "scripts"), filepath.Join(dir, "moved"))
		},
		func(dir string, _ int) error {
			scripts := filepath.Join(dir, "scripts")
			if err := os.Rename(scripts, scripts+".moved"); err != nil {
				return err
			}
			return os.Symlink("scripts.moved", scripts)
		},
	}
	for i := range nightly.Size(4, 15) * len(changes) {
		change := i % len(changes)
		sk, dir := settledSkill(t)
		index, err := sk.Index(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // by listing, and then by the marks of directories
			if !sk.untouched(t.Context(), index) {
				t.Fatal("nobody touched the skill, and its marks do not say so")
			}
		}
		listed := sk.state.listed.Load()
		if listed == nil || len(listed.dirs) != 2 || !listed.dirs[1].mark.settled {
			t.Fatalf("the directories are not known: %+v", listed)
		}
		if err := changes[change](dir, rand.IntN(files)); err != nil {
			t.Fatal(err)
		}
		quick := sk.untouched(t.Context(), index)
		if again := sk.untouched(t.Context(), index); again != quick || quick && change != 0 && change != 8 && change != 10 {
			t.Errorf("after change %d the marks say untouched: %v, then %v", change, quick, again)
		}
		if err := sk.Verify(t.Context()); quick && err != nil {
			t.Errorf("after change %d the marks say untouched, Verify says %v", change, err)
		}
		// What the marks say is what Verify says then: the bytes are asked for here.
		index.marks[0].settled = false
		if err := sk.Verify(t.Context()); quick && err != nil {
			t.Errorf("after change %d the marks say untouched, the bytes %v", change, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

const files = 5

func pick(dir string, n int) string {
	return filepath.Join(dir, "scripts", fmt.Sprintf("%d.sh", n%files))
}

func settledSkill(t *testing.T) (sk *Skill, dir string) {
	t.Helper()
	root := t.TempDir()
	dir = filepath.Join(root, "pdf")
	if err := os.MkdirAll(filepath.Join(dir, "scripts"), 0o700); err != nil {
		t.Fatal(err)
	}
	for n := range files {
		if err := os.WriteFile(pick(dir, n), fmt.Appendf(nil, "echo %d", n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, upperFile), []byte("---\nname: pdf\ndescription: d\n---\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	snapshot, err := Scan(t.Context(), []Root{{Dir: root}}, &ScanOptions{Now: func() time.Time { return time.Now().Add(time.Hour) }})
	if err != nil || len(snapshot.Skills) != 1 {
		t.Fatalf("Scan = %+v, %v", snapshot, err)
	}
	return snapshot.Skills[0], dir
}
