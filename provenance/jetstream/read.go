package jetstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/opencontainers/go-digest"
	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/filestore"
)

// reader reads the sessions of a cluster. It implements provenance.Reader.
type reader struct {
	*cluster
	own func(session string) bool // reports whether this process has the session
}

// Close implements provenance.Reader. The connection stays open.
func (r *reader) Close() error { return nil }

// messages yields the messages of subjects in order, from a sequence number on. It ends at the message that
// is the last when it starts.
func (c *cluster) messages(
	ctx context.Context, s jetstream.Stream, subject string, from uint64,
) iter.Seq2[*jetstream.RawStreamMsg, error] {
	return func(yield func(*jetstream.RawStreamMsg, error) bool) {
		end, err := c.last(ctx, s, subject)
		for next, begin := from, time.Now(); err == nil && next <= end.Sequence; {
			var m *jetstream.RawStreamMsg
			err = c.ask(ctx, func(ctx context.Context) (err error) {
				m, err = s.GetMsg(ctx, next, jetstream.WithGetMsgSubject(subject))
				return err
			})
			switch {
			case err == nil && !yield(m, nil):
				return
			case err == nil:
				next, begin = m.Sequence+1, time.Now()
			case !errors.Is(err, jetstream.ErrMsgNotFound):
			case time.Since(begin) > c.opts.Patience:
				err = fmt.Errorf("%w: message %d is not found before %d", provenance.ErrUnavailable, next,
					end.Sequence)
			default:
				// Either the messages were deleted, or a former leader answered, which lacks later messages.
				time.Sleep(pause)
				_, err = c.last(ctx, s, subject)
			}
		}
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			yield(nil, err)
		}
	}
}

// record returns the lines of a session from a message on.
//
// Errors: provenance.ErrNotFound, the errors of Read.
func (r *reader) record(ctx context.Context, session string, from uint64) (*lineReader, error) {
	if !provenance.ValidSessionID(session) {
		return nil, fmt.Errorf("session %.60q: %w", session, provenance.ErrNotFound)
	}
	next, stop := iter.Pull2(r.messages(ctx, r.events, r.subjectOf(session), from))
	first, err, ok := next()
	if err != nil || !ok {
		stop()
		return nil, cmp.Or(err, fmt.Errorf("session %s: %w", session, provenance.ErrNotFound))
	}
	lines := &lineReader{next: next, stop: stop, cluster: r.cluster, ctx: ctx}
	if err := lines.take(first); err != nil {
		// Without stop, the iterator would keep the context of the request forever.
		stop()
		return nil, err
	}
	return lines, nil
}

// lineReader reads the lines of the messages of a record, one message at a time.
type lineReader struct {
	*cluster
	ctx   context.Context
	next  func() (*jetstream.RawStreamMsg, error, bool)
	stop  func()
	last  *jetstream.RawStreamMsg // the last message read
	rest  []byte
	whole bool              // the last line is complete
	tally *provenance.Tally // of the events read; nil if only bytes are read
}

func (l *lineReader) take(m *jetstream.RawStreamMsg) (err error) {
	l.last, l.rest = m, m.Data
	if sum := m.Header.Get(headerBlob); sum != "" {
		l.rest, err = l.blob(l.ctx, digest.Digest(sum), math.MaxInt64)
	}
	l.whole = bytes.HasSuffix(l.rest, []byte("\n"))
	return err
}

// end returns io.EOF if the events read end where the last message's state ends, which their chain alone does
// not prove.
//
// Errors: provenance.ErrCorrupt.
func (l *lineReader) end() error {
	if l.tally == nil {
		return io.EOF
	}
	s, err := stateOf(l.last)
	if err != nil {
		return err
	}
	if !l.whole || s.Session.Head != l.tally.Session.Head {
		return fmt.Errorf("%w: message %d does not end with event %d", provenance.ErrCorrupt, l.last.Sequence,
			s.Session.Head.Seq)
	}
	return io.EOF
}

// Read implements io.Reader.
func (l *lineReader) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		m, err, ok := l.next()
		switch {
		case !ok:
			return 0, l.end()
		case err == nil:
			err = l.take(m)
		}
		if err != nil {
			l.stop()
			return 0, err
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// Close releases the resources of an unfinished iteration.
func (l *lineReader) Close() error {
	l.stop()
	return nil
}

// Events implements provenance.Reader.
func (r *reader) Events(ctx context.Context, q provenance.Query) iter.Seq2[*provenance.Event, error] {
	return func(yield func(*provenance.Event, error) bool) {
		for e, err := range r.scan(ctx, q.Session) {
			if err != nil {
				yield(nil, err)
				return
			}
			if q.Matches(e) && !yield(e, nil) {
				return
			}
		}
	}
}

// scan yields all events of a session.
func (r *reader) scan(ctx context.Context, session string) iter.Seq2[*provenance.Event, error] {
	return r.scanFrom(ctx, session, 1, provenance.Session{})
}

// scanFrom yields the events of a session from a message on. The first must follow the session state before.
func (r *reader) scanFrom(
	ctx context.Context, session string, from uint64, before provenance.Session,
) iter.Seq2[*provenance.Event, error] {
	return func(yield func(*provenance.Event, error) bool) {
		each := func(e *provenance.Event) bool { return yield(e, nil) }
		_, err := r.foldFrom(ctx, session, from, before, each)
		if err != nil {
			yield(nil, err)
		}
	}
}

// foldFrom calls do with each event of [reader.scanFrom] until it returns false, and returns the session
// state after the last one.
func (r *reader) foldFrom(
	ctx context.Context, session string, from uint64, before provenance.Session,
	do func(*provenance.Event) bool,
) (provenance.Session, error) {
	lines, err := r.record(ctx, session, from)
	if err != nil {
		return before, err
	}
	defer lines.Close()
	sc := provenance.NewScanner(lines)
	lines.tally = &sc.Tally
	sc.Tally.Session, sc.Line = before, int(before.Head.Seq)
	for e, err := range sc.All() {
		if err == nil && e.Session != session {
			err = fmt.Errorf("%w: event of session %q", provenance.ErrCorrupt, e.Session)
		}
		if err != nil {
			err = fmt.Errorf("session %s: %s:%d: %w", session, provenance.EventsFile, sc.Line, err)
			return sc.Tally.Session, err
		}
		if !do(e) {
			break
		}
	}
	return sc.Tally.Session, nil
}

// followEvery is the interval for checking a followed session without a notification.
const followEvery = time.Second

// Follow implements provenance.Reader.
func (r *reader) Follow(ctx context.Context, q provenance.Query) iter.Seq2[*provenance.Event, error] {
	return func(yield func(*provenance.Event, error) bool) {
		if !provenance.ValidSessionID(q.Session) {
			yield(nil, fmt.Errorf("session %.60q: %w", q.Session, provenance.ErrNotFound))
			return
		}
		// A message on the subject may not be recorded, so it is only a reason to read.
		news := make(chan struct{}, 1)
		sub, err := r.conn.Subscribe(r.subjectOf(q.Session), func(*nats.Msg) {
			select {
			case news <- struct{}{}:
			default:
			}
		})
		if err == nil {
			// A closed connection has no subscriptions.
			defer func() { _ = sub.Unsubscribe() }()
		}
		lines := &follower{lineReader: lineReader{cluster: r.cluster, ctx: ctx}, reader: r,
			session: q.Session, from: 1, news: news}
		sc := provenance.NewScanner(lines)
		lines.tally = &sc.Tally
		sc.Follow(ctx, q, func(e *provenance.Event) {
			lines.ended = e.Kind == provenance.KindSessionEnded
		}, yield)
	}
}

// follower reads the lines of a growing record until the session ends.
type follower struct {
	lineReader
	reader  *reader
	session string
	from    uint64 // minimum sequence number of the next message
	news    <-chan struct{}
	ended   bool // the last event read is the end of the session
	over    bool // no process records more events
}

// Read waits for more at the end of the record, unless the session has ended or no process has it.
func (f *follower) Read(p []byte) (int, error) {
	for len(f.rest) == 0 {
		var m *jetstream.RawStreamMsg
		err := f.ask(f.ctx, func(ctx context.Context) (err error) {
			m, err = f.events.GetMsg(ctx, f.from, jetstream.WithGetMsgSubject(f.subjectOf(f.session)))
			return err
		})
		switch {
		case err == nil:
			f.from = m.Sequence + 1
			if err := f.take(m); err != nil {
				return 0, err
			}
			continue
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			return 0, err
		case f.last == nil:
			return 0, provenance.ErrNotFound
		case f.over:
			return 0, f.end()
		case f.ended, !f.reader.isHeld(f.ctx, f.last, f.session):
			// The last events may have been recorded by now, so they come first.
			f.over = true
			continue
		}
		select {
		case <-f.ctx.Done():
			return 0, f.ctx.Err()
		case <-f.news:
		case <-time.After(followEvery):
		}
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// isHeld reports whether a process has the session. m is its last message. A process that does not answer in
// time is assumed to have it.
func (r *reader) isHeld(ctx context.Context, m *jetstream.RawStreamMsg, session string) bool {
	if r.own(session) {
		return true
	}
	answer, err := r.askHolder(ctx, m, session)
	if err != nil {
		return !errors.Is(err, nats.ErrNoResponders)
	}
	return strings.HasPrefix(answer, "1")
}

// askHolder asks the store that wrote m whether it has the session. If so, the answer is "1" and the store's
// address.
//
// Errors: nats.ErrNoResponders if the store no longer exists; others of nats.
func (r *reader) askHolder(ctx context.Context, m *jetstream.RawStreamMsg, session string) (string, error) {
	name, _, _ := strings.Cut(m.Header.Get(headerWriter), ".")
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	answer, err := r.conn.RequestWithContext(ctx, r.subject("holds", name), []byte(session))
	if err != nil {
		return "", err
	}
	return string(answer.Data), nil
}

// Holder identifies the store that has a session.
type Holder struct {
	Own     bool   // the store that was asked has it
	Held    bool   // some store has it; false if the last writer ended it, is gone or is silent
	Address string // see [Options.Address]; empty unless another store has the session
}

// Holder returns the store that has a session: the writer of its last event, if it confirms that within two
// seconds. A silent store may still be running; it loses the session to a store that takes it and writes.
//
// Errors: provenance.ErrNotFound if the session has no events; provenance.ErrUnavailable; the error of ctx.
func (st *Store) Holder(ctx context.Context, session string) (Holder, error) {
	if st.holds(session) {
		return Holder{Own: true, Held: true}, nil
	}
	m, err := st.last(ctx, st.events, st.subjectOf(session))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		err = provenance.ErrNotFound
	}
	if err != nil {
		return Holder{}, fmt.Errorf("find session %s: %w", session, err)
	}
	answer, err := st.askHolder(ctx, m, session)
	if ctx.Err() != nil {
		return Holder{}, ctx.Err()
	}
	address, held := strings.CutPrefix(answer, "1")
	return Holder{Held: err == nil && held, Address: address}, nil
}

// found is a session in a listing.
type found struct {
	id    string
	last  *jetstream.RawStreamMsg
	state state
	err   error
}

// sessions returns the sessions with a record written after since, the last one written first.
func (r *reader) sessions(ctx context.Context, since time.Time) ([]found, error) {
	subjects, err := r.subjects(ctx, r.events, r.subject("ev", "*"))
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	var all []found
	for _, subject := range subjects {
		m, err := r.last(ctx, r.events, subject)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			// The session was deleted in between.
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list sessions: %w", err)
		}
		if !m.Time.After(since) {
			continue
		}
		f := found{id: strings.ReplaceAll(subject[len(r.subject("ev", "")):], "~", "."), last: m}
		f.state, f.err = stateOf(m)
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b found) int {
		return cmp.Or(b.last.Time.Compare(a.last.Time), strings.Compare(b.id, a.id))
	})
	return all, nil
}

// subjects returns the subjects of a stream that match a filter.
func (c *cluster) subjects(ctx context.Context, s jetstream.Stream, filter string) ([]string, error) {
	var names []string
	err := c.ask(ctx, func(ctx context.Context) error {
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
		if err != nil {
			return err
		}
		names = slices.Sorted(maps.Keys(info.State.Subjects))
		return nil
	})
	return names, err
}

// Sessions implements provenance.Reader.
func (r *reader) Sessions(ctx context.Context, since time.Time) iter.Seq2[provenance.Session, error] {
	return func(yield func(provenance.Session, error) bool) {
		all, err := r.sessions(ctx, since)
		if err != nil {
			yield(provenance.Session{}, err)
			return
		}
		for _, f := range all {
			s := f.state.Session
			switch {
			case f.err != nil:
				s = provenance.Session{ID: f.id, State: provenance.StateDamaged,
					CreatedAt: provenance.Stamp(f.last.Time)}
			case s.State == provenance.StateOpen && !r.isHeld(ctx, f.last, f.id):
				s.State = provenance.StateCrashed
			}
			if err := ctx.Err(); err != nil {
				yield(provenance.Session{}, err)
				return
			}
			if !yield(s, f.err) {
				return
			}
		}
	}
}

// Artifact implements provenance.Reader. It builds the views from the events.
func (r *reader) Artifact(ctx context.Context, session, name string) (io.ReadCloser, error) {
	name = provenance.CleanFileName(name)
	if err := provenance.CheckArtifactName(name); err != nil {
		return nil, fmt.Errorf("open artifact: %w", err)
	}
	var made bytes.Buffer
	var err error
	switch {
	case !provenance.ValidSessionID(session):
		err = provenance.ErrNotFound
	case name == provenance.EventsFile:
		lines, err := r.record(ctx, session, 1)
		if err != nil {
			return nil, fmt.Errorf("open %s of session %s: %w", name, session, err)
		}
		return lines, nil
	case name == provenance.SessionFile:
		err = r.foldSessionFile(ctx, &made, session)
	case provenance.IsView(name):
		err = cfharness.WriteView(&made, name, func() iter.Seq2[*provenance.Event, error] {
			return r.scan(ctx, session)
		})
	default:
		var data []byte
		data, err = r.file(ctx, session, name)
		made.Write(data)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s of session %s: %w", name, session, err)
	}
	return io.NopCloser(&made), nil
}

// foldSessionFile writes the session.json of a session from its events.
func (r *reader) foldSessionFile(ctx context.Context, out *bytes.Buffer, session string) error {
	all := func(*provenance.Event) bool { return true }
	s, err := r.foldFrom(ctx, session, 1, provenance.Session{}, all)
	if err != nil {
		return err
	}
	data, err := provenance.EncodePretty(s)
	out.Write(data)
	return err
}

// Stored implements provenance.Reader. It is the same as Artifact, because no file lags behind the record.
func (r *reader) Stored(ctx context.Context, session, name string) (io.ReadCloser, error) {
	return r.Artifact(ctx, session, name)
}

// Files implements provenance.Reader.
func (r *reader) Files(ctx context.Context, session string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var heads cfharness.Heads
		for e, err := range r.scan(ctx, session) {
			if err != nil {
				yield("", err)
				return
			}
			if err := heads.Add(e); err != nil {
				yield("", err)
				return
			}
		}
		names := []string{provenance.SessionFile}
		for _, view := range provenance.ViewNames() {
			if heads.Rows(view) > 0 {
				names = append(names, view)
			}
		}
		kept, err := r.names(ctx, session)
		if err != nil {
			yield("", fmt.Errorf("list files of session %s: %w", session, err))
			return
		}
		names = append(names, kept...)
		rank := func(name string) int {
			dir, _, _ := strings.Cut(name, "/")
			return slices.Index([]string{provenance.OutputsDir, provenance.ShownDir}, dir)
		}
		slices.SortFunc(names, func(a, b string) int {
			return cmp.Or(rank(a)-rank(b), strings.Compare(a, b))
		})
		for _, name := range names {
			if !yield(name, nil) {
				return
			}
		}
	}
}

// Verify implements provenance.Reader. It copies the session into a temporary directory and verifies it there
// like any other session. No file of the copy can be stale.
func (r *reader) Verify(
	ctx context.Context, session string, keys ...note.Verifier,
) (report *provenance.Report, err error) {
	dir, err := os.MkdirTemp("", "skillsd-verify-")
	if err != nil {
		return nil, fmt.Errorf("verify session %s: %w", session, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return filestore.CopyFrom(ctx, dir, r, session, false, keys...)
}

// Register implements provenance.Reader. A cluster has no register.
func (r *reader) Register(context.Context, ...note.Verifier) (*provenance.Register, error) {
	return &provenance.Register{}, nil
}

// Missing implements provenance.Reader.
func (r *reader) Missing(context.Context, ...note.Verifier) (map[string]*provenance.Registered, error) {
	return nil, nil
}

// DropNamed implements provenance.Reader.
func (r *reader) DropNamed(ctx context.Context, digests map[digest.Digest]bool) error {
	subjects, err := r.subjects(ctx, r.events, r.subject("ev", "*"))
	if err != nil {
		return fmt.Errorf("search sessions: %w", err)
	}
	for _, subject := range subjects {
		if len(digests) == 0 {
			break
		}
		id := strings.ReplaceAll(subject[len(r.subject("ev", "")):], "~", ".")
		lines, err := r.record(ctx, id, 1)
		if errors.Is(err, provenance.ErrNotFound) {
			// The session was deleted meanwhile.
			continue
		}
		if err != nil {
			return fmt.Errorf("search sessions: %w", err)
		}
		err = errors.Join(provenance.DropDigests(ctx, lines, digests), lines.Close())
		if err != nil {
			return fmt.Errorf("search sessions: %w", err)
		}
	}
	return nil
}

// Collect implements provenance.Reader.
func (r *reader) Collect(
	ctx context.Context, opts provenance.CollectOptions,
) (gone []provenance.Collected, err error) {
	all, err := r.sessions(ctx, time.Time{})
	if err != nil {
		return nil, err
	}
	called := func(f found) time.Time {
		if f.state.Called.IsZero() {
			return f.last.Time
		}
		return f.state.Called
	}
	slices.SortStableFunc(all, func(a, b found) int { return called(b).Compare(called(a)) })
	var total int64
	for i, f := range all {
		size, err := r.size(ctx, f)
		if err != nil {
			return gone, err
		}
		total += size
		if i < opts.Keep || !f.last.Time.Before(opts.Before) && (opts.Total == 0 || total <= opts.Total) {
			continue
		}
		c := provenance.Collected{ID: f.id, Written: f.last.Time, Bytes: size}
		c.Err = r.collect(ctx, f, opts)
		if c.Err != nil {
			c.Bytes = 0
		}
		gone = append(gone, c)
	}
	if opts.DryRun || len(gone) == 0 {
		return gone, nil
	}
	return gone, r.sweep(ctx)
}

// collect deletes a session, unless a process has it.
func (r *reader) collect(ctx context.Context, f found, opts provenance.CollectOptions) error {
	if opts.Release != nil && !opts.DryRun && !opts.Release(ctx, f.id) || r.isHeld(ctx, f.last, f.id) {
		return provenance.ErrHeld
	}
	if opts.DryRun {
		return nil
	}
	// Release may have recorded the end of the session.
	m, err := r.last(ctx, r.events, r.subjectOf(f.id))
	if err != nil {
		return err
	}
	return r.delete(ctx, f.id, m.Sequence)
}

// delete deletes a session up to its last message, the record first.
//
// Errors: provenance.ErrHeld if a server has continued the session since; then later events and the files are
// kept.
func (r *reader) delete(ctx context.Context, session string, last uint64) error {
	if err := r.deleteRecord(ctx, r.subjectOf(session), last); err != nil {
		return fmt.Errorf("delete session %s: %w", session, err)
	}
	for _, subject := range []string{r.subject("file", session) + ".>", r.subject("long", session) + ".*",
		r.subject("claim", session)} {
		if err := r.purge(ctx, r.blobs, subject); err != nil {
			return fmt.Errorf("delete session %s: %w", session, err)
		}
	}
	return nil
}

// deleteRecord deletes the messages of a record up to its last one. A later message means that the session
// continues and needs its files.
//
// Errors: provenance.ErrHeld if there is a later message; see ask.
func (r *reader) deleteRecord(ctx context.Context, subject string, last uint64) error {
	if err := r.purge(ctx, r.events, subject, jetstream.WithPurgeSequence(last+1)); err != nil {
		return err
	}
	_, err := r.last(ctx, r.events, subject)
	switch {
	case err == nil:
		return provenance.ErrHeld
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil
	}
	return err
}
