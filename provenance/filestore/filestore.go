// Package filestore keeps the provenance of sessions in directories of files.
//
// Each session has a directory DIR/<session>, 0700, with files of mode 0600: events.jsonl is the
// record, the JSON views and session.json are derived from it, and the rest are files written with
// Put and Keep. Large snapshots of equal content, such as the registry, and what models were shown
// are stored once: sessions have them as hard links of one read-only file, so who changes it in one
// session breaks [Verify] of all. The pool those links are of, DIR/~shown, can be emptied at any time.
//
// An event that Append acknowledged is in the file; one of a durable kind is on stable storage,
// others follow within [Options.Commit]. A write that fails leaves the chain as it was before.
// What that means when something goes wrong:
//   - A process that is killed loses no acknowledged event. A last line that it did not finish is
//     dropped when the session is opened for writing, and an event says so. Scripts that ran have a
//     request without an outcome, which [Verify] lists.
//   - A machine that loses power may lose what was acknowledged in the last [Options.Commit] and is
//     not durable, and a link of what was shown in the same time.
//   - On a full disk, or one that fails, Append, Put and Keep answer provenance.ErrUnavailable until
//     there is room, and the record is whole throughout.
//   - Without permission to write, or on a read-only file system, no session can be opened; one that
//     is open goes on recording events, but takes no files and its views stay behind. Sessions can
//     still be read and verified.
//   - Once the record of an open session was removed, moved, replaced, cut or written to by another
//     process every Append to it is ErrUnavailable: the events would be lost. What comes between the
//     check and the write is met by the next Append. A directory made in its place is not taken for it.
//   - A lock keeps two processes, and two stores of one process, from writing to one session; the
//     second gets ErrUnavailable. Different sessions of one directory do not meet.
//   - Sequence numbers order the events. Their times are what the clock said, which may go back;
//     no time is refused.
//
// The memory of an open session does not grow with its events, nor do its kept outputs beyond
// [Options.Outputs]: the oldest are deleted, and an outputs.removed event names them first. The views
// lag behind the record until a session is quiet, is read or ends, long ones longer; they are grown
// from their earlier versions, so writing them costs a copy and the later events. [Verify] tells a
// view that lags from one that was changed. Nothing deletes a session but [Collect].
//
// None of it keeps whoever can write to the directory from making a consistent record of something
// else; [Options.Signer] and a key kept elsewhere do, for sessions that ended.
package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/provenance"
)

var _ provenance.Store = (*Store)(nil)

// Options adjust a Store. The zero value and nil have the defaults.
type Options struct {
	// Commit is how long an event of a kind that is not durable may wait for stable storage; zero
	// is 100 ms.
	Commit time.Duration
	// Quiet is how long a session must record nothing before its views are written; zero is 1 s.
	Quiet time.Duration
	// LockWait is how long to wait for a session that another process holds; zero is 1 s.
	LockWait time.Duration
	// Outputs is how many bytes of outputs a session keeps; zero is 256 MiB. The oldest make room.
	Outputs int64
	// Shown is how many bytes of what its model is shown a session keeps; zero is 256 MiB. What
	// comes later is not kept.
	Shown int64
	// ForgetShown says that what models are shown is not kept, so that it cannot be shown again.
	ForgetShown bool
	// Signer signs the head of a session's chain when the session ends; nil signs nothing. A session
	// that ended without, because the process was killed in between, stays unsigned: [Verify] with a
	// key says so.
	Signer note.Signer
	// Now is the clock for events without a time; nil is time.Now.
	Now func() time.Time

	wrap func(file) file
}

func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Commit <= 0 {
		c.Commit = 100 * time.Millisecond
	}
	if c.Quiet <= 0 {
		c.Quiet = time.Second
	}
	if c.LockWait <= 0 {
		c.LockWait = time.Second
	}
	if c.Outputs <= 0 {
		c.Outputs = maxOutputs
	}
	if c.Shown <= 0 {
		c.Shown = maxShown
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.wrap == nil {
		c.wrap = func(f file) file { return f }
	}
	return c
}

// Store is a provenance.Store below one directory. It is safe for concurrent use.
type Store struct {
	reader
	opts Options

	shares  shares
	viewing chan struct{} // holds a token for each session whose views are being written

	mu       sync.Mutex
	closed   bool
	sessions map[string]*entry
	failed   []error // of views written at the end of sessions
}

// entry is a session that is open or being opened; s and err are set when ready is closed.
type entry struct {
	ready chan struct{}
	s     *session
	err   error
}

// Open returns the Store of dir, which is created with mode 0700 when it does not exist. opts may
// be nil.
//
// Errors: that of creating or opening dir.
func Open(dir string, opts *Options) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open session directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open session directory: %w", err)
	}
	st := &Store{opts: opts.withDefaults(), sessions: make(map[string]*entry), viewing: make(chan struct{}, maxWriting)}
	st.reader = reader{dir: dir, root: root, writing: st.held}
	return st, nil
}

// Append implements provenance.Writer.
func (st *Store) Append(ctx context.Context, e *provenance.Event) error {
	if err := e.Validate(); err != nil {
		return err
	}
	for {
		s, err := st.open(ctx, e.Session)
		if err != nil {
			return err
		}
		err = s.append(ctx, e)
		if errors.Is(err, errReleased) {
			<-s.released
			continue
		}
		if err == nil && e.Kind == provenance.KindSessionEnded {
			st.release(s)
		}
		return err
	}
}

// Put implements provenance.Writer.
func (st *Store) Put(ctx context.Context, session, name string, data []byte) (provenance.File, error) {
	name = provenance.CleanFileName(name)
	if !provenance.ValidSessionID(session) {
		return provenance.File{}, fmt.Errorf("put %.60q: %w: session id", name, provenance.ErrInvalid)
	}
	if err := provenance.CheckFileName(name); err != nil {
		return provenance.File{}, fmt.Errorf("put: %w", err)
	}
	for {
		s, err := st.open(ctx, session)
		if err != nil {
			return provenance.File{}, err
		}
		f, err := s.put(ctx, name, data)
		if errors.Is(err, errReleased) {
			<-s.released
			continue
		}
		return f, err
	}
}

// Close implements provenance.Writer.
func (st *Store) Close() error {
	st.mu.Lock()
	if st.closed {
		st.mu.Unlock()
		return nil
	}
	st.closed = true
	var open []*entry
	for _, en := range st.sessions {
		open = append(open, en)
	}
	st.mu.Unlock()
	var wg sync.WaitGroup
	for _, en := range open {
		wg.Go(func() {
			<-en.ready
			if en.err == nil {
				st.release(en.s)
			}
		})
	}
	wg.Wait()
	st.mu.Lock()
	defer st.mu.Unlock()
	return errors.Join(append(slices.Clone(st.failed), st.root.Close())...)
}

// open returns the open session id, opening it when needed. Opening happens outside the lock.
func (st *Store) open(ctx context.Context, id string) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	st.mu.Lock()
	if st.closed {
		st.mu.Unlock()
		return nil, provenance.ErrClosed
	}
	en, ok := st.sessions[id]
	if !ok {
		en = &entry{ready: make(chan struct{})}
		st.sessions[id] = en
	}
	st.mu.Unlock()
	if ok {
		select {
		case <-en.ready:
			return en.s, en.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	en.s, en.err = openWriter(st, id)
	if en.err != nil {
		en.err = fmt.Errorf("open session %s: %w", id, en.err)
		st.forget(id)
	}
	close(en.ready)
	return en.s, en.err
}

// held returns the session when this store has it open, else nil.
func (st *Store) held(id string) *session {
	st.mu.Lock()
	en := st.sessions[id]
	st.mu.Unlock()
	if en == nil {
		return nil
	}
	<-en.ready
	return en.s
}

func (st *Store) forget(id string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.sessions, id)
}

// release brings the views of s up to date and lets go of its directory. Who waits for
// s.released finds the session gone from the store.
func (st *Store) release(s *session) {
	s.end.Do(func() {
		err := s.shutdown()
		st.mu.Lock()
		delete(st.sessions, s.id)
		if err != nil {
			st.failed = append(st.failed, fmt.Errorf("close session %s: %w", s.id, err))
		}
		st.mu.Unlock()
		close(s.released)
	})
}

// cause strips the path from an error of the file system, for texts that may leave the process.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		return le.Err
	}
	return err
}

func unavailable(doing string, err error) error {
	return fmt.Errorf("%w: %s: %w", provenance.ErrUnavailable, doing, cause(err))
}

// Claim implements provenance.Writer: of several processes that make the directory, one does.
func (st *Store) Claim(_ context.Context, session string) error {
	if !provenance.ValidSessionID(session) {
		return fmt.Errorf("claim %.60q: %w: session id", session, provenance.ErrInvalid)
	}
	err := st.root.Mkdir(session, 0o700)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("claim %s: %w", session, provenance.ErrTaken)
	case err != nil:
		return unavailable("claim session directory", err)
	}
	return nil
}
