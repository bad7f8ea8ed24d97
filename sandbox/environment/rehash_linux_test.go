package environment_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/sandbox/environment"
)

// Marks are believed before a run, and not when every byte is to be looked at.
func TestRehashBelievesNoMarks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "environments")
	s := openStore(t, dir)
	tree := stored(t, s, sample)
	marks, file := filepath.Join(dir, "marks", tree.Name), filepath.Join(treeDir(s, tree), site+"n.py")
	state := func() string {
		info, err := os.Lstat(file)
		if err != nil {
			t.Fatal(err)
		}
		s := info.Sys().(*syscall.Stat_t)
		return fmt.Sprintf("%x %x %x %x %x ", s.Mode, s.Ino, s.Size, s.Mtim.Nano(), s.Ctim.Nano())
	}
	before := state()
	err := errors.Join(os.Chmod(file, 0o644), os.WriteFile(file, []byte("y = 3\n"), 0o644), os.Chmod(file, 0o444))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(marks)
	if err != nil || !strings.Contains(string(data), before) {
		t.Fatalf("marks without %s: %v", before, err)
	}
	if err := os.WriteFile(marks, []byte(strings.Replace(string(data), before, state(), 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	next, err := openStore(t, dir).Tree(t.Context(), tree.Digest, digest.FromString("interpreter"))
	if err != nil {
		t.Fatalf("Tree = %v", err)
	}
	var changed *environment.ChangedError
	if err := next.Rehash(t.Context()); !errors.As(err, &changed) {
		t.Errorf("Rehash = %v", err)
	}
}
