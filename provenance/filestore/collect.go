package filestore

import (
	"cmp"
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

// Collect implements provenance.Reader. It deletes each session by renaming its directory and removing
// the renamed directory; after a crash in between, the next call removes it. It leaves alone directories
// of anything but sessions.
func (r *reader) Collect(
	ctx context.Context, opts provenance.CollectOptions,
) ([]provenance.Collected, error) {
	if r.root == nil {
		return nil, nil
	}
	entries, err := fs.ReadDir(r.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", cause(err))
	}
	for _, en := range entries {
		// An earlier call renamed it and was killed before it removed it.
		if strings.HasPrefix(en.Name(), trashPrefix) && !opts.DryRun {
			if err := r.root.RemoveAll(en.Name()); err != nil {
				return nil, fmt.Errorf("collect sessions: %w", cause(err))
			}
		}
	}
	all := written(r.root, entries)
	all = slices.DeleteFunc(all, func(w writtenAt) bool { return !r.isSession(w.id) })
	var gone []provenance.Collected
	for i, w := range all {
		if err := ctx.Err(); err != nil {
			return gone, err
		}
		if i < opts.Keep || !w.at.Before(opts.Before) {
			continue
		}
		c := provenance.Collected{ID: w.id, Written: w.at}
		c.Bytes, c.Err = r.collect(w.id, opts.DryRun)
		gone = append(gone, c)
	}
	if opts.DryRun {
		return gone, nil
	}
	return gone, emptyPool(r.root)
}

type writtenAt struct {
	id string
	at time.Time
}

// written returns all sessions with the time their record was written, or their directory if there is no
// record, the last one first.
func written(root *os.Root, entries []fs.DirEntry) []writtenAt {
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
		return cmp.Or(b.at.Compare(a.at), strings.Compare(b.id, a.id))
	})
	return all
}

// collect deletes a session whose lock is free. It holds the lock until the directory has lost its name: a
// process that waits for the lock then notices the deletion.
func (r *reader) collect(id string, dry bool) (size int64, err error) {
	dir, err := r.session(id)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	if dry {
		if r.isHeld(dir, id) {
			return 0, provenance.ErrHeld
		}
		return usage(dir)
	}
	if err := checkRegular(dir, provenance.LockFile); err != nil {
		return 0, fmt.Errorf("%s: %w", provenance.LockFile, err)
	}
	lock := flock.New(filepath.Join(r.dir, id, provenance.LockFile), flock.SetPermissions(fileMode))
	free, err := lock.TryLock()
	if err != nil {
		return 0, cause(err)
	}
	if !free {
		return 0, provenance.ErrHeld
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if size, err = usage(dir); err != nil {
		return 0, err
	}
	// Renaming first makes the deletion atomic for readers; the prefix is not a session's name.
	trash := trashPrefix + rand.Text()
	if err := r.root.Rename(id, trash); err != nil {
		return 0, cause(err)
	}
	if err := fsys.SyncDir(r.root, "."); err != nil {
		return 0, cause(err)
	}
	return size, cause(r.root.RemoveAll(trash))
}

// usage returns how many bytes deleting the directory frees.
func usage(dir *os.Root) (size int64, err error) {
	err = fs.WalkDir(dir.FS(), ".", func(name string, en fs.DirEntry, err error) error {
		if err != nil || !en.Type().IsRegular() {
			return err
		}
		info, err := en.Info()
		if err != nil {
			return err
		}
		// A file with links in other sessions stays; of a shared file, the pool has one more link.
		n, known := links(info)
		if !known || n == 1 || n == 2 && info.Mode().Perm() == sharedMode {
			size += info.Size()
		}
		return nil
	})
	return size, cause(err)
}

// emptyPool removes the files of the pool that no session has a link to. Where links cannot be counted, it
// removes all of them, which costs later sessions a file each.
func emptyPool(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), pool)
	for _, en := range entries {
		info, failed := en.Info()
		if failed == nil {
			if n, known := links(info); known && n > 1 {
				continue
			}
			failed = root.Remove(path.Join(pool, en.Name()))
		}
		if failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, cause(failed))
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("collect shared files: %w", cause(err))
	}
	return nil
}
