// Package filestore stores the provenance of sessions in directories of files.
//
// Each session has a directory DIR/<session>, 0700, with files of mode 0600. events.jsonl is the record; the
// JSON views and session.json are derived from it; all other files were written with Put and Keep. Large
// snapshots with equal content, such as the registry, and texts shown to models are stored once, as hard
// links to one read-only file. A change to that file through one session therefore breaks Verify of every
// session with a link to it. A copied session directory is complete. The pool of shared files, DIR/~shown,
// can be emptied at any time; Collect removes pool files without a link in a session.
//
// The registry of an unchanged catalogue differs between servers only in its time. A later server reuses the
// file of an earlier one, including the earlier time; the event that names the file records when it was true
// of the session. Quotas exclude the registry, because the operator's catalogue determines its size.
//
// # Durability
//
// An event that Append acknowledged is in the file. An event of a durable kind is on stable storage; other
// events follow within [Options.Commit]. A write that fails leaves the chain unchanged. The consequences of
// failures:
//   - A killed process loses no acknowledged event. The next open for writing drops an unfinished last line
//     and records an event about it. Scripts that were running have a request without an outcome, which
//     Verify lists. A session without a recorded first event leaves nothing under its name: until then its
//     directory is in DIR/~new.
//   - A power failure may lose events that are not durable and were acknowledged within the last
//     [Options.Commit], and texts that only these events name: a text is on stable storage before its event.
//   - On a full or failing disk, Append, Put and Keep return provenance.ErrUnavailable until there is space,
//     and the record stays complete throughout. Data whose sync failed is written again before it is
//     considered durable, because the kernel may report success for the next sync.
//   - Without write permission, or on a read-only file system, no session can be opened for writing. A
//     session that is already open continues to record events, but accepts no files, and its views lag
//     behind. Sessions can still be read and verified.
//   - If another process removes, moves, replaces, truncates or writes to the record of an open session,
//     every later Append returns ErrUnavailable, because its events would be lost. The next Append detects a
//     change between the check and the write. A directory created under the old name is not mistaken for the
//     session.
//   - If a user other than this one and the superuser can write to a session, it is damaged and is neither
//     read nor continued, unless that user can also write to the whole directory.
//   - A lock prevents two processes, and two stores in one process, from writing to one session; the second
//     gets ErrUnavailable. Different sessions in one directory do not affect each other.
//   - Sequence numbers order the events. Event times come from the clock, which may be set back; no time is
//     refused.
//
// # Memory and lag
//
// The memory of an open session does not grow with its events. Its kept outputs do not exceed
// [Options.Outputs]: the oldest are deleted, after an outputs.removed event names them. The views lag behind
// the record until the session is quiet, is read or ends; the views of long sessions lag longer. Each version
// of a view is a copy of the previous version plus the rows of later events. Verify distinguishes a view that
// lags from one that was changed. Only Collect deletes sessions.
//
// # Limits
//
// A process that can write to the directory can forge a consistent record. A signature by [Options.Signer],
// with a key stored elsewhere, prevents that for ended sessions. Signatures do not reveal that a session was
// rolled back to an earlier state or removed, so a store with a Signer also writes a register of all
// sessions, DIR/~register. Each of its signed lines covers the previous line and is on stable storage before
// a start, a resumption or an end is acknowledged, and before Collect deletes. Verify compares each session
// with the register. Rolling back the whole directory, register included, can be detected only with a copy of
// the register's head stored elsewhere.
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
	// Commit is the longest time before an event that is not durable is synced; zero means 100 ms.
	Commit time.Duration
	// Quiet is the time without events after which a session's views are written; zero means 1 s.
	Quiet time.Duration
	// LockWait is how long to wait for a session that another process holds; zero means 1 s.
	LockWait time.Duration
	// Outputs is the limit for the kept outputs of a session, in bytes; zero means 256 MiB. The oldest are
	// deleted to make space.
	Outputs int64
	// Shown is the limit for the texts shown to a session's model that are kept, in bytes; zero means 256
	// MiB. Texts beyond it are not kept.
	Shown int64
	// Originals is the limit for the kept originals of a session, in bytes; zero means 256 MiB. The oldest
	// are deleted to make space.
	Originals int64
	// ForgetShown keeps no text that was shown to a model, so such a text cannot be shown again.
	ForgetShown bool
	// Signer signs the head of a session's chain when the session ends; nil signs nothing. If the
	// process is killed before it signs, the session stays unsigned: Verify with a key reports it.
	Signer note.Signer
	// Floor is how many bytes of the file system stay free. Below it, only events that conclude an admitted
	// one are recorded. Zero sets no floor.
	Floor int64
	// Quota returns the limits for the sessions of a principal; nil sets none. While a principal is below its
	// quota, one operation may exceed it, such as one long event.
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
	c.Originals = cmp.Or(c.Originals, maxOriginals)
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
	ledger ledger // space used by principals

	viewing chan struct{} // holds a token for each session that is writing its views
	synced  syncedTexts
	pooled  pooledTexts

	mu     sync.Mutex
	closed bool
	// sessions are those that are open or being opened. Each function waits until its session is open.
	sessions map[string]func() (*session, error)
	failed   []error // from closing sessions
}

// Open returns the Store of dir, and creates dir with mode 0700 if it does not exist. opts may be nil.
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
		synced:   syncedTexts{tokens: make(chan struct{}, syncers), file: syncFile},
	}
	st.ledger.of = st.opts.Quota
	st.reader.dir, st.reader.root, st.reader.own, st.reader.writing = dir, root, ownDir(root), st.held
	// Leftovers only take space; Collect reports the error.
	_ = removeUnbegun(dir, root)
	return st, nil
}

// Take implements provenance.Writer. A turn is the session's lock, which cannot be lost while it is held.
// Take waits for a session that another store is about to release.
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
	switch e.Kind {
	case provenance.KindScriptExecuted, provenance.KindSessionEnded, provenance.KindOutputsRemoved:
		// These conclude an admitted event, which left room for them.
	default:
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
	var in *session
	err := st.with(ctx, e.Session, func(s *session) error {
		in = s
		return s.append(ctx, e)
	})
	if err == nil {
		// A view row repeats most of the line, so the size is doubled; 300 covers the other members.
		st.ledger.add(e.Session, e.Principal, 2*int64(len(e.Row)+len(e.Decision)+len(e.Invocation)+300), 0)
	}
	ended := err == nil && e.Kind == provenance.KindSessionEnded
	if in != nil && (ended || errors.Is(err, provenance.ErrNotFound)) {
		st.release(in)
	}
	return err
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
		return s.inDir("put "+name, func(dir *os.Root) error {
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

// Path returns the path of a session's file, whether or not the file exists.
func (st *Store) Path(session, name string) string {
	return filepath.Join(st.root.Name(), session, filepath.FromSlash(provenance.CleanFileName(name)))
}

// with calls do with the open session id, which is not released meanwhile. If the session is released first,
// it is opened again. do must neither release the session nor wait for its release.
func (st *Store) with(ctx context.Context, id string, do func(*session) error) error {
	for {
		s, err := st.open(ctx, id)
		if err != nil {
			return err
		}
		if s.enter() {
			err = func() error {
				defer s.wg.Done()
				return do(s)
			}()
			if !errors.Is(err, errReleased) {
				return err
			}
		}
		<-s.released
	}
}

// enter registers a user of the session other than run, and reports whether it could: a session that is being
// stopped has no new users.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.wg.Add(1)
	}
	return !s.stopped
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
	// Sessions released earlier had no caller to return their errors to.
	return errors.Join(append(slices.Clone(st.failed), st.pooled.close(), st.root.Close())...)
}

// open returns the open session id, and opens it if necessary.
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
			if err != nil {
				// The next request tries again: another process may have released the session by then.
				st.mu.Lock()
				delete(st.sessions, id)
				st.mu.Unlock()
				return nil, fmt.Errorf("open session %s: %w", id, err)
			}
			return s, nil
		})
		st.sessions[id] = opened
	}
	st.mu.Unlock()
	// Opening waits for other processes and reads the whole record, so st.mu is not held.
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

// release writes the views of s and releases its directory. Once s.released is closed, the session is no
// longer in the store.
func (st *Store) release(s *session) {
	s.end.Do(func() {
		err := s.shutdown()
		if st.ledger.of != nil {
			if u := st.measure(s.id, s.point().tally.Session.Principal); u.principal != "" {
				st.ledger.mu.Lock()
				// Before the first count the ledger is empty; that count will measure this session.
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
		if c.Err == nil && !opts.DryRun {
			st.ledger.set(c.ID, use{})
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

// Claim implements provenance.Writer. If several processes claim one ID, only one of them creates the
// directory.
func (st *Store) Claim(_ context.Context, session string) error {
	if !provenance.ValidSessionID(session) {
		return fmt.Errorf("claim %.60q: %w: session id", session, provenance.ErrInvalid)
	}
	taken := fmt.Errorf("claim %s: %w", session, provenance.ErrTaken)
	if fsys.ExistsIn(st.root, session) {
		return taken
	}
	unbegun, err := makeUnbegun(st.root, session)
	switch {
	case errors.Is(err, fs.ErrExist):
		return taken
	case err != nil:
		return unavailable("claim session directory", err)
	}
	// A process with an earlier claim may have recorded the first event since the check above.
	if fsys.ExistsIn(st.root, session) {
		_ = st.root.Remove(unbegun)
		return taken
	}
	return nil
}
