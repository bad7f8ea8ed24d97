package filestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// reader reads the sessions of a directory. It implements provenance.Reader.
type reader struct {
	dir  string
	root *os.Root // nil if the directory does not exist
	own  bool     // no other user can write to the directory, so it has only this user's sessions
	// writing returns the session if this process has it open for writing, else nil.
	writing func(id string) *session

	register register
}

// OpenReader returns a Reader of the sessions in dir. It opens no session for writing and creates no
// directory; a dir that does not exist has no sessions.
//
// Errors: the error of opening dir.
func OpenReader(dir string) (provenance.Reader, error) {
	root, err := os.OpenRoot(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open session directory: %w", err)
	}
	return &reader{dir: dir, root: root, own: root != nil && ownDir(root),
		writing: func(string) *session { return nil }}, nil
}

// Close implements provenance.Reader.
func (r *reader) Close() error {
	if r.root == nil {
		return nil
	}
	return r.root.Close()
}

// session opens the directory of a session.
func (r *reader) session(id string) (*os.Root, error) {
	if r.root == nil {
		return nil, fmt.Errorf("session %.60q: %w", id, provenance.ErrNotFound)
	}
	dir, err := openSession(r.root, id)
	if errors.Is(err, provenance.ErrNotFound) {
		// The session may have files before its first event.
		if s := r.writing(id); s != nil && s.dirName() != id {
			return s.openDir()
		}
	}
	if err != nil {
		return nil, err
	}
	if r.own {
		if err := checkOwner(dir); err != nil {
			return nil, errors.Join(fmt.Errorf("session %s: %w", id, err), dir.Close())
		}
	}
	return dir, nil
}

// Events implements provenance.Reader.
func (r *reader) Events(ctx context.Context, q provenance.Query) iter.Seq2[*provenance.Event, error] {
	return func(yield func(*provenance.Event, error) bool) {
		for e, err := range r.events(q.Session) {
			if err != nil {
				yield(nil, err)
				return
			}
			if err := ctx.Err(); err != nil {
				yield(nil, err)
				return
			}
			if q.Matches(e) && !yield(e, nil) {
				return
			}
		}
	}
}

// events yields the acknowledged events of a record.
func (r *reader) events(id string) iter.Seq2[*provenance.Event, error] {
	return func(yield func(*provenance.Event, error) bool) {
		_, err := r.fold(id, func(e *provenance.Event) bool { return yield(e, nil) })
		if err != nil {
			yield(nil, err)
		}
	}
}

// fold calls do with each acknowledged event of a record until it returns false, and returns the session
// state after the last one.
func (r *reader) fold(id string, do func(*provenance.Event) bool) (s provenance.Session, err error) {
	f, err := r.Stored(context.Background(), id, provenance.EventsFile)
	if err != nil {
		return s, err
	}
	defer f.Close()
	sc := provenance.NewScanner(f)
	for e, err := range sc.All() {
		if err != nil {
			err = fmt.Errorf("session %s: %s:%d: %w", id, provenance.EventsFile, sc.Line, err)
			return sc.Tally.Session, err
		}
		if !do(e) {
			break
		}
	}
	return sc.Tally.Session, nil
}

// Artifact implements provenance.Reader. Besides the files of Put and Keep and the views, it opens
// session.json and events.jsonl. If this process does not have the session open for writing, Artifact builds
// views from the events and writes nothing.
func (r *reader) Artifact(ctx context.Context, id, name string) (io.ReadCloser, error) {
	name = provenance.CleanFileName(name)
	if provenance.IsView(name) || name == provenance.SessionFile {
		s := r.writing(id)
		if s == nil {
			return r.foldArtifact(id, name)
		}
		if err := s.flush(); err != nil {
			return nil, err
		}
	}
	return r.Stored(ctx, id, name)
}

// Stored implements provenance.Reader.
func (r *reader) Stored(_ context.Context, id, name string) (io.ReadCloser, error) {
	name = provenance.CleanFileName(name)
	if err := provenance.CheckArtifactName(name); err != nil {
		return nil, fmt.Errorf("open artifact: %w", err)
	}
	limit := int64(math.MaxInt64)
	if s := r.writing(id); s != nil && name == provenance.EventsFile {
		// Lines after the acknowledged ones may be partial or about to be truncated.
		limit = s.point().offset
	}
	dir, err := r.session(id)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := openRegular(dir, name)
	if err != nil {
		return nil, fmt.Errorf("open %s of session %s: %w", name, id, err)
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, limit), f}, nil
}

// Files implements provenance.Reader. It omits files with names that no session file has.
func (r *reader) Files(_ context.Context, id string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		dir, err := r.session(id)
		if err != nil {
			yield("", err)
			return
		}
		defer dir.Close()
		for _, parent := range []string{".", provenance.OutputsDir, provenance.ShownDir} {
			entries, err := fs.ReadDir(dir.FS(), parent)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				yield("", fmt.Errorf("list files of session %s: %w", id, cause(err)))
				return
			}
			for _, en := range entries {
				name := path.Join(parent, en.Name())
				if !en.Type().IsRegular() || name == provenance.EventsFile ||
					provenance.CheckArtifactName(name) != nil {
					continue
				}
				if !yield(name, nil) {
					return
				}
			}
		}
	}
}

// maxSessionFile limits the size of a session.json, in bytes.
const maxSessionFile = 1 << 20

func readSessionFile(dir *os.Root) (*provenance.Session, error) {
	f, err := openRegular(dir, provenance.SessionFile)
	if err != nil {
		return nil, err
	}
	data, err := readAll(f, provenance.SessionFile, maxSessionFile)
	if err != nil {
		return nil, err
	}
	var s provenance.Session
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%w: %v", provenance.ErrCorrupt, err)
	}
	return &s, nil
}

// readAll reads a file of at most limit bytes, and closes it.
func readAll(f *os.File, name string, limit int64) ([]byte, error) {
	data, err := fsys.ReadAll(f, limit)
	if long, ok := errors.AsType[*fsys.TooLongError](err); ok {
		err = fmt.Errorf("%s is %w", name, long)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, cause(err)
	}
	return data, nil
}

// foldArtifact builds a view or session.json of a session from its events.
func (r *reader) foldArtifact(id, name string) (io.ReadCloser, error) {
	var buf bytes.Buffer
	var err error
	if name == provenance.SessionFile {
		err = r.foldSessionFile(&buf, id)
	} else {
		err = cfharness.WriteView(&buf, name, func() iter.Seq2[*provenance.Event, error] {
			return r.events(id)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("open %s of session %s: %w", name, id, err)
	}
	return io.NopCloser(&buf), nil
}

// foldSessionFile writes the session.json of a session from its events.
func (r *reader) foldSessionFile(buf *bytes.Buffer, id string) error {
	s, err := r.foldSession(id)
	if err != nil {
		return err
	}
	data, err := provenance.EncodePretty(s)
	buf.Write(data)
	return err
}

// DropNamed implements provenance.Reader. It searches the bytes of the records without decoding them.
func (r *reader) DropNamed(ctx context.Context, digests map[digest.Digest]bool) error {
	if r.root == nil {
		return nil
	}
	entries, err := fs.ReadDir(r.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("search sessions: %w", cause(err))
	}
	for _, en := range entries {
		if len(digests) == 0 {
			return nil
		}
		if !en.IsDir() || !provenance.ValidSessionID(en.Name()) {
			continue
		}
		err := r.dropNamed(ctx, en.Name(), digests)
		if err != nil && !errors.Is(err, provenance.ErrNotFound) {
			return fmt.Errorf("search session %s: %w", en.Name(), err)
		}
	}
	return nil
}

// dropNamed removes from digests the ones that occur in the record of one session.
//
// Errors: provenance.ErrNotFound if there is no record.
func (r *reader) dropNamed(ctx context.Context, id string, digests map[digest.Digest]bool) (err error) {
	dir, err := r.session(id)
	if err != nil {
		return err
	}
	defer dir.Close()
	file, err := openRegular(dir, provenance.EventsFile)
	if err != nil {
		return err
	}
	defer file.Close()
	return cause(provenance.DropDigests(ctx, file, digests))
}

// followEvery is the interval for checking a followed session whose file reports no change. It detects that
// the session's process was killed and, where files cannot be watched, new events.
const followEvery = time.Second

// Follow implements provenance.Reader. It watches the record and reads only after changes. It may yield an
// event that is then truncated because it could not be synced.
func (r *reader) Follow(ctx context.Context, q provenance.Query) iter.Seq2[*provenance.Event, error] {
	return func(yield func(*provenance.Event, error) bool) {
		dir, err := r.session(q.Session)
		if err != nil {
			yield(nil, err)
			return
		}
		defer dir.Close()
		file, err := openRegular(dir, provenance.EventsFile)
		if err != nil {
			yield(nil, fmt.Errorf("session %s: open %s: %w", q.Session, provenance.EventsFile, err))
			return
		}
		defer file.Close()
		f := &follower{ctx: ctx, file: file, live: func() bool { return r.isHeld(dir, q.Session) }}
		// A user can run out of inotify instances. The record is then checked at every followEvery.
		if watch, err := fsnotify.NewWatcher(); err == nil {
			defer watch.Close()
			if watch.Add(filepath.Join(r.dir, q.Session, provenance.EventsFile)) == nil {
				f.changed = watch.Events
			}
		}
		provenance.NewScanner(f).Follow(ctx, q, func(e *provenance.Event) {
			f.ended = e.Kind == provenance.KindSessionEnded
		}, yield)
	}
}

// follower reads a growing file until the session ends.
type follower struct {
	ctx     context.Context
	file    *os.File
	at      int64
	changed <-chan fsnotify.Event // nil if the file cannot be watched
	live    func() bool           // reports whether a process writes the session
	ended   bool                  // the last event read is the end of the session
}

// Read waits for more at the end of the file, unless the session has ended.
//
// Errors: io.EOF at the end; provenance.ErrCorrupt if the file became shorter; the errors of reading and of
// ctx.
func (f *follower) Read(p []byte) (int, error) {
	for {
		live := !f.ended && f.live()
		n, err := f.file.Read(p)
		f.at += int64(n)
		if n > 0 || err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
		// live was determined before the read, so the process's last events have been read.
		if !live {
			return 0, io.EOF
		}
		if info, err := f.file.Stat(); err != nil || info.Size() < f.at {
			return 0, errors.Join(err, fmt.Errorf("%w: the record became shorter", provenance.ErrCorrupt))
		}
		select {
		case <-f.ctx.Done():
			return 0, f.ctx.Err()
		case _, open := <-f.changed:
			if !open {
				f.changed = nil
			}
		case <-time.After(followEvery):
		}
	}
}
