package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/skillsd/skillsd/provenance"
)

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
