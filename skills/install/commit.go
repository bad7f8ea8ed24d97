package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// change is one skill before and after a command; nil: it is not installed.
type change struct{ before, after *Entry }

func (c *change) name() string {
	if c.after != nil {
		return c.after.Name
	}
	return c.before.Name
}

// moved is a rename that was done, to be undone.
type moved struct {
	from, to string
	swapped  bool // each is where the other was
}

func (i *Installer) undo(m moved) error {
	if m.swapped {
		return i.exchange(m.from, m.to)
	}
	return i.root.Rename(m.to, m.from)
}

// exchange swaps two directories in one step, where a system can.
//
// Errors: errors.ErrUnsupported.
func (i *Installer) exchange(a, b string) error {
	return exchange(filepath.Join(i.cfg.State, filepath.FromSlash(a)), filepath.Join(i.cfg.State, filepath.FromSlash(b)))
}

// commit makes all changes: the skills of the stage take their places, then the lock file is
// replaced. The names are in the journal meanwhile. When it fails everything is as it was.
func (s *stage) commit(ctx context.Context, changes []change) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	names := make([]string, len(changes))
	entries := map[string]*Entry{}
	for n, c := range changes {
		names[n], entries[c.name()] = c.name(), c.after
	}
	for _, e := range s.same {
		entries[e.Name] = e
	}
	if err := s.journal(names); err != nil {
		return err
	}
	var done []moved
	defer func() {
		if err == nil {
			return
		}
		for n := len(done) - 1; n >= 0; n-- {
			if undo := s.i.undo(done[n]); undo != nil {
				err = errors.Join(err, fmt.Errorf("undo: %w", undo))
				return // the journal stays, for the next command
			}
		}
		err = errors.Join(err, s.i.root.Remove(workDir+"/"+journalName))
	}()
	for _, c := range changes {
		if err := s.i.before("rename " + c.name()); err != nil {
			return err
		}
		if err := s.move(c, &done); err != nil {
			return err
		}
	}
	for _, tier := range tiers() {
		if err := fsys.SyncDir(s.i.root, installedDir+"/"+tier.String()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := s.i.before("lock file"); err != nil {
		return err
	}
	lock := s.i.lock.with(entries)
	// Written in workDir, where the next command removes what a crash leaves.
	const written = workDir + "/" + lockName
	err = fsys.WriteFileIn(s.i.root, written, lock.encode(), 0o600)
	if err == nil {
		err = s.i.root.Rename(written, lockName)
	}
	if err != nil {
		return fmt.Errorf("write the lock file: %w", err)
	}
	s.i.lock = lock
	// From here on the change is made. What is left behind is for the next command to remove, which
	// also undoes the change should the lock file of before come back after a power failure.
	if fsys.SyncDir(s.i.root, ".") != nil {
		return nil
	}
	_ = s.i.root.Remove(workDir + "/" + journalName)
	_ = s.remove()
	s.new = nil
	return nil
}

// journal writes down the names that are about to change.
func (s *stage) journal(names []string) error {
	if err := s.i.before("journal"); err != nil {
		return err
	}
	if err := fsys.WriteFileIn(s.i.root, workDir+"/"+journalName, []byte(strings.Join(names, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	if err := fsys.SyncDir(s.i.root, workDir); err != nil {
		return errors.Join(err, s.i.root.Remove(workDir+"/"+journalName))
	}
	return nil
}

// move takes a skill from its place, and puts the staged one into its own.
func (s *stage) move(c change, done *[]moved) error {
	rename := func(from, to string) error {
		err := s.i.root.Rename(from, to)
		if err == nil {
			*done = append(*done, moved{from: from, to: to})
		}
		return err
	}
	was, is := "", ""
	if c.before != nil {
		was = placeOf(c.before.Tier, c.name())
	}
	if c.after != nil && c.after.Enabled {
		is = placeOf(c.after.Tier, c.name())
		if err := s.i.root.MkdirAll(installedDir+"/"+c.after.Tier.String(), 0o700); err != nil {
			return err
		}
	}
	if was != "" && was == is {
		// A server that is reading sees the one or the other, and never neither.
		if staged := s.placed(c.name()); s.i.exchange(staged, is) == nil {
			*done = append(*done, moved{from: staged, to: is, swapped: true})
			return nil
		}
	}
	if was != "" {
		if err := rename(was, s.old(c.name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if is == "" {
		return nil
	}
	if _, err := s.i.root.Lstat(is); err == nil {
		return fmt.Errorf("%s is in the way", is)
	}
	return rename(s.placed(c.name()), is)
}
