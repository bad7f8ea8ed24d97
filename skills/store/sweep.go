package store

import (
	"context"
	"errors"
	"io/fs"

	"github.com/opencontainers/go-digest"
)

// ErrInUse is the error of a Sweep while another process has the store open, or may have it open.
var ErrInUse = errors.New("store is in use")

// Sweep removes the trees that unused chooses from all trees, and returns how many it removed. It does
// so only while no other process has the store open; a process that opens it waits until Sweep is done.
// The caller must not have a tree in use.
//
// Errors: ErrInUse, the error of unused; errors of ctx; system errors.
func (s *Store) Sweep(
	ctx context.Context, unused func(trees []digest.Digest) ([]digest.Digest, error),
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
	var trees []digest.Digest
	for _, entry := range entries {
		tree := digest.NewDigestFromEncoded(digest.SHA256, entry.Name())
		if entry.IsDir() && tree.Validate() == nil {
			trees = append(trees, tree)
		}
	}
	chosen, err := unused(trees)
	if err != nil {
		return 0, err
	}
	for _, tree := range chosen {
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
