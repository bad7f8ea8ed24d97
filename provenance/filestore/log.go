package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// maxBatch bounds how many events share one write.
const maxBatch = 512

// maxUnsynced is how many bytes may wait for stable storage before an append waits for it.
const maxUnsynced = 8 << 20

// maxIdle is how many bytes of buffer an idle log keeps.
const maxIdle = 64 << 10

type appendRequest struct {
	e     *provenance.Event
	reply chan error
}

func (s *session) append(ctx context.Context, e *provenance.Event) error {
	r := &appendRequest{e: e, reply: make(chan error, 1)}
	select {
	case s.appends <- r:
		// From here on the event may be recorded even if ctx ends; only the reply shows whether it was.
		return <-r.reply
	case <-s.done:
		return errReleased
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run owns the log until the session is stopped.
func (s *session) run() {
	defer close(s.done)
	commit, quiet := time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	commit.Stop()
	quiet.Stop()
	armed, syncing, writing := false, false, false
	synced, written := make(chan struct{}, 1), make(chan struct{}, 1)
	for {
		select {
		case r := <-s.appends:
			s.commit(r)
			quiet.Reset(s.opts.Quiet)
		case <-commit.C:
			// A goroutine syncs, because events must not wait until a hundred texts are synced.
			syncing = true
			go func() {
				s.syncMost()
				s.sync()
				synced <- struct{}{}
			}()
		case <-synced:
			armed, syncing = false, false
		case <-quiet.C:
			s.mu.Lock()
			left := time.Until(s.paused)
			s.mu.Unlock()
			if left > 0 {
				quiet.Reset(left)
			} else if writing {
				// The disk is slow. A second writer would only wait for the first and rewrite everything.
				quiet.Reset(s.opts.Quiet)
			} else if s.enter() {
				writing = true
				go func() {
					defer s.wg.Done()
					// If the error persists, the next reader and shutdown return it.
					_ = s.writeViews()
					written <- struct{}{}
				}()
			}
		case <-written:
			writing = false
		case <-s.stop:
			if syncing {
				<-synced
			}
			s.sync()
			return
		}
		s.logMu.Lock()
		waiting := len(s.log.unsynced) > 0
		s.logMu.Unlock()
		// A timer that every event resets would never fire while events keep arriving.
		if waiting && !armed {
			commit.Reset(s.opts.Commit)
			armed = true
		}
	}
}

// commit records the events of r and of the waiting requests, in order, and replies to each. The first event
// of a session is recorded durably.
func (s *session) commit(r *appendRequest) {
	batch, events := []*appendRequest{r}, []*provenance.Event{r.e}
	for more := true; more && len(batch) < maxBatch; {
		select {
		case r := <-s.appends:
			batch, events = append(batch, r), append(events, r.e)
		default:
			more = false
		}
	}
	s.logMu.Lock()
	defer s.logMu.Unlock()
	var errs []error
	// One check per batch: each costs two system calls.
	if err := s.intact(); err != nil {
		errs = slices.Repeat([]error{unavailable("append event", err)}, len(events))
	} else {
		errs = s.log.append(events, s.log.tally.Session.Head.Seq == 0)
	}
	for i, r := range batch {
		r.reply <- errs[i]
	}
}

// intact returns an error if the open file is no longer the complete record under the session's name. Events
// appended to such a file would be lost or would follow foreign bytes. If another process writes between this
// check and the append, the next append detects it.
func (s *session) intact() error {
	open, err := s.record.Stat()
	if err != nil {
		return err
	}
	n, known := links(open)
	unlinked := known && n == 0
	named, err := s.store.root.Lstat(path.Join(s.dirName(), provenance.EventsFile))
	switch {
	case err == nil && !os.SameFile(named, open), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s was removed, moved or replaced", provenance.EventsFile)
	case err != nil && unlinked:
		return errReplaced
	case s.log.suspect:
		// After a write that failed half-way, repair truncates the file.
		return nil
	case open.Size() != s.log.offset:
		return fmt.Errorf("%s has %d bytes, not the %d that were recorded: another process changed it",
			provenance.EventsFile, open.Size(), s.log.offset)
	}
	return nil
}

// log is an open events.jsonl and the state of its chain. It is not safe for concurrent use.
type log struct {
	file     file
	now      func() time.Time
	tally    fold
	offset   int64  // end of the acknowledged lines
	synced   int64  // end of the lines on stable storage
	unsynced []byte // the lines between the two
	suspect  bool   // the file after synced may differ from what was written
	// first is called before the file is synced; it syncs the files that the lines name.
	first func() error
	// begin is called once the first lines are on stable storage; after an error they are truncated. It is
	// nil after it succeeded.
	begin func() error
	// note is called with the events that belong in the register, after the sync and begin; after an error
	// the lines are truncated. It is nil if sessions are not signed.
	note func([]*provenance.Event) error
}

// append records events in order and returns the error for each. They share one write and, if any of them is
// durable or durably is set, one sync. If either fails, no event is recorded.
func (l *log) append(events []*provenance.Event, durably bool) []error {
	if l.suspect {
		if err := l.repair(); err != nil {
			return slices.Repeat([]error{unavailable("append event", err)}, len(events))
		}
	}
	g := group{tally: l.tally, durable: durably}
	errs := make([]error, len(events))
	for i, e := range events {
		errs[i] = l.place(&g, e)
	}
	var failed error
	if len(g.lines) > 0 {
		failed = l.write(g.lines, g.durable || len(l.unsynced)+len(g.lines) > maxUnsynced, g.noted)
	}
	if failed == nil {
		l.tally = g.tally
	}
	for i, e := range events {
		if errs[i] == nil && failed != nil {
			errs[i] = unavailable("append event", failed)
		}
		if errs[i] != nil {
			e.Unplace()
		}
	}
	return errs
}

// group is the accepted events of one append.
type group struct {
	tally   fold // after the events
	lines   []byte
	durable bool                // the lines must be synced before they are acknowledged
	noted   []*provenance.Event // the events that belong in the register
}

// place adds the line of e to g. A refused event leaves no gap: the next one follows the last accepted event.
func (l *log) place(g *group, e *provenance.Event) error {
	line, err := g.tally.Extend(e, l.now)
	if err != nil {
		return err
	}
	// Heads accepts every event that a Tally accepts.
	if err := g.tally.Heads.Add(e); err != nil {
		return err
	}
	if g.lines == nil {
		// Most often there is only one line.
		g.lines = line
	} else {
		g.lines = append(g.lines, line...)
	}
	g.durable = g.durable || e.Kind.Facts().Durable
	if l.note != nil && marks(e) {
		g.noted, g.durable = append(g.noted, e), true
	}
	return nil
}

// write appends lines to the file, or leaves the file unchanged. If durably is set, the lines are on stable
// storage when it returns, and noted are in the register.
func (l *log) write(lines []byte, durably bool, noted []*provenance.Event) (err error) {
	defer func() {
		// Some of the lines may be in the file, and a reader would take them for recorded.
		if err != nil && l.file.Truncate(l.offset) != nil {
			l.suspect = true
		}
	}()
	if _, err := l.file.WriteAt(lines, l.offset); err != nil {
		return err
	}
	if durably {
		if err := l.flush(); err != nil {
			// After a failed sync, the kernel may drop the pages and report them clean.
			l.suspect = true
			return err
		}
		if l.begin != nil {
			if err := l.begin(); err != nil {
				return err
			}
			l.begin = nil
		}
		if len(noted) > 0 {
			if err := l.note(noted); err != nil {
				return err
			}
		}
	}
	l.offset += int64(len(lines))
	l.unsynced = append(l.unsynced, lines...)
	if durably {
		l.clean()
	}
	return nil
}

// sync syncs every acknowledged line.
func (l *log) sync() error {
	if l.suspect {
		return l.repair()
	}
	if len(l.unsynced) == 0 {
		return nil
	}
	if err := l.flush(); err != nil {
		l.suspect = true
		return err
	}
	l.clean()
	return nil
}

// flush syncs the file, after the files that its lines name.
func (l *log) flush() error {
	if err := l.first(); err != nil {
		return err
	}
	return l.file.Sync()
}

// clean marks every line as synced. It frees a buffer that grew large.
func (l *log) clean() {
	l.synced, l.unsynced = l.offset, l.unsynced[:0]
	if cap(l.unsynced) > maxIdle {
		l.unsynced = nil
	}
}

// repair rewrites the lines that a failure may have lost.
func (l *log) repair() error {
	// The file may contain lines whose append failed, and may lack acknowledged lines since the last
	// successful sync.
	err := l.file.Truncate(l.offset)
	if err != nil {
		return err
	}
	_, err = l.file.WriteAt(l.unsynced, l.synced)
	if err != nil {
		return err
	}
	err = l.flush()
	if err != nil {
		return err
	}
	l.clean()
	l.suspect = false
	return nil
}

// sync syncs every acknowledged event. The log keeps an error and returns it for the next event.
func (s *session) sync() {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	_ = s.log.sync()
}

// point returns the end of the record.
func (s *session) point() scanPoint {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	return scanPoint{tally: s.log.tally, offset: s.log.offset}
}

// syncedPoint syncs the record and returns its end.
func (s *session) syncedPoint() (scanPoint, error) {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	var err error
	switch {
	case len(s.log.unsynced) == 0:
	case s.log.file == nil:
		err = errors.New("record is not on stable storage")
	default:
		err = s.log.sync()
	}
	return scanPoint{tally: s.log.tally, offset: s.log.offset}, err
}

// fold is the session state folded from a record's events, and the heads of its views.
type fold struct {
	provenance.Tally
	cfharness.Heads
}
