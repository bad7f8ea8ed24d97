package store

import (
	"context"
	"errors"
	"io/fs"

	"github.com/opencontainers/go-digest"
)

// ErrInUse is the error of a Sweep while another process has the store open, or may have it open.
var ErrInUse = errors.New("store is in use")

// Sweep removes the trees that are not needed, and returns how many it removed. needed deletes the others
// from the set of all trees. It does so only while no other process has the store open; a process that
// opens it waits until Sweep is done. The caller must not have a tree in use.
//
// Errors: ErrInUse, the error of needed; errors of ctx; system errors.
func (s *Store) Sweep(
	ctx context.Context, needed func(trees map[digest.Digest]bool) error,
) (removed int, err error) {
	// The attempt to lock it alone may have lost the shared lock, so it is shared again in any case.
	defer shareLock(s.lock)
	if !lockAlone(s.lock) {
		return 0, ErrInUse
	}
	entries, err := fs.ReadDir(s.root.FS(), treesDir)
	if err != nil {
		return 0, err
	}
	trees := map[digest.Digest]bool{}
	for _, entry := range entries {
		tree := digest.NewDigestFromEncoded(digest.SHA256, entry.Name())
		if entry.IsDir() && tree.Validate() == nil {
			trees[tree] = true
		}
	}
	if err := needed(trees); err != nil {
		return 0, err
	}
	for tree := range trees {
		if err := ctx.Err(); err != nil {
			return removed, err
		}
		if err := s.Remove(tree); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}
