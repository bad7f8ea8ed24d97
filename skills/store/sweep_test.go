package store

import (
	"errors"
	"os"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// TestSweep removes exactly what is chosen, and nothing while somebody else has the store open.
func TestSweep(t *testing.T) {
	s, dir := openStore(t)
	if s.lock == nil || !fsys.LockAlone(s.lock) {
		t.Skip("needs locks of files")
	}
	fsys.ShareLock(s.lock)
	var trees []*Tree
	for _, c := range []texts{{"a": "keep"}, {"a": "drop"}} {
		tree, err := s.Put(t.Context(), c.files(), c.open)
		if err != nil {
			t.Fatal(err)
		}
		trees = append(trees, tree)
	}
	keep, drop := trees[0], trees[1]
	other, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	choose := func(trees map[digest.Digest]bool) error {
		if len(trees) != 2 {
			t.Errorf("Sweep found %v", trees)
		}
		delete(trees, keep.Digest)
		return nil
	}
	if n, err := s.Sweep(t.Context(), choose); n != 0 || !errors.Is(err, ErrInUse) {
		t.Errorf("Sweep beside another = %d, %v", n, err)
	}
	// The lock that the failed attempt may have cost is there again.
	if n, err := other.Sweep(t.Context(), choose); n != 0 || !errors.Is(err, ErrInUse) {
		t.Errorf("Sweep of the other = %d, %v", n, err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	if n, err := s.Sweep(t.Context(), func(map[digest.Digest]bool) error { return stop }); n != 0 ||
		!errors.Is(err, stop) {
		t.Errorf("Sweep that cannot choose = %d, %v", n, err)
	}
	if n, err := s.Sweep(t.Context(), choose); n != 1 || err != nil {
		t.Errorf("Sweep = %d, %v", n, err)
	}
	if _, err := s.Tree(t.Context(), keep.Digest); err != nil {
		t.Errorf("the tree to keep: %v", err)
	}
	if _, err := s.Tree(t.Context(), drop.Digest); !errors.Is(err, ErrNotFound) {
		t.Errorf("the tree to drop: %v", err)
	}
	if left, err := os.ReadDir(s.Dir()); err != nil || len(left) != 1 {
		t.Errorf("%d entries are left: %v", len(left), err)
	}
}
