package filestore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// trashPrefix begins the name of a session's directory that is being deleted; no session has it.
const trashPrefix = "~gc-"

// CollectOptions say which sessions [Collect] deletes.
type CollectOptions struct {
	Before time.Time // only those last written before
	Keep   int       // but not this many of those that were written last
	DryRun bool      // delete nothing
}

// Collected is a session that was deleted, or in a dry run would be.
type Collected struct {
	ID      string
	Written time.Time // when its record was last written
	Bytes   int64     // that no other session has links of
	Err     error     // why it is still there; ErrHeld for one that a process has open
}

// ErrHeld means that a process has a session open.
var ErrHeld = errors.New("a process has the session open")

// Collect deletes whole sessions below dir, each by renaming its directory and removing what it
// holds; what a crash leaves of that goes with the next call. A session that a process has open is
// never touched, nor is a directory that is none of a session's. Parents and children do not depend on
// each other: each record stands alone, and a child whose parent was deleted still names it. What was
// shown and no session has any more goes too.
//
// Errors: that of reading dir, or of ctx; those of single sessions stand in the result.
func Collect(ctx context.Context, dir string, opts CollectOptions) ([]Collected, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("collect sessions: %w", err)
	}
	defer root.Close()
	if !opts.DryRun {
		if err := emptyTrash(root); err != nil {
			return nil, fmt.Errorf("collect sessions: %w", cause(err))
		}
	}
	all, err := written(root)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(w writtenAt) bool { return !isSession(root, w.id) })
	var gone []Collected
	for i, w := range all {
		if err := ctx.Err(); err != nil {
			return gone, err
		}
		if i < opts.Keep || !w.at.Before(opts.Before) {
			continue
		}
		c := Collected{ID: w.id, Written: w.at}
		c.Bytes, c.Err = collect(root, dir, w.id, opts.DryRun)
		gone = append(gone, c)
	}
	if opts.DryRun {
		return gone, nil
	}
	return gone, emptyPool(root)
}

type writtenAt struct {
	id string
	at time.Time
}

// written returns all sessions with when their record was written, or when there is none their
// directory, the last one first.
func written(root *os.Root) ([]writtenAt, error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", cause(err))
	}
	var all []writtenAt
	for _, en := range entries {
		if !en.IsDir() || !provenance.ValidSessionID(en.Name()) {
			continue
		}
		info, err := root.Lstat(path.Join(en.Name(), provenance.EventsFile))
		if err != nil {
			if info, err = root.Lstat(en.Name()); err != nil {
				continue
			}
		}
		all = append(all, writtenAt{en.Name(), info.ModTime()})
	}
	slices.SortFunc(all, func(a, b writtenAt) int {
		if c := b.at.Compare(a.at); c != 0 {
			return c
		}
		return strings.Compare(b.id, a.id)
	})
	return all, nil
}

// collect deletes a session whose lock is free. The lock is held until the directory has lost its
// name, so whoever waits for it finds that out.
func collect(root *os.Root, base, id string, dry bool) (size int64, err error) {
	dir, err := openSession(root, id)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	if dry {
		if isHeld(dir, filepath.Join(base, id)) {
			return 0, ErrHeld
		}
		return usage(dir)
	}
	if err := checkRegular(dir, provenance.LockFile); err != nil {
		return 0, fmt.Errorf("%s: %w", provenance.LockFile, err)
	}
	lock := flock.New(filepath.Join(base, id, provenance.LockFile), flock.SetPermissions(fileMode))
	free, err := lock.TryLock()
	if err != nil {
		return 0, cause(err)
	}
	if !free {
		return 0, ErrHeld
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if size, err = usage(dir); err != nil {
		return 0, err
	}
	trash := trashPrefix + rand.Text()
	if err := root.Rename(id, trash); err != nil {
		return 0, cause(err)
	}
	if err := fsys.SyncDir(root, "."); err != nil {
		return 0, cause(err)
	}
	return size, cause(root.RemoveAll(trash))
}

// usage is how many bytes deleting the directory frees.
func usage(dir *os.Root) (size int64, err error) {
	err = fs.WalkDir(dir.FS(), ".", func(name string, en fs.DirEntry, err error) error {
		if err != nil || !en.Type().IsRegular() {
			return err
		}
		info, err := en.Info()
		if err != nil {
			return err
		}
		n, known := links(info)
		if pooled := provenance.IsShown(name) && n == 2; !known || n == 1 || pooled {
			size += info.Size()
		}
		return nil
	})
	return size, cause(err)
}

// emptyTrash finishes what a crash kept an earlier call from.
func emptyTrash(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, en := range entries {
		if strings.HasPrefix(en.Name(), trashPrefix) {
			if err := root.RemoveAll(en.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// emptyPool removes what was shown and no session has a link of. Where links cannot be counted all
// of it goes, which costs later sessions a file each.
func emptyPool(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), shownPool)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("collect what was shown: %w", cause(err))
	}
	for _, en := range entries {
		info, err := en.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("collect what was shown: %w", cause(err))
		}
		if n, known := links(info); known && n > 1 {
			continue
		}
		if err := root.Remove(path.Join(shownPool, en.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("collect what was shown: %w", cause(err))
		}
	}
	return nil
}
