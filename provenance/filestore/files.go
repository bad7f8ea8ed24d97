package filestore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

const fileMode = 0o600

// openSession opens the directory of an existing session.
func openSession(root *os.Root, id string) (*os.Root, error) {
	if !provenance.ValidSessionID(id) {
		return nil, fmt.Errorf("session %.60q: %w", id, provenance.ErrNotFound)
	}
	dir, err := root.OpenRoot(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("session %s: %w", id, provenance.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", id, cause(err))
	}
	return dir, nil
}

// unbegun is a directory next to the directories of the sessions, under a name that no session has. A new
// session's directory is in it until the first event is on stable storage: a session that answered nothing
// before its process was killed leaves no record that looks emptied.
const unbegun = "~new"

// makeUnbegun makes the directory of a session that has no event. It returns its name also if it exists.
func makeUnbegun(root *os.Root, id string) (string, error) {
	if err := root.Mkdir(unbegun, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	name := path.Join(unbegun, id)
	return name, root.Mkdir(name, 0o700)
}

// staleUnbegun is how long a directory in unbegun is left alone that no process has locked: its process may
// be about to.
const staleUnbegun = time.Minute

// removeUnbegun deletes what killed processes left in unbegun.
func removeUnbegun(dir string, root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), unbegun)
	for _, en := range entries {
		name := path.Join(unbegun, en.Name())
		if info, err := en.Info(); err != nil || time.Since(info.ModTime()) < staleUnbegun {
			continue
		}
		lock := flock.New(filepath.Join(dir, name, provenance.LockFile), flock.SetPermissions(fileMode))
		if free, failed := lock.TryLock(); failed != nil || !free {
			err = errors.Join(err, cause(failed))
			continue
		}
		err = errors.Join(err, cause(root.RemoveAll(name)), lock.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove sessions that never began: %w", cause(err))
	}
	return nil
}

// writeFile replaces name by data. After a crash, it is the old file or the new one.
func writeFile(dir *os.Root, name string, data []byte, mode fs.FileMode) error {
	parent := path.Dir(name)
	if err := makeDir(dir, parent); err != nil {
		return err
	}
	if err := fsys.WriteFileIn(dir, name, data, mode); err != nil {
		return err
	}
	return fsys.SyncDir(dir, parent)
}

// makeDir creates a directory durably if it does not exist.
func makeDir(dir *os.Root, name string) error {
	err := dir.Mkdir(name, 0o700)
	if err == nil {
		return fsys.SyncDir(dir, ".")
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// removeTemps deletes the temporary files of a writeFile that a crash interrupted. The session must be
// locked.
func removeTemps(dir *os.Root) error {
	for _, parent := range []string{".", provenance.OutputsDir, provenance.ShownDir} {
		entries, err := fs.ReadDir(dir.FS(), parent)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, en := range entries {
			if strings.HasPrefix(en.Name(), fsys.TempPrefix) {
				if err := dir.Remove(path.Join(parent, en.Name())); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// checkRegular returns an error if name is neither a regular file nor absent.
func checkRegular(dir *os.Root, name string) error {
	info, err := dir.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return cause(err)
	case !info.Mode().IsRegular():
		return fsys.ErrNotRegular
	}
	return nil
}

// openRegular opens a regular file for reading. It refuses links and devices, and does not block on a named
// pipe. Errors: provenance.ErrNotFound, fsys.ErrNotRegular.
func openRegular(dir *os.Root, name string) (*os.File, error) {
	f, _, err := fsys.OpenIn(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, provenance.ErrNotFound
	}
	return f, cause(err)
}

const (
	// pool is a directory next to the directories of the sessions, under a name that no session has, with
	// texts that models were shown and large snapshots, such as the registry. Sessions have links to its
	// files, so it can be emptied at any time.
	pool = "~shown"

	// minShared is the size in bytes from which a snapshot is shared; a link to a smaller one saves too
	// little.
	minShared = 16 << 10

	// maxShown is how many bytes of shown texts a session keeps by default; maxShownFiles is how many texts
	// it keeps.
	maxShown      = 256 << 20
	maxShownFiles = 10_000
)

// KeepsShown returns how many bytes a session keeps of the texts that its model is shown; 0 if it keeps none.
func (st *Store) KeepsShown() int64 {
	if st.opts.ForgetShown {
		return 0
	}
	return st.opts.Shown
}

// Keep implements provenance.Writer. It syncs texts that are kept for the first time, and links to the
// ones that other sessions were shown.
func (st *Store) Keep(ctx context.Context, id string, data []byte) (digest.Digest, error) {
	if !provenance.ValidSessionID(id) {
		return "", fmt.Errorf("keep what is shown: %w: session id", provenance.ErrInvalid)
	}
	d := digest.FromBytes(data)
	err := st.with(ctx, id, func(s *session) error {
		if st.opts.ForgetShown {
			return nil
		}
		return s.use("keep what is shown", func(dir *os.Root) error {
			s.shown.mu.Lock()
			defer s.shown.mu.Unlock()
			name, size := provenance.ShownName(d), int64(len(data))
			// Verify checks the bytes.
			if info, err := dir.Lstat(name); err == nil && info.Mode().IsRegular() && info.Size() == size {
				return nil
			}
			if err := s.shown.count(dir, provenance.ShownDir); err != nil {
				return err
			}
			if s.shown.bytes+size > s.opts.Shown || s.shown.files >= maxShownFiles {
				return nil
			}
			if err := s.share(dir, name, d, data); err != nil {
				return err
			}
			s.shown.files++
			s.shown.bytes += size
			return nil
		})
	})
	return d, err
}

// share makes name a link to the pool's file of these bytes. If there is none, or the file system has no
// links, it writes the file and offers it to other sessions. After a crash, name is the old file or the new
// one; a link may be lost until its directory is synced.
func (s *session) share(dir *os.Root, name string, d digest.Digest, data []byte) error {
	root, pooled := s.store.root, path.Join(pool, d.Encoded())
	if s.link(dir, name, pooled, data) == nil {
		return nil
	}
	if err := writeFile(dir, name, data, sharedMode); err != nil {
		return err
	}
	s.store.ledger.add(s.id, "", int64(len(data)), 0)
	if err := root.Mkdir(pool, 0o700); err == nil || errors.Is(err, fs.ErrExist) {
		// A failure only costs other sessions a file each.
		_ = root.Remove(pooled)
		_ = root.Link(path.Join(s.at(), name), pooled)
	}
	return nil
}

// link makes name a link to a file of the pool that has these bytes.
func (s *session) link(dir *os.Root, name, pooled string, data []byte) error {
	f, err := openRegular(s.store.root, pooled)
	if err != nil {
		return err
	}
	defer f.Close()
	found, err := io.ReadAll(io.LimitReader(f, int64(len(data))+1))
	if err != nil || !bytes.Equal(found, data) {
		return errors.Join(errors.New("the file was changed"), err)
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	// Like the link, a new directory of shown texts may be lost: syncing it would delay the first text.
	if err := dir.Mkdir(path.Dir(name), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	temp := path.Join(path.Dir(name), fsys.TempPrefix+rand.Text())
	if err := s.store.root.Link(pooled, path.Join(s.at(), temp)); err != nil {
		return err
	}
	// Another process may have replaced the file after it was read.
	linked, err := dir.Lstat(temp)
	if err == nil && !os.SameFile(info, linked) {
		err = errors.New("the file was replaced")
	}
	if err == nil {
		err = dir.Rename(temp, name)
	}
	// Renaming a file to another link to itself does nothing, so the temporary name may still be there.
	if removed := dir.Remove(temp); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}
