package skills

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Between the listing and the opening anything may be exchanged for a link or a FIFO.
func TestFolderFollowsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	outside := t.TempDir()
	if err := errors.Join(
		os.WriteFile(filepath.Join(outside, "SKILL.md"), []byte("secret"), 0o644),
		os.Symlink(outside, filepath.Join(dir, "dir")),
		os.Symlink(filepath.Join(outside, "SKILL.md"), filepath.Join(dir, "SKILL.md")),
		syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644),
		os.Mkdir(filepath.Join(dir, "real"), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	f, err := openBase(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	for _, name := range []string{"dir", "..", "", "real/..", "../" + filepath.Base(outside), "fifo", "SKILL.md", "a\x00"} {
		if sub, err := f.sub(name); err == nil {
			sub.close()
			t.Errorf("sub(%q) opened a directory", name)
		}
		if _, barren := f.barren(name); barren {
			t.Errorf("barren(%q)", name)
		}
	}
	for _, name := range []string{"SKILL.md", "fifo", "real", "dir/SKILL.md", "..", "missing"} {
		if data, _, err := f.read(name, 100, nil); err == nil {
			t.Errorf("read(%q) = %q", name, data)
		}
	}
	sub, err := f.sub("real")
	if err != nil {
		t.Fatal(err)
	}
	sub.close()
	if _, err := openBase(filepath.Join(dir, "dir")); err == nil {
		t.Error("openBase follows a link")
	}
}

// The kernel's format is parsed by hand: all entries of a directory that needs several buffers must
// come back.
func TestFolderListsAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const n = 2_000
	for i := range n {
		name := filepath.Join(dir, "directory-with-a-name-"+string(rune('a'+i%26))+string(rune('a'+i/26%26))+string(rune('a'+i/676)))
		if err := os.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f, err := openBase(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	entries, more, err := f.list(n + 1)
	if err != nil || more || len(entries) != n {
		t.Errorf("list gave %d entries, more %v, %v; want %d", len(entries), more, err, n)
	}
	again, err := f.sub(".")
	if err != nil {
		t.Fatal(err)
	}
	defer again.close()
	if entries, more, err := again.list(10); err != nil || !more || len(entries) != 10 {
		t.Errorf("list(10) gave %d entries, more %v, %v", len(entries), more, err)
	}
}
