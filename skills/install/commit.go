package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
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
type moved struct{ from, to string }

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
	if err := s.i.before("journal"); err != nil {
		return err
	}
	if err := writeFile(s.i.root, workDir+"/"+journalName, []byte(strings.Join(names, "\n")+"\n")); err != nil {
		return err
	}
	var done []moved
	defer func() {
		if err == nil {
			return
		}
		for n := len(done) - 1; n >= 0; n-- {
			if undo := s.i.root.Rename(done[n].to, done[n].from); undo != nil {
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
		if err := syncDir(s.i.root, installedDir+"/"+tier.String()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := s.i.before("lock file"); err != nil {
		return err
	}
	lock := s.i.lock.with(entries)
	if err := writeFile(s.i.root, lockName, lock.encode()); err != nil {
		return fmt.Errorf("write the lock file: %w", err)
	}
	s.i.lock = lock
	// From here on the change is made: what is left behind is for the next command to remove.
	_ = s.i.root.Remove(workDir + "/" + journalName)
	_ = s.remove()
	s.new = nil
	return nil
}

// move takes a skill from its place, and puts the staged one into its own.
func (s *stage) move(c change, done *[]moved) error {
	rename := func(from, to string) error {
		err := s.i.root.Rename(from, to)
		if err == nil {
			*done = append(*done, moved{from, to})
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

// writeFile replaces a file with one that is complete and durable.
func writeFile(root *os.Root, name string, data []byte) (err error) {
	temp := name + ".tmp"
	file, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, root.Remove(temp))
		}
	}()
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := root.Rename(temp, name); err != nil {
		return err
	}
	return syncDir(root, ".")
}
