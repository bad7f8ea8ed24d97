package filestore

import (
	"bytes"
	"cmp"
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

// ownDir reports whether nobody but this user and the superuser can write to the directory of all records.
func ownDir(root *os.Root) bool {
	info, err := root.Stat(".")
	return err == nil && fsys.Exposed(info) == nil
}

// checkOwner refuses a session that somebody else could write, and with it what it says was loaded: such a
// directory was there before the one of all records was this user's.
//
// Errors: provenance.ErrCorrupt.
func checkOwner(dir *os.Root) error {
	for _, name := range []string{".", provenance.EventsFile} {
		info, err := dir.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = fsys.Exposed(info)
		}
		if err != nil {
			what := map[string]string{".": "its directory"}[name]
			return fmt.Errorf("%w: %s: %w", provenance.ErrCorrupt, cmp.Or(what, name), cause(err))
		}
	}
	return nil
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

// writeFile is the function of this name. In a session that has not begun, the file is on stable storage as
// late as before its first event: its directory is synced once then.
func (s *session) writeFile(dir *os.Root, name string, data []byte) error {
	if !syncsLater || path.Dir(name) != "." || s.at() == s.id {
		return writeFile(dir, name, data, fileMode)
	}
	if err := fsys.WriteUnsyncedIn(dir, name, data, fileMode); err != nil {
		return err
	}
	s.unsynced.addFile(name, data)
	return nil
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

// Keep implements provenance.Writer. The text is on stable storage before the event that names it, and as
// late as that.
func (st *Store) Keep(ctx context.Context, id string, data []byte) (digest.Digest, error) {
	if !provenance.ValidSessionID(id) {
		return "", fmt.Errorf("keep what is shown: %w: session id", provenance.ErrInvalid)
	}
	d := digest.FromBytes(data)
	err := st.with(ctx, id, func(s *session) error {
		if st.opts.ForgetShown {
			return nil
		}
		if err := s.enter(); err != nil {
			return err
		}
		defer s.wg.Done()
		s.shown.mu.Lock()
		defer s.shown.mu.Unlock()
		if s.kept[d] {
			return nil // Verify finds it if it was removed since
		}
		if s.shown.counted && s.hasRoom(data) && s.linkText(d, data) == nil {
			return nil
		}
		return s.inDir("keep what is shown", func(dir *os.Root) error { return s.keepText(dir, d, data) })
	})
	return d, err
}

// share makes name a link to the pool's file of these bytes. If there is none, or the file system has no
// links, it writes the file and offers it to other sessions. The content is on stable storage; the name is
// not before its directory is.
func (s *session) share(dir *os.Root, name string, d digest.Digest, data []byte) error {
	// Another session may have written it just now. One that cannot be synced is written again.
	if s.link(dir, name, path.Join(pool, d.Encoded()), data) == nil && s.store.synced.file(dir, name) == nil {
		return nil
	}
	if err := dir.Mkdir(path.Dir(name), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := fsys.WriteFileIn(dir, name, data, sharedMode); err != nil {
		return err
	}
	s.offer(name, d, data)
	return nil
}

// offer puts a link to a file that the session wrote into the pool. A failure only costs other sessions a
// file each.
func (s *session) offer(name string, d digest.Digest, data []byte) {
	s.store.ledger.add(s.id, "", int64(len(data)), 0)
	root, own, pooled := s.store.root, path.Join(s.at(), name), path.Join(pool, d.Encoded())
	switch err := root.Link(own, pooled); {
	case errors.Is(err, fs.ErrNotExist):
		_ = root.Mkdir(pool, 0o700)
		_ = root.Link(own, pooled)
	case errors.Is(err, fs.ErrExist):
		_ = root.Remove(pooled) // it was changed, or has as many links as a file can have
		_ = root.Link(own, pooled)
	}
}

// link makes name a link to a file of the pool that has these bytes.
func (s *session) link(dir *os.Root, name, pooled string, data []byte) error {
	info, err := readPooled(s.store.root, pooled, data)
	if err != nil {
		return err
	}
	_, err = s.linkTo(dir, name, pooled, info)
	return err
}

// readPooled reads a file of the pool, which must have these bytes.
func readPooled(root *os.Root, name string, data []byte) (fs.FileInfo, error) {
	f, err := openRegular(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found := make([]byte, len(data)+1)
	if n, _ := io.ReadFull(f, found); !bytes.Equal(found[:n], data) {
		return nil, errors.New("the file was changed")
	}
	return f.Stat()
}

// untouched reports whether a file is as it was when its bytes were known, as far as its times show.
func untouched(was, is fs.FileInfo) bool {
	changed := fsys.ChangeTime(is)
	return changed != 0 && changed == fsys.ChangeTime(was) && sameFile(was, is)
}

// sameFile reports whether a file is still the one that was looked at, and not written since.
func sameFile(was, is fs.FileInfo) bool {
	return os.SameFile(was, is) && was.Size() == is.Size() && was.ModTime().Equal(is.ModTime())
}

// linkTo makes name a link to a file of the pool, if that still is the one that info is of. It returns what
// is then known of the file.
func (s *session) linkTo(dir *os.Root, name, pooled string, info fs.FileInfo) (fs.FileInfo, error) {
	// Like the link, a new directory of shown texts may be lost: syncing it would delay the first text.
	if err := dir.Mkdir(path.Dir(name), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	temp := path.Join(path.Dir(name), fsys.TempPrefix+rand.Text())
	if err := s.store.root.Link(pooled, path.Join(s.at(), temp)); err != nil {
		return nil, err
	}
	// Another process may have replaced or written to the file after it was looked at.
	linked, err := dir.Lstat(temp)
	if err == nil && !sameFile(info, linked) {
		err = errors.New("the file was changed or replaced")
	}
	if err == nil {
		err = dir.Rename(temp, name)
	}
	// Renaming a file to another link to itself does nothing, so the temporary name may still be there.
	if removed := dir.Remove(temp); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	if err != nil {
		return nil, err
	}
	return dir.Lstat(name) // the names that a file has had are in the time of its last change
}
