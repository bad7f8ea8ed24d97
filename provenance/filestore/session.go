package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// errReleased means that the session was released before it accepted the request.
var errReleased = errors.New("session was released")

// errReplaced means that the session directory was removed, and possibly created again.
var errReplaced = errors.New("the session directory was removed or replaced")

// heldError is the ErrHeld for a session that another process, or another store of this one, has open for
// writing.
type heldError struct{}

func (heldError) Error() string { return "another process holds it" }

func (heldError) Unwrap() error { return provenance.ErrHeld }

// waitLock acquires lock, polling at the interval every for at most wait. If another process holds the lock
// all that time, waitLock returns a heldError.
func waitLock(lock *flock.Flock, wait, every time.Duration) error {
	// TryLockContext does not try at all if its context has ended.
	if held, err := lock.TryLock(); held || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	_, err := lock.TryLockContext(ctx, every)
	if errors.Is(err, context.DeadlineExceeded) {
		return heldError{}
	}
	return err
}

// file is the part of *os.File that a session uses for its open events.jsonl.
type file interface {
	WriteAt(p []byte, off int64) (int, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// session writes one session. A single goroutine, run, appends to it.
type session struct {
	id     string
	store  *Store
	opts   *Options
	dir    os.FileInfo // the directory that contains lock
	lock   *flock.Flock
	record *os.File // events.jsonl

	logMu sync.Mutex
	log   log // guarded by logMu

	appends  chan *appendRequest
	stop     chan struct{}
	done     chan struct{} // run has returned
	released chan struct{} // the directory is released
	end      sync.Once
	wg       sync.WaitGroup // users of the directory other than run

	mu      sync.Mutex
	name    string // name of dir within the store's directory
	stopped bool
	paused  time.Time // until then, a quiet session does not write its views

	outputs, shown usedSpace
	originals      originals
	unsynced       unsyncedTexts
	// texts is the directory of the shown texts, open while the session is not quiet, and kept is a subset of
	// its texts. Both are guarded by shown.mu.
	texts *os.File
	kept  map[digest.Digest]bool

	viewing sync.Mutex // held while the views are written
	views   viewFiles  // guarded by viewing
}

// openWriter opens the directory of session id, or creates one in unbegun, and starts its goroutine.
func openWriter(st *Store, id string) (_ *session, err error) {
	dir, name, err := st.sessionDir(id)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	lock := flock.New(filepath.Join(st.dir, name, provenance.LockFile), flock.SetPermissions(fileMode))
	s := &session{
		id: id, store: st, opts: &st.opts, lock: lock, name: name,
		appends: make(chan *appendRequest), stop: make(chan struct{}), done: make(chan struct{}),
		released: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeFiles())
		}
	}()
	if err := s.lockDir(dir); err != nil {
		return nil, err
	}
	// Without the lock, another process may still be writing a temporary file.
	if err := removeTemps(dir); err != nil {
		return nil, unavailable("clear session directory", err)
	}
	torn, err := s.load(dir)
	if err != nil {
		return nil, err
	}
	if err := s.beginLate(dir); err != nil {
		return nil, err
	}
	go s.run()
	if err := s.noteTorn(torn); err != nil {
		close(s.stop)
		<-s.done
		return nil, err
	}
	return s, nil
}

// sessionDir opens the directory of session id, or creates one in unbegun, and returns it with its name in
// the store's directory.
func (st *Store) sessionDir(id string) (dir *os.Root, name string, err error) {
	dir, err = st.root.OpenRoot(id)
	if err == nil {
		return dir, id, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, "", unavailable("open session directory", err)
	}
	name, err = makeUnbegun(st.root, id)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, "", unavailable("create session directory", err)
	}
	dir, err = st.root.OpenRoot(name)
	if err != nil {
		return nil, "", unavailable("open session directory", err)
	}
	return dir, name, nil
}

// lockDir locks the session, and refuses a directory that was replaced or removed before that. It updates the
// name: the first event and Collect rename the directory while they hold the lock.
func (s *session) lockDir(dir *os.Root) (err error) {
	s.dir, err = dir.Stat(".")
	if err != nil {
		return unavailable("open session directory", err)
	}
	if s.store.own {
		if err := checkOwner(dir); err != nil {
			return err
		}
	}
	// A process that ends the session writes its views before it releases the lock.
	if err := waitLock(s.lock, s.opts.LockWait, 10*time.Millisecond); err != nil {
		return unavailable("lock session", err)
	}
	now, err := s.store.root.Lstat(s.id)
	if err == nil && os.SameFile(now, s.dir) {
		s.name = s.id
		return nil
	}
	now, err = s.store.root.Lstat(s.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unavailable("lock session", err)
	}
	if err != nil || !os.SameFile(now, s.dir) {
		return unavailable("lock session", errReplaced)
	}
	return nil
}

// beginLate renames the directory of a session in unbegun at once if it has events, and otherwise leaves that
// to the first event.
func (s *session) beginLate(dir *os.Root) error {
	if s.name == s.id {
		return nil
	}
	if s.log.tally.Session.Head.Seq == 0 {
		s.log.begin = s.begin
		return nil
	}
	// The process that recorded the first event was killed before it renamed the directory, and possibly
	// before it synced the directory's files.
	if err := errors.Join(s.unsynced.addAll(dir, "."), s.log.flush(), s.begin()); err != nil {
		return unavailable("create session directory", err)
	}
	return nil
}

// noteTorn records that a torn last line of a length in bytes was dropped. A record without events has no
// principal for the note, and lost nothing.
func (s *session) noteTorn(torn int64) error {
	if torn == 0 || s.log.tally.Session.Head.Seq == 0 {
		return nil
	}
	return s.append(context.Background(), &provenance.Event{
		Kind: provenance.KindSessionResumed, Session: s.id, Principal: s.log.tally.Session.Principal,
		Detail: fmt.Sprintf("dropped a torn last line of %d bytes", torn),
	})
}

// load reads the record and truncates a torn last line. It returns the length of that line.
func (s *session) load(dir *os.Root) (torn int64, err error) {
	if err := checkRegular(dir, provenance.EventsFile); errors.Is(err, fsys.ErrNotRegular) {
		return 0, fmt.Errorf("%w: %s: %v", provenance.ErrCorrupt, provenance.EventsFile, err)
	}
	f, err := dir.OpenFile(provenance.EventsFile, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return 0, unavailable("open record", err)
	}
	s.record, s.log = f, log{file: s.opts.wrap(f), now: s.opts.Now, first: s.syncTexts}
	if s.opts.Signer != nil {
		s.log.note = s.note
	}
	sc := provenance.NewScanner(f)
	heads, removed, err := s.foldRecord(sc)
	if err != nil {
		return 0, fmt.Errorf("%s:%d: %w", provenance.EventsFile, sc.Line, err)
	}
	// A process may have crashed after the event that names removed outputs and before their removal.
	for name := range removed {
		if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, unavailable("remove outputs", err)
		}
	}
	s.log.offset, s.log.synced, s.log.tally = sc.Offset, sc.Offset, fold{sc.Tally, heads}
	if info, err := f.Stat(); err == nil && s.store.synced.isLost(keyOf(provenance.EventsFile, info)) {
		if err := s.distrust(dir); err != nil {
			return 0, err
		}
	}
	if sc.Torn > 0 {
		if err := s.log.file.Truncate(sc.Offset); err != nil {
			return 0, unavailable("drop torn line", err)
		}
	}
	return sc.Torn, errors.Join(s.checkHead(dir), s.checkRegistered())
}

// foldRecord reads the events of the record. It returns the heads of its views, and the names of the outputs
// that were removed and not kept again.
func (s *session) foldRecord(sc *provenance.Scanner) (cfharness.Heads, map[string]bool, error) {
	var heads cfharness.Heads
	removed := make(map[string]bool)
	for e, err := range sc.All() {
		if err != nil {
			return heads, nil, err
		}
		if err := heads.Add(e); err != nil {
			return heads, nil, err
		}
		if e.Session != s.id {
			return heads, nil, fmt.Errorf("%w: event of session %q", provenance.ErrCorrupt, e.Session)
		}
		gone, err := e.Removed()
		if err != nil {
			return heads, nil, err
		}
		for _, f := range gone {
			removed[f.Name] = true
		}
		for _, f := range e.Files {
			delete(removed, f.Name)
		}
	}
	return heads, removed, nil
}

// distrust makes the next sync write the whole record and all shown texts again: their sync at the end of the
// session failed, and the kernel may report success for the next one.
func (s *session) distrust(dir *os.Root) error {
	s.log.synced, s.log.suspect, s.log.unsynced = 0, true, make([]byte, s.log.offset)
	if _, err := s.record.ReadAt(s.log.unsynced, 0); err != nil {
		return unavailable("read record", err)
	}
	if err := s.unsynced.addAll(dir, provenance.ShownDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unavailable("read what was shown", err)
	}
	return nil
}

// checkHead refuses a record that ends before the head in session.json. For a record without events it writes
// a session.json that names no event, so a missing session.json always means that it was removed.
func (s *session) checkHead(dir *os.Root) error {
	last := s.log.tally.Session.Head.Seq
	found, err := readSessionFile(dir)
	switch {
	case errors.Is(err, provenance.ErrNotFound) && last == 0:
		if err := s.writeSession(dir, provenance.NoEvents(s.id)); err != nil {
			return unavailable("create session", err)
		}
	// At the limit of file descriptors, the session is unavailable and not damaged.
	case atLimit(err):
		return unavailable("open session", err)
	case err == nil && found.Head.Seq > last:
		return fmt.Errorf("%w: ends at event %d, %s names event %d", provenance.ErrCorrupt, last,
			provenance.SessionFile, found.Head.Seq)
	}
	return nil
}

// begin renames the directory to the session's ID. Its first event is already on stable storage.
func (s *session) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// If the sync below failed before, begin is called again when the directory has its final name.
	if s.name != s.id {
		if err := s.store.root.Rename(s.name, s.id); err != nil {
			return cause(err)
		}
		s.name = s.id
	}
	return fsys.SyncDir(s.store.root, ".")
}

// shutdown stops run, signs the head, writes the views and releases the directory.
func (s *session) shutdown() error {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	close(s.stop)
	<-s.done
	s.wg.Wait()
	// The events of these texts are recorded once the session is open again.
	unsynced := s.syncTexts()
	s.logMu.Lock()
	// The kernel may report success for the next sync, so the next open of the session must rewrite the
	// record.
	if info, err := s.record.Stat(); err == nil && (s.log.suspect || unsynced != nil) {
		s.store.synced.note(keyOf(provenance.EventsFile, info), false)
	}
	// If file descriptors are exhausted, this frees some for the views.
	closed := s.log.file.Close()
	s.log.file = nil
	s.logMu.Unlock()
	var removed error
	if name := s.dirName(); name != s.id {
		// No event was recorded.
		removed = cause(s.store.root.RemoveAll(name))
	}
	// The views of a long session take a while and can be written later, while a signature cannot.
	return errors.Join(closed, removed, s.signHead(), patiently(s.writeViews), s.closeFiles())
}

func (s *session) closeFiles() error {
	s.shown.mu.Lock()
	s.closeTexts()
	s.shown.mu.Unlock()
	var err error
	if s.log.file != nil {
		err = s.log.file.Close()
	}
	return errors.Join(err, s.lock.Close())
}

// signHead writes head.note for an ended session. Sessions are not signed later, because a process that can
// write to the directory would then get its forged record signed.
func (s *session) signHead() error {
	if s.opts.Signer == nil {
		return nil
	}
	m, err := s.syncedPoint()
	if err != nil || m.tally.Session.State != provenance.StateEnded {
		// Events that are not on stable storage are not signed. Writing the views returns this error too.
		return nil
	}
	data, err := provenance.SignHead(s.id, m.tally.Session.Head, s.opts.Signer)
	if err != nil {
		return err
	}
	return patiently(func() error {
		return s.inDir("write "+provenance.HeadNoteFile, func(dir *os.Root) error {
			return writeFile(dir, provenance.HeadNoteFile, data, fileMode)
		})
	})
}
