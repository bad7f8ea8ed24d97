package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

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

// dirName returns the name of the directory within the store's directory.
func (s *session) dirName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.name
}

// inDir calls do with the session directory.
//
// Errors: provenance.ErrInvalid, provenance.ErrUnavailable.
func (s *session) inDir(doing string, do func(dir *os.Root) error) error {
	dir, err := s.openDir()
	if err != nil {
		return unavailable(doing, err)
	}
	err = errors.Join(do(dir), dir.Close())
	if err == nil || errors.Is(err, provenance.ErrInvalid) || errors.Is(err, provenance.ErrUnavailable) {
		return err
	}
	return unavailable(doing, err)
}

// openDir opens the session directory and refuses one that replaced the locked directory. The directory does
// not stay open.
func (s *session) openDir() (*os.Root, error) {
	// A directory that stays open would cost each session one more descriptor.
	dir, err := s.store.root.OpenRoot(s.dirName())
	if errors.Is(err, fs.ErrNotExist) {
		// The first event may have renamed the directory since dirName returned its name.
		dir, err = s.store.root.OpenRoot(s.dirName())
	}
	if err != nil {
		return nil, err
	}
	info, err := dir.Stat(".")
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	if !os.SameFile(info, s.dir) {
		return nil, errors.Join(errReplaced, dir.Close())
	}
	return dir, nil
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
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, provenance.ErrNotFound
	case err != nil:
		return nil, cause(err)
	}
	return f, nil
}

// writeUnsynced writes a file that syncFile will sync.
func writeUnsynced(dir *os.Root, name string, data []byte, mode fs.FileMode) error {
	if !syncsLater {
		return fsys.WriteFileIn(dir, name, data, mode)
	}
	return fsys.WriteUnsyncedIn(dir, name, data, mode)
}

// syncFile syncs a file that writeUnsynced wrote.
func syncFile(dir *os.Root, name string) error {
	if !syncsLater {
		// writeUnsynced has synced it.
		return nil
	}
	f, err := openRegular(dir, name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

const (
	// maxOutputs is the default limit for the outputs of a session, in bytes; maxOutputFiles limits their
	// number.
	maxOutputs     = 256 << 20
	maxOutputFiles = 10_000
)

// usedSpace is the number and size of the files in a directory of a session.
type usedSpace struct {
	mu      sync.Mutex // held while a file is written
	counted bool
	files   int
	bytes   int64
}

// count adds the files that earlier processes left. The caller holds mu.
func (k *usedSpace) count(dir *os.Root, name string) error {
	if k.counted {
		return nil
	}
	entries, err := fs.ReadDir(dir.FS(), name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, en := range entries {
		info, err := en.Info()
		if err != nil {
			return err
		}
		k.files++
		k.bytes += info.Size()
	}
	k.counted = true
	return nil
}

// putOutput writes a kept stream, after deleting the oldest streams if space is needed. It does not replace a
// stream that an event names.
func (s *session) putOutput(ctx context.Context, dir *os.Root, f provenance.File, data []byte) error {
	s.outputs.mu.Lock()
	defer s.outputs.mu.Unlock()
	if err := s.outputs.count(dir, provenance.OutputsDir); err != nil {
		return err
	}
	before, err := dir.Lstat(f.Name)
	if err == nil {
		// A Put may be repeated if its event was not written, but an output that an event names is evidence.
		kept, err := s.keptOutputs()
		if err != nil {
			return err
		}
		if slices.ContainsFunc(kept, func(k provenance.File) bool { return k.Name == f.Name }) {
			return fmt.Errorf("put %s: %w: an event names this output", f.Name, provenance.ErrInvalid)
		}
	}
	most := s.opts.Outputs
	if s.outputs.bytes+f.Size > most || s.outputs.files >= maxOutputFiles {
		// Freeing more than this output needs makes reading the record less frequent.
		if err := s.removeOutputs(ctx, dir, most/4+f.Size); err != nil {
			return err
		}
	}
	// No event names the file yet, so nothing reads a partial file that a crash left. Unlike writeFile, this
	// syncs the file under its final name: that sync mostly puts the directory entry on disk too.
	if err := makeDir(dir, provenance.OutputsDir); err != nil {
		return err
	}
	if err := writeUnsynced(dir, f.Name, data, fileMode); err != nil {
		return err
	}
	if err := syncFile(dir, f.Name); err != nil {
		return err
	}
	if err := fsys.SyncDir(dir, provenance.OutputsDir); err != nil {
		return err
	}
	s.store.ledger.add(s.id, "", f.Size, f.Size)
	if before == nil {
		s.outputs.files++
	} else {
		s.outputs.bytes -= before.Size()
	}
	s.outputs.bytes += f.Size
	return nil
}

// removeOutputs deletes the oldest outputs that events name until need bytes are free, and at least a quarter
// of the files if there are too many. First it records an event that names them.
func (s *session) removeOutputs(ctx context.Context, dir *os.Root, need int64) error {
	old, err := s.keptOutputs()
	if err != nil {
		return err
	}
	gone := provenance.OutputsRemoved{Type: provenance.TypeOutputsRemoved}
	left, files := s.outputs.bytes, s.outputs.files
	for _, f := range old {
		if left+need <= s.opts.Outputs && files < maxOutputFiles*3/4 {
			break
		}
		gone.Files = append(gone.Files, f)
		left -= f.Size
		files--
	}
	if len(gone.Files) == 0 {
		return nil
	}
	info := s.point().tally.Session
	row, err := provenance.Encode(gone)
	if err != nil {
		return err
	}
	e := &provenance.Event{
		Kind: provenance.KindOutputsRemoved, Session: s.id, Principal: info.Principal,
		Client: info.Client, Row: row,
		Detail: fmt.Sprintf("%d outputs of %d bytes, the oldest, made room for later ones",
			len(gone.Files), s.outputs.bytes-left),
	}
	// The event comes first. After a crash in between, load deletes the files it names, and Verify has an
	// explanation for those already missing.
	if err := s.append(ctx, e); err != nil {
		return err
	}
	for _, f := range gone.Files {
		if err := dir.Remove(f.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unavailable("remove "+f.Name, err)
		}
	}
	s.store.ledger.add(s.id, "", left-s.outputs.bytes, left-s.outputs.bytes)
	s.outputs.bytes, s.outputs.files = left, files
	return fsys.SyncDir(dir, provenance.OutputsDir)
}

// keptOutputs returns the outputs that events name and no later event removed, oldest first.
func (s *session) keptOutputs() (kept []provenance.File, err error) {
	named := make(map[string]bool)
	for e, err := range s.store.events(s.id) {
		if err != nil {
			return nil, err
		}
		removed, err := e.Removed()
		if err != nil {
			return nil, err
		}
		for _, f := range removed {
			delete(named, f.Name)
		}
		if len(removed) > 0 {
			kept = slices.DeleteFunc(kept, func(f provenance.File) bool { return !named[f.Name] })
		}
		for _, f := range e.Files {
			if !named[f.Name] && strings.HasPrefix(f.Name, provenance.OutputsDir+"/") {
				named[f.Name] = true
				kept = append(kept, f)
			}
		}
	}
	return kept, nil
}
