package store

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A FIFO in a stored tree must neither pass nor make the check wait for a writer.
func TestTreeFindsFIFO(t *testing.T) {
	s, tree, dir := stored(t)
	if err := os.Remove(filepath.Join(dir, "empty")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "empty"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := s.Tree(t.Context(), tree.Digest)
	wantCorrupt(t, err)
}
