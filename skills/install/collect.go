package install

import (
	"context"
	"errors"

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
	removed, err = i.cfg.Trees.Sweep(ctx, func(trees map[digest.Digest]bool) error {
		for _, e := range i.lock.Skills {
			delete(trees, e.Tree)
			if e.Previous != nil {
				delete(trees, e.Previous.Tree)
			}
		}
		if len(trees) == 0 {
			return nil // what else needs trees is costly to find out
		}
		return used(trees)
	})
	if errors.Is(err, store.ErrInUse) {
		err = nil
	}
	return removed, err
}
