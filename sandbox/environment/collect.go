package environment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skillsd/skillsd/skills/content"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

const (
	makersFile = "making" // locked by the process that makes or removes environments
	locksFile  = "locks"  // the paths of the lock files whose environments were made here, one a line
	maxLocks   = 1 << 20
	askAgain   = 100 * time.Millisecond
)

// Lock waits until no other process makes or removes environments in the store, and locks the store until it
// is closed. It removes the incomplete files of a process that died. It calls wait once if another process
// holds the lock. A new environment is safe from collections until the lock file that names it is written,
// because a collection needs the store's lock too. Servers only read, and need no lock.
//
// Errors: the error of ctx; ErrUnwritable.
func (s *Store) Lock(ctx context.Context, wait func()) error {
	file, err := s.root.OpenFile(makersFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("%w: %v", ErrUnwritable, err)
	}
	for first := true; fsys.Locks && !fsys.LockAlone(file); first = false {
		if first {
			wait()
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), file.Close())
		}
	}
	s.making = file
	// With the lock, no other process is making files, so each temporary one is left over from a process that
	// died.
	for _, dir := range []content.Dir{s.made, s.temps} {
		dir.RemoveTemps(func(fs.FileInfo) bool { return true })
	}
	return nil
}

// names returns the names in a directory of the store, or nil if it cannot be read.
func (s *Store) names(dir string) (names []string) {
	names, _ = content.DirOf(s.root, dir).Names()
	return names
}

// Refer records that the lock file at a path names environments of the store. The caller holds the store's
// lock.
//
// Errors: system errors.
func (s *Store) Refer(lock string) error {
	known, err := s.References()
	if err != nil || slices.Contains(known, lock) {
		return err
	}
	text := strings.Join(append(known, lock), "\n") + "\n"
	temp, _, _, err := s.temp(0o600, strings.NewReader(text))
	if err != nil {
		return err
	}
	// A crash must not leave a part of the list, because a collection would delete what the rest of it names.
	if err := s.place(temp, locksFile); err != nil {
		return err
	}
	return fsys.SyncDir(s.root, ".")
}

// References returns the lock files whose environments were made in the store.
//
// Errors: system errors.
func (s *Store) References() (locks []string, err error) {
	text, err := fsys.ReadFileIn(s.root, locksFile, maxLocks)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		locks = append(locks, strings.TrimSuffix(string(line), "\n"))
	}
	return locks, nil
}

// Unused returns the names of the trees that are in none of the locks.
func (s *Store) Unused(locks ...*Lock) (trees []string) {
	needed := map[string]bool{}
	for _, lock := range locks {
		for _, e := range lock.Environments {
			needed[e.Digest.Encoded()] = true
		}
	}
	for _, name := range s.names(treesDir) {
		if sum, _, _ := strings.Cut(name, "-"); treeName().MatchString(name) && !needed[sum] {
			trees = append(trees, name)
		}
	}
	return trees
}

// Collection is the result of a collection.
type Collection struct {
	Trees []string `json:"trees"` // removed
	InUse []string `json:"inUse"` // kept: a process has them open
	Bytes int64    `json:"bytes"` // freed
}

// Collect removes the trees, contents, packed packages and marks that none of the locks needs. A tree that a
// process has open stays, with its contents. The caller holds the store's lock.
//
// Errors: errors of ctx; system errors.
func (s *Store) Collect(ctx context.Context, locks ...*Lock) (c Collection, err error) {
	c.Trees, c.InUse = []string{}, []string{}
	for _, name := range s.Unused(locks...) {
		if err := ctx.Err(); err != nil {
			return c, err
		}
		switch err := s.Remove(name); {
		case errors.Is(err, ErrInUse):
			c.InUse = append(c.InUse, name)
		case err != nil:
			return c, err
		default:
			c.Trees = append(c.Trees, name)
		}
	}
	packed := map[string]bool{}
	for _, lock := range locks {
		for _, e := range lock.Environments {
			for _, p := range e.Packages() {
				packed[path.Base(downloadName(p.Sum()))] = true
			}
		}
	}
	trees := s.names(treesDir)
	for dir, needless := range map[string]func(name string, info fs.FileInfo) bool{
		// A content is needed as long as a tree has a hard link to it.
		blobsDir:     func(_ string, info fs.FileInfo) bool { return fsys.Names(info) == 1 },
		downloadsDir: func(name string, _ fs.FileInfo) bool { return !packed[name] },
		marksDir:     func(name string, _ fs.FileInfo) bool { return !slices.Contains(trees, name) },
	} {
		for _, name := range s.names(dir) {
			at := path.Join(dir, name)
			info, gone := s.root.Lstat(at)
			if gone != nil || !needless(name, info) {
				continue
			}
			if err := errors.Join(ctx.Err(), s.root.Remove(at)); err != nil {
				return c, err
			}
			s.mu.Lock()
			delete(s.known, at)
			s.mu.Unlock()
			c.Bytes += info.Size()
		}
	}
	return c, nil
}
