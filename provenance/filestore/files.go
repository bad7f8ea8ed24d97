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
	"github.com/skillsd/skillsd/skills/content"
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

// ownDir reports whether only this user and the superuser can write to the store's directory.
func ownDir(root *os.Root) bool {
	info, err := root.Stat(".")
	return err == nil && fsys.Exposed(info) == nil
}

// checkOwner refuses a session that another user could write, because its record of loaded skills cannot be
// trusted. Such a directory is older than this user's ownership of the store's directory.
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

// unbegun is a directory next to the session directories, under a name that no session can have. A new
// session's directory stays in it until the first event is on stable storage. A process that is killed before
// its session answered anything thus leaves no record that looks emptied.
const unbegun = "~new"

// makeUnbegun creates the directory of a session without events. It returns the name even if the directory
// exists.
func makeUnbegun(root *os.Root, id string) (string, error) {
	if err := root.Mkdir(unbegun, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	name := path.Join(unbegun, id)
	return name, root.Mkdir(name, 0o700)
}

// staleUnbegun is the age at which an unlocked directory in unbegun may be deleted. The process that created
// a younger one may be about to lock it.
const staleUnbegun = time.Minute

// removeUnbegun deletes the directories that killed processes left in unbegun.
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

// writeFile replaces the file name with data. After a crash, name is the old file or the new one.
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

// writeFile writes a file of the session like the function writeFile. Before the session's first event, it
// defers the sync until that event.
func (s *session) writeFile(dir *os.Root, name string, data []byte) error {
	if !syncsLater || path.Dir(name) != "." || s.dirName() == s.id {
		return writeFile(dir, name, data, fileMode)
	}
	// The directory is then synced only once.
	if err := fsys.WriteUnsyncedIn(dir, name, data, fileMode); err != nil {
		return err
	}
	s.unsynced.addFile(name, data)
	return nil
}

// makeDir creates a directory durably if it does not exist.
func makeDir(dir *os.Root, name string) error {
	err := dir.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fsys.SyncDir(dir, ".")
}

// removeTemps deletes the temporary files of a writeFile that a crash interrupted. The session must be
// locked.
func removeTemps(dir *os.Root) error {
	dirs := []string{".", provenance.OutputsDir, provenance.ShownDir, provenance.OriginalsDir}
	for _, parent := range dirs {
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
// pipe.
//
// Errors: provenance.ErrNotFound, fsys.ErrNotRegular.
func openRegular(dir *os.Root, name string) (*os.File, error) {
	f, _, err := fsys.OpenIn(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, provenance.ErrNotFound
	}
	return f, cause(err)
}

const (
	// pool is a directory next to the session directories, under a name that no session can have, with texts
	// shown to models and large snapshots, such as the registry. Sessions have links to its files, so it can
	// be emptied at any time.
	pool = "~shown"

	// minShared is the smallest snapshot that is shared, in bytes; linking a smaller one saves too little.
	minShared = 16 << 10

	// maxShown is the default limit for the shown texts of a session, in bytes; maxShownFiles limits their
	// number.
	maxShown      = 256 << 20
	maxShownFiles = 10_000
)

// KeepsShown returns the limit for the shown texts of a session, in bytes; 0 if none are kept.
func (st *Store) KeepsShown() int64 {
	if st.opts.ForgetShown {
		return 0
	}
	return st.opts.Shown
}

// Keep implements provenance.Writer. The text is synced together with the event that names it, and before it.
func (st *Store) Keep(ctx context.Context, id string, data []byte) (digest.Digest, error) {
	if !provenance.ValidSessionID(id) {
		return "", fmt.Errorf("keep shown text: %w: session id", provenance.ErrInvalid)
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
			// Verify reports a text that was removed since.
			return nil
		}
		if s.shown.counted && s.hasRoom(data) && s.linkText(d, data) == nil {
			return nil
		}
		return s.inDir("keep shown text", func(dir *os.Root) error { return s.keepText(dir, d, data) })
	})
	return d, err
}

// share links name to the pool's file with these bytes. If the pool has none, or the file system has no
// links, it writes the file and offers it to other sessions. The content is on stable storage; the name is
// durable once its directory is synced.
func (s *session) share(dir *os.Root, name string, d digest.Digest, data []byte) error {
	// Another session may have just written the file. If it cannot be synced, it is written again.
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

// offer links a file of the session into the pool. If that fails, other sessions write files of their own.
func (s *session) offer(name string, d digest.Digest, data []byte) {
	s.store.ledger.add(s.id, "", int64(len(data)), 0)
	root, own, pooled := s.store.root, path.Join(s.dirName(), name), path.Join(pool, d.Encoded())
	switch err := root.Link(own, pooled); {
	case errors.Is(err, fs.ErrNotExist):
		_ = root.Mkdir(pool, 0o700)
		_ = root.Link(own, pooled)
	case errors.Is(err, fs.ErrExist):
		// The file was changed, or has the maximum number of links.
		_ = root.Remove(pooled)
		_ = root.Link(own, pooled)
	}
}

// link links name to a file of the pool, which must have these bytes.
func (s *session) link(dir *os.Root, name, pooled string, data []byte) error {
	info, err := checkPooled(s.store.root, pooled, nil, hasBytes(data))
	if err != nil {
		return err
	}
	_, err = s.linkTo(dir, name, pooled, info)
	return err
}

// checkPooled checks that a file of the pool has the expected bytes, and returns its info as of before it was
// read. It does not read a file with the marks of known, the info as of when its bytes were known, or nil.
func checkPooled(
	root *os.Root, name string, known fs.FileInfo, has func(*os.File) error,
) (fs.FileInfo, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if mark := content.MarkOf(info); known != nil && mark != (content.Mark{}) &&
		mark == content.MarkOf(known) && sameFile(known, info) {
		return info, nil
	}
	f, err := openRegular(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Another process may have replaced the file. A write after this is found once the file is linked.
	info, err = f.Stat()
	if err != nil {
		return nil, err
	}
	return info, has(f)
}

// hasBytes returns a function that reports an error if a file does not have these bytes.
func hasBytes(data []byte) func(*os.File) error {
	return func(f *os.File) error {
		// One byte more than data also finds a file that only begins with data.
		found := make([]byte, len(data)+1)
		if n, _ := io.ReadFull(f, found); !bytes.Equal(found[:n], data) {
			return errChanged
		}
		return nil
	}
}

// errChanged is the error of a file of the pool that does not have the expected bytes.
var errChanged = errors.New("the file was changed")

// errOtherFile is the error of a file that is not the one whose information was read.
var errOtherFile = errors.New("the file was changed or replaced")

// sameFile reports whether was and is describe one file that was not written in between.
func sameFile(was, is fs.FileInfo) bool {
	return os.SameFile(was, is) && was.Size() == is.Size() && was.ModTime().Equal(is.ModTime())
}

// linkTo links name to a file of the pool, if that is still the file that info describes. It returns the
// file's new info.
func (s *session) linkTo(dir *os.Root, name, pooled string, info fs.FileInfo) (fs.FileInfo, error) {
	// The new directory, like the link, may be lost in a crash: syncing it would delay the first text.
	if err := dir.Mkdir(path.Dir(name), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	// link(2) does not replace an existing name, so the link is made under another name and renamed.
	temp := path.Join(path.Dir(name), fsys.TempPrefix+rand.Text())
	if err := s.store.root.Link(pooled, path.Join(s.dirName(), temp)); err != nil {
		return nil, err
	}
	err := renameSame(dir, temp, name, info)
	// Renaming a file to another link to itself does nothing, so the temporary name may still exist.
	if removed := dir.Remove(temp); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	if err != nil {
		return nil, err
	}
	// Making and renaming links has changed the ctime.
	return dir.Lstat(name)
}

// renameSame renames a file that is still the one that info describes: another process may have replaced or
// written it after info was read.
func renameSame(dir *os.Root, temp, name string, info fs.FileInfo) error {
	linked, err := dir.Lstat(temp)
	if err != nil {
		return err
	}
	if !sameFile(info, linked) {
		return errOtherFile
	}
	return dir.Rename(temp, name)
}
