package install

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/store"
)

// Collect removes the stored trees that neither the lock file nor anything else needs, and returns how
// many it removed. used deletes the trees that something else needs from a set. While another process,
// such as a server, has the store open, nothing is removed, which is not an error.
//
// Errors: the error of used; errors of ctx; system errors.
func (i *Installer) Collect(
	ctx context.Context, used func(trees map[digest.Digest]bool) error,
) (removed int, err error) {
	removed, err = i.cfg.Trees.Sweep(ctx, func(trees []digest.Digest) ([]digest.Digest, error) {
		left := make(map[digest.Digest]bool, len(trees))
		for _, tree := range trees {
			left[tree] = true
		}
		for _, e := range i.lock.Skills {
			delete(left, e.Tree)
			if e.Previous != nil {
				delete(left, e.Previous.Tree)
			}
		}
		if len(left) == 0 {
			return nil, nil
		}
		if err := used(left); err != nil {
			return nil, err
		}
		return slices.Collect(maps.Keys(left)), nil
	})
	if errors.Is(err, store.ErrInUse) {
		err = nil
	}
	return removed, err
}
