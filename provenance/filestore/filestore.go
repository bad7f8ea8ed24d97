// Package filestore keeps the provenance of sessions in directories of files.
//
// Each session has a directory DIR/<session>, 0700, with files of mode 0600: events.jsonl is the
// record, the JSON views and session.json are derived from it, and the others are files written with
// Put and Keep. Large snapshots of equal content, such as the registry, and texts that models were
// shown are stored once: sessions have them as hard links of one read-only file, so whoever changes it
// in one session breaks Verify of all. Each session remains whole where it is copied to. The pool of these
// files, DIR/~shown, can be emptied at any time; Collect takes from it what no session has a link to.
//
// The registry of an unchanged catalogue differs from server to server in its time alone. A later server
// takes the file of an earlier one, with the earlier time, so that there is one; the event that names it says
// when it was true of the session. No quota counts it, because the operator's catalogue makes it large.
//
// # Durability
//
// An event that Append acknowledged is in the file; one of a durable kind is on stable storage,
// others follow within [Options.Commit]. A write that fails leaves the chain as it was before.
// The consequences when something goes wrong:
//   - A process that is killed loses no acknowledged event. A last line that it did not finish is
//     dropped when the session is next opened for writing, and an event says so. Scripts that were
//     running have a request without an outcome, which Verify lists. A session whose first event was not
//     recorded leaves nothing under its name: its directory is in DIR/~new until then.
//   - A machine that loses power may lose events that were acknowledged in the last [Options.Commit]
//     and are not durable, and texts that only these name: a text is on stable storage before its event.
//   - On a full or failing disk, Append, Put and Keep return provenance.ErrUnavailable until there is
//     space, and the record is whole throughout. What could not be synced is written again before it counts:
//     after a failure, the kernel may say of the next sync that it succeeded.
//   - Without permission to write, or on a read-only file system, no session can be opened. An open
//     one continues to record events, but accepts no files, and its views lag behind. Sessions can
//     still be read and verified.
//   - Once the record of an open session was removed, moved, replaced, truncated or written to by
//     another process, every Append to it returns ErrUnavailable, because the events would be lost. A
//     change between the check and the write is noticed by the next Append. A directory made in its
//     place is not mistaken for it.
//   - A session that somebody besides this user and the superuser could write to is not read or continued,
//     unless all of the directory is theirs too: it is damaged.
//   - A lock keeps two processes, and two stores of one process, from writing to one session; the
//     second gets ErrUnavailable. Different sessions of one directory do not affect each other.
//   - Sequence numbers order the events. Their times are the clock's, which may be set back; no time
//     is refused.
//
// # Memory and lag
//
// The memory of an open session does not grow with its events. Its kept outputs do not grow beyond
// [Options.Outputs]: the oldest are deleted, and an outputs.removed event names them first. The views
// lag behind the record until a session is quiet, is read or ends, long ones longer. They are grown
// from their earlier versions, so writing them costs a copy and the later events. Verify distinguishes
// a view that lags from one that was changed. Only Collect deletes sessions.
//
// # Limits
//
// Whoever can write to the directory can make a consistent record of something else. A signature by
// [Options.Signer], with a key kept elsewhere, prevents that for sessions that have ended. An earlier state
// of a session, or its absence, is as well signed as the last one, so a store with a Signer also keeps a
// register of all sessions, DIR/~register: signed lines, each of which covers the one before it, on stable
// storage before a start, a resumption or an end is acknowledged, and before Collect deletes. Verify compares
// a session with it. Whoever puts back everything, the register too, is found by its head only, if that was
// kept elsewhere.
package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/store/fsys"
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
	// Outputs is how many bytes of outputs a session keeps; zero is 256 MiB. The oldest are deleted
	// to make space.
	Outputs int64
	// Shown is how many bytes a session keeps of the texts that its model is shown; zero is 256 MiB.
	// Later texts are not kept.
	Shown int64
	// ForgetShown says that no text that a model is shown is kept, so it cannot be shown again.
	ForgetShown bool
	// Signer signs the head of a session's chain when the session ends; nil signs nothing. If the
	// process is killed before it signs, the session stays unsigned: Verify with a key reports it.
	Signer note.Signer
	// Floor is how many bytes of the file system stay free: below it only events are recorded that conclude
	// what has begun. 0 sets no floor.
	Floor int64
	// Quota returns how much the sessions of a principal may take; nil bounds nothing. Below its quota a
	// principal may begin what exceeds it, such as one long event.
	Quota func(principal string) Quota
	// Now is the clock for events without a time; nil is time.Now.
	Now func() time.Time

	wrap func(file) file
}

func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	c.Commit = cmp.Or(c.Commit, 100*time.Millisecond)
	c.Quiet, c.LockWait = cmp.Or(c.Quiet, time.Second), cmp.Or(c.LockWait, time.Second)
	c.Outputs, c.Shown = cmp.Or(c.Outputs, maxOutputs), cmp.Or(c.Shown, maxShown)
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
	opts   Options
	ledger ledger // of what principals keep

	viewing chan struct{} // holds a token for each session whose views are being written
	synced  syncedTexts
	pooled  pooledTexts

	mu       sync.Mutex
	closed   bool
	sessions map[string]func() (*session, error) // open or being opened; each waits until it is
	failed   []error                             // from closing sessions
}

// Open returns the Store of dir, which is created with mode 0700 if it does not exist. opts may
// be nil.
//
// Errors: the error of creating or opening dir.
func Open(dir string, opts *Options) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open session directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open session directory: %w", err)
	}
	st := &Store{
		ledger:   ledger{sessions: make(map[string]use), totals: make(map[string]use)},
		opts:     opts.withDefaults(),
		sessions: make(map[string]func() (*session, error)),
		viewing:  make(chan struct{}, maxWriting),
		synced:   syncedTexts{places: make(chan struct{}, syncers), file: syncFile},
	}
	st.ledger.of = st.opts.Quota
	st.reader.dir, st.reader.root, st.reader.own, st.reader.writing = dir, root, ownDir(root), st.held
	// Leftovers only take space; Collect reports the error.
	_ = removeUnbegun(dir, root)
	return st, nil
}

// Take implements provenance.Writer: a turn is the lock of the session, which cannot be lost. A session that
// another store is about to release is waited for.
func (st *Store) Take(ctx context.Context, session string) error {
	if !provenance.ValidSessionID(session) {
		return fmt.Errorf("take %.60q: %w: session id", session, provenance.ErrInvalid)
	}
	_, err := st.open(ctx, session)
	return err
}

// Release implements provenance.Writer. It brings the views up to date.
func (st *Store) Release(session string) {
	if s := st.held(session); s != nil {
		st.release(s)
		<-s.released
	}
}

// Append implements provenance.Writer.
func (st *Store) Append(ctx context.Context, e *provenance.Event) error {
	if err := e.Validate(); err != nil {
		return err
	}
	if !concludes(e.Kind) {
		if err := st.free(0); err != nil {
			return err
		}
		begins := use{}
		if e.Kind == provenance.KindSessionStarted {
			begins.sessions = 1
		}
		if err := st.admit(ctx, e.Principal, begins); err != nil {
			return err
		}
	}
	return st.with(ctx, e.Session, func(s *session) error {
		err := s.append(ctx, e)
		if err == nil {
			// The line, and the rows of views that are made of it.
			st.ledger.add(s.id, e.Principal, 2*int64(len(e.Row)+len(e.Decision)+len(e.Invocation)+300), 0)
		}
		if err == nil && e.Kind == provenance.KindSessionEnded || errors.Is(err, provenance.ErrNotFound) {
			st.release(s)
		}
		return err
	})
}

// Put implements provenance.Writer.
func (st *Store) Put(ctx context.Context, id, name string, data []byte) (f provenance.File, err error) {
	name = provenance.CleanFileName(name)
	if !provenance.ValidSessionID(id) {
		return f, fmt.Errorf("put %.60q: %w: session id", name, provenance.ErrInvalid)
	}
	if err := provenance.CheckFileName(name); err != nil {
		return f, fmt.Errorf("put: %w", err)
	}
	f = provenance.File{Name: name, Size: int64(len(data)), Digest: digest.FromBytes(data)}
	err = st.with(ctx, id, func(s *session) error {
		return s.use("put "+name, func(dir *os.Root) error {
			switch {
			case strings.HasPrefix(name, provenance.OutputsDir+"/"):
				return s.putOutput(ctx, dir, f, data)
			case f.Size < minShared:
				st.ledger.add(id, "", f.Size, 0)
				return s.writeFile(dir, name, data)
			}
			if err := s.share(dir, name, f.Digest, data); err != nil {
				return err
			}
			return fsys.SyncDir(dir, ".")
		})
	})
	if err != nil {
		return provenance.File{}, err
	}
	return f, nil
}

// Path returns where a file of a session is, or would be, on this machine.
func (st *Store) Path(session, name string) string {
	return filepath.Join(st.root.Name(), session, filepath.FromSlash(provenance.CleanFileName(name)))
}

// with calls do with the open session id. If the session is released first, it is opened again.
func (st *Store) with(ctx context.Context, id string, do func(*session) error) error {
	for {
		s, err := st.open(ctx, id)
		if err != nil {
			return err
		}
		if err := do(s); !errors.Is(err, errReleased) {
			return err
		}
		<-s.released
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
	open := slices.Collect(maps.Values(st.sessions))
	st.mu.Unlock()
	var wg sync.WaitGroup
	for _, opened := range open {
		wg.Go(func() {
			if s, err := opened(); err == nil {
				st.release(s)
			}
		})
	}
	wg.Wait()
	st.mu.Lock()
	defer st.mu.Unlock()
	// Sessions that ended earlier could not return their errors to anybody.
	return errors.Join(append(slices.Clone(st.failed), st.pooled.close(), st.root.Close())...)
}

// open returns the open session id, opening it if needed. Opening happens outside the lock, because it
// waits for other processes and reads the whole record.
func (st *Store) open(ctx context.Context, id string) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	st.mu.Lock()
	if st.closed {
		st.mu.Unlock()
		return nil, provenance.ErrClosed
	}
	opened := st.sessions[id]
	if opened == nil {
		opened = sync.OnceValues(func() (*session, error) {
			s, err := openWriter(st, id)
			if err == nil {
				return s, nil
			}
			// The next request tries again: another process may have released the session by then.
			st.mu.Lock()
			delete(st.sessions, id)
			st.mu.Unlock()
			return nil, fmt.Errorf("open session %s: %w", id, err)
		})
		st.sessions[id] = opened
	}
	st.mu.Unlock()
	return opened()
}

// held returns the session if this store has it open, else nil.
func (st *Store) held(id string) *session {
	st.mu.Lock()
	opened := st.sessions[id]
	st.mu.Unlock()
	if opened == nil {
		return nil
	}
	s, _ := opened()
	return s
}

// release brings the views of s up to date and frees its directory. Once s.released is closed, the session
// is no longer in the store.
func (st *Store) release(s *session) {
	s.end.Do(func() {
		err := s.shutdown()
		if st.ledger.of != nil {
			if u := st.measure(s.id, s.point().tally.Session.Principal); u.principal != "" {
				st.ledger.mu.Lock()
				if !st.ledger.again.IsZero() {
					st.ledger.put(s.id, u)
				}
				st.ledger.mu.Unlock()
			}
		}
		st.mu.Lock()
		delete(st.sessions, s.id)
		if err != nil {
			st.failed = append(st.failed, fmt.Errorf("close session %s: %w", s.id, err))
		}
		st.mu.Unlock()
		close(s.released)
	})
}

// Collect implements provenance.Reader.
func (st *Store) Collect(
	ctx context.Context, opts provenance.CollectOptions,
) ([]provenance.Collected, error) {
	if opts.Signer == nil {
		opts.Signer = st.opts.Signer
	}
	gone, err := st.reader.Collect(ctx, opts)
	for _, c := range gone {
		if c.Err == nil && !opts.DryRun && st.ledger.of != nil {
			st.ledger.forget(c.ID)
		}
	}
	return gone, err
}

// cause strips the path from an error of the file system, because its text may leave the process.
func cause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		return le.Err
	}
	return err
}

func unavailable(doing string, err error) error {
	return fmt.Errorf("%w: %s: %w", provenance.ErrUnavailable, doing, cause(err))
}

// Claim implements provenance.Writer. If several processes claim an id, one of them makes the directory.
func (st *Store) Claim(_ context.Context, session string) error {
	if !provenance.ValidSessionID(session) {
		return fmt.Errorf("claim %.60q: %w: session id", session, provenance.ErrInvalid)
	}
	taken := fmt.Errorf("claim %s: %w", session, provenance.ErrTaken)
	if _, err := st.root.Lstat(session); err == nil {
		return taken
	}
	place, err := makeUnbegun(st.root, session)
	switch {
	case errors.Is(err, fs.ErrExist):
		return taken
	case err != nil:
		return unavailable("claim session directory", err)
	}
	// Whoever had claimed it may have recorded its first event in between.
	if _, err := st.root.Lstat(session); err == nil {
		_ = st.root.Remove(place)
		return taken
	}
	return nil
}
