package environments

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/sandbox/environment"
)

// openStore opens the store of environments. The caller closes it.
func openStore(p *config.Process) (*environment.Store, error) {
	state, err := p.StateDir()
	if err != nil {
		return nil, err
	}
	store, err := environment.Open(config.EnvironmentsDir(state))
	if err != nil {
		return nil, exit.Directory("state directory", "--state", err)
	}
	return store, nil
}

// lockedStore opens and locks the store of environments. The caller closes it.
func (c *Command) lockedStore(ctx context.Context) (*environment.Store, error) {
	store, err := openStore(c.Process)
	if err != nil {
		return nil, err
	}
	if err := c.lockStore(ctx, store); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// lockStore locks a store and registers the lock file of this configuration in it.
func (c *Command) lockStore(ctx context.Context, store *environment.Store) error {
	err := store.Lock(ctx, func() {
		c.Notef("skillsd: note: waiting for another skillsd that makes environments")
	})
	if err != nil {
		return err
	}
	path, err := c.Process.LockPath()
	if err != nil {
		return err
	}
	if path != "" {
		// The garbage collection of another configuration with this store then keeps what this lock needs.
		err = store.Refer(path)
	}
	return err
}

// locksOf returns the locks of all configurations with environments in the store. Deleted lock files are
// skipped.
//
// Errors: *exit.Error for an unreadable lock, because its requirements are unknown.
func locksOf(store *environment.Store) (locks []*environment.Lock, err error) {
	paths, err := store.References()
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		lock, err := config.ReadLock(path)
		if err != nil {
			return nil, exit.Errorf(exit.Failure, "correct or remove it, then run `skillsd env gc`",
				"nothing is removed: %s cannot be read: %w", report.Printable(path), err)
		}
		if lock != nil {
			locks = append(locks, lock)
		}
	}
	return locks, nil
}

// collect removes files that no configuration needs. A failure is only a note, because the command itself has
// succeeded.
func (c *Command) collect(ctx context.Context, store *environment.Store) {
	const stay = "skillsd: note: earlier files stay: %v"
	locks, err := locksOf(store)
	if err != nil {
		// A lock that cannot be read may need any tree, so nothing is removed.
		c.Notef(stay, err)
		return
	}
	done, err := store.Collect(ctx, locks...)
	if err != nil {
		c.Notef(stay, err)
	}
	c.noteInUse(done.InUse)
}

func (c *Command) noteInUse(names []string) {
	if len(names) > 0 {
		c.Notef("skillsd: note: a server that runs has %s open; `skillsd env gc` removes them once it "+
			"has ended", report.Plural(len(names), "tree"))
	}
}

// Collect removes the files that no configuration and no server needs.
func (c *Command) Collect(ctx context.Context, dry bool) error {
	store, err := c.lockedStore(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	locks, err := locksOf(store)
	if err != nil {
		return err
	}
	done, did := environment.Collection{Trees: store.Unused(locks...), InUse: []string{}}, "would delete"
	if !dry {
		did = "deleted"
		done, err = store.Collect(ctx, locks...)
		if err != nil {
			return err
		}
	}
	if c.JSON {
		return report.WriteJSON(c.Out, done)
	}
	for _, name := range done.Trees {
		sum, variant, _ := strings.Cut(name, "-")
		fmt.Fprintf(c.Out, "%s sha256:%s %s\n", did, sum, variant)
	}
	fmt.Fprintf(c.Out, "%s %s", did, report.Plural(len(done.Trees), "tree"))
	if !dry {
		fmt.Fprintf(c.Out, ", %.1f MiB", float64(done.Bytes)/(1<<20))
	}
	fmt.Fprintln(c.Out)
	c.noteInUse(done.InUse)
	return nil
}
