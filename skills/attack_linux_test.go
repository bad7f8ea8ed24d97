package skills_test

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/skillsd/skillsd/skills"
)

// TestAttackFiles puts what is no regular file, or pretends to be a huge one, where a file belongs.
// Opening a FIFO would wait for ever; the test would then run into its deadline.
func TestAttackFiles(t *testing.T) {
	dir := t.TempDir()
	attackPlant(t, dir, map[string]string{
		"good/SKILL.md": attackManifest("good"), "good/a.md": "a", "dir/SKILL.md/x": "x", "dir/skill.md": attackManifest("dir"),
		"fifo/x": "x", "sparse/x": "x", "socket/x": "x",
	})
	for _, name := range []string{"fifo/SKILL.md", "good/pipe", "good/scripts"} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sparse/SKILL.md", "good/huge.bin"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, name), 1<<38); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"socket/SKILL.md", "good/socket"} {
		if err := syscall.Mknod(filepath.Join(dir, name), syscall.S_IFSOCK|0o644, 0); err != nil {
			t.Fatal(err)
		}
	}
	opened := attackWatch(t, filepath.Join(dir, "fifo/SKILL.md"), filepath.Join(dir, "good/pipe"), filepath.Join(dir, "good/scripts"), filepath.Join(dir, "good/socket"))
	snapshot := attackScan(t, nil, skills.Root{Dir: dir})
	if got := attackPaths(snapshot.Skills); !slices.Equal(got, []string{"dir", "good"}) && !slices.Equal(got, []string{"good"}) {
		t.Fatalf("Scan found %q", got)
	}
	sk := snapshot.Skill("good")
	index, err := sk.Index(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(index.Resources) != 1 || index.Resources[0].Path != "a.md" {
		t.Errorf("resources %+v, want a.md alone", index.Resources)
	}
	if got := attackCodes(index.Diagnostics); len(got) != 4 || !slices.Contains(got, skills.CodeResourceSize) {
		t.Errorf("diagnostics %+v", index.Diagnostics)
	}
	if err := sk.Verify(t.Context()); err != nil {
		t.Errorf("Verify: %v", err)
	}
	// A file that becomes a FIFO after it was indexed is not opened either.
	if err := os.Remove(filepath.Join(dir, "good/a.md")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "good/a.md"), 0o644); err != nil {
		t.Fatal(err)
	}
	reopened := attackWatch(t, filepath.Join(dir, "good/a.md"))
	if content, err := sk.Read(t.Context(), "a.md", 1<<20); err == nil {
		t.Errorf("Read of a FIFO = %q", content.Data)
	}
	if err := sk.Verify(t.Context()); err == nil {
		t.Error("Verify does not see the FIFO")
	}
	if opened() || reopened() {
		t.Error("something that is no regular file was opened")
	}
	bad := 0
	for _, d := range snapshot.Diagnostics {
		if d.Severity == skills.Error {
			bad++
		}
	}
	if bad < 3 {
		t.Errorf("%d errors for a FIFO, a huge file and a socket: %+v", bad, snapshot.Diagnostics)
	}
}

// attackWatch returns a function that reports whether one of the files was opened since.
func attackWatch(t *testing.T, names ...string) (opened func() bool) {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	for _, name := range names {
		if _, err := syscall.InotifyAddWatch(fd, name, syscall.IN_OPEN); err != nil {
			t.Fatal(err)
		}
	}
	return func() bool {
		n, err := syscall.Read(fd, make([]byte, 4096))
		return err == nil && n > 0
	}
}

// TestAttackUnreadable: what may not be read costs itself only.
func TestAttackUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("missing capability: a user whom permissions bind, this is root")
	}
	dir := t.TempDir()
	attackPlant(t, dir, map[string]string{"good/SKILL.md": attackManifest("good"), "good/a.md": "a", "good/b.md": "b", "bad/SKILL.md": attackManifest("bad")})
	for _, name := range []string{"good/a.md", "bad/SKILL.md"} {
		if err := os.Chmod(filepath.Join(dir, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	snapshot := attackScan(t, nil, skills.Root{Dir: dir})
	if got := attackPaths(snapshot.Skills); !slices.Equal(got, []string{"good"}) {
		t.Fatalf("Scan found %q", got)
	}
	index, err := snapshot.Skill("good").Index(t.Context())
	if err != nil || len(index.Resources) != 1 || !slices.Contains(attackCodes(index.Diagnostics), skills.CodeUnreadableResource) {
		t.Errorf("Index = %+v, %v", index, err)
	}
}
