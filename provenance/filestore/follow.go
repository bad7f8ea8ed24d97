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

// followEvery is how often a session that is followed is looked at without a change of its record: nothing
// says that its process was killed, nor, where files cannot be watched, that there are new events.
const followEvery = time.Second

// Follow implements provenance.Reader. It watches the record, so that nothing is read while nothing is
// written. It may yield an event that is about to be taken back, because it cannot be put on stable storage.
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

// follower reads a file that grows, up to the end of the session.
type follower struct {
	ctx     context.Context
	file    *os.File
	at      int64
	changed <-chan fsnotify.Event // nil if the file cannot be watched
	live    func() bool           // reports whether a process writes the session
	ended   bool                  // the last event read is the end of the session
}

// Read waits at the end of the file for more, unless the session has ended.
//
// Errors: io.EOF at the end, provenance.ErrCorrupt if the file became shorter, or the error of reading or of
// ctx.
func (f *follower) Read(p []byte) (int, error) {
	for {
		live := !f.ended && f.live()
		n, err := f.file.Read(p)
		f.at += int64(n)
		if n > 0 || err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
		// It was looked for before the read, so that its last events were read.
		if !live {
			return 0, io.EOF
		}
		if info, err := f.file.Stat(); err != nil || info.Size() < f.at {
			return 0, errors.Join(err, fmt.Errorf("%w: it became shorter", provenance.ErrCorrupt))
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
