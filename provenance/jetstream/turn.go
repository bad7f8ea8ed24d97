package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

const (
	// maxBatch and maxBytes limit a message: as a JSON answer, it must fit into a server's 1 MiB.
	maxBatch = 512
	maxBytes = 512 << 10
)

// Headers of the messages of a record.
const (
	headerWriter = "Writer" // the name of the turn
	headerBatch  = "Batch"  // number of the message within the turn
	headerState  = "State"  // after the batch
	headerBlob   = "Blob"   // digest of the lines, if they are too long for the message

	headerCheckpoint = "Checkpoint" // in some messages, the state before the batch; see checkpoint
)

// state is the session state that the next writer needs.
type state struct {
	Session provenance.Session `json:"session"`
	Called  time.Time          `json:"called,omitzero"` // time of the client's last call
	Bytes   int64              `json:"bytes"`           // size of all lines

	Checkpoint mark `json:"checkpoint,omitzero"` // the last one
}

// stateOf returns the state after a message.
//
// Errors: provenance.ErrCorrupt.
func stateOf(m *jetstream.RawStreamMsg) (s state, err error) {
	if err := json.Unmarshal([]byte(m.Header.Get(headerState)), &s); err != nil || s.Session.Head.Seq == 0 {
		return s, fmt.Errorf("%w: message %d has no state", provenance.ErrCorrupt, m.Sequence)
	}
	return s, nil
}

// turn is one store's turn at a session, current or prospective.
type turn struct {
	store *Store
	id    string
	users int         // guarded by Store.mu
	held  atomic.Bool // the store has the session
	lost  atomic.Bool // another writer has the session; only Take begins another turn

	mu      sync.Mutex
	waiting []*request

	work   chan struct{} // full while the record is read or written; guards the fields below
	writer string        // name of the turn
	loaded bool
	state  state
	last   uint64 // sequence number of the last message
	batch  int
	open   []*batch        // published batches with unknown outcome, after message last
	fold   *cfharness.Fold // folded from all events; nil if unknown or too large for a checkpoint
	landed map[*provenance.Event]provenance.Event
}

type request struct {
	event *provenance.Event
	done  chan struct{} // closed once err is the outcome
	err   error
}

// batch is a published batch of events and the state after it.
type batch struct {
	number int
	state  state
	events []recorded
}

type recorded struct{ from, as *provenance.Event }

// turn returns the turn at a session. The caller must call leave.
func (st *Store) turn(id string) (*turn, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return nil, provenance.ErrClosed
	}
	t := st.turns[id]
	if t == nil {
		t = &turn{store: st, id: id, work: make(chan struct{}, 1)}
		st.turns[id] = t
	}
	t.users++
	return t, nil
}

func (st *Store) leave(t *turn) {
	st.mu.Lock()
	defer st.mu.Unlock()
	t.users--
	if t.users == 0 && !t.held.Load() && !t.lost.Load() && st.turns[t.id] == t {
		delete(st.turns, t.id)
	}
}

// holds reports whether this store has the session.
func (st *Store) holds(id string) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	t := st.turns[id]
	return t != nil && t.held.Load()
}

// Take implements provenance.Writer. It succeeds whenever the cluster answers; the other writer loses the
// session at the first event of this one.
func (st *Store) Take(ctx context.Context, session string) error {
	if !provenance.ValidSessionID(session) {
		return fmt.Errorf("take %.60q: %w: session id", session, provenance.ErrInvalid)
	}
	t, err := st.turn(session)
	if err != nil {
		return err
	}
	defer st.leave(t)
	t.work <- struct{}{}
	defer func() { <-t.work }()
	return t.load(ctx)
}

// Release implements provenance.Writer.
func (st *Store) Release(session string) {
	st.mu.Lock()
	t := st.turns[session]
	st.mu.Unlock()
	if t == nil {
		return
	}
	// The turn ends after the waiting events are recorded.
	t.work <- struct{}{}
	defer func() { <-t.work }()
	st.mu.Lock()
	defer st.mu.Unlock()
	t.loaded = false
	t.lost.Store(false)
	t.held.Store(false)
	if t.users == 0 && st.turns[session] == t {
		delete(st.turns, session)
	}
}

// Close implements provenance.Writer. The connection stays open.
func (st *Store) Close() error {
	st.mu.Lock()
	closed := st.closed
	st.closed = true
	open := slices.Collect(maps.Keys(st.turns))
	st.mu.Unlock()
	if closed {
		return nil
	}
	for _, id := range open {
		st.Release(id)
	}
	for _, alive := range st.alive {
		if err := alive.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			return fmt.Errorf("close records: %w", err)
		}
	}
	return nil
}

// Append implements provenance.Writer.
func (st *Store) Append(ctx context.Context, e *provenance.Event) error {
	if err := e.Validate(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t, err := st.turn(e.Session)
	if err != nil {
		return err
	}
	defer st.leave(t)
	r := &request{event: e, done: make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, r)
	t.mu.Unlock()
	for {
		select {
		case <-r.done:
			return r.err
		case t.work <- struct{}{}:
		}
		select {
		// An answered caller may append again instead of recording the events of others.
		case <-r.done:
		default:
			// The message contains events of other callers too, so it is sent even if the context of this one
			// ends.
			t.gather()
			t.commit(context.WithoutCancel(ctx))
		}
		<-t.work
	}
}

// gather waits for callers that were just answered and append again, as long as more keep arriving. A message
// takes milliseconds, whether it has one event or many.
func (t *turn) gather() {
	for before, now := 0, 1; now > before && now < maxBatch; {
		runtime.Gosched()
		t.mu.Lock()
		before, now = now, len(t.waiting)
		t.mu.Unlock()
	}
}

// load reads the end of the record, and begins a new turn unless this turn wrote it.
func (t *turn) load(ctx context.Context) error {
	m, err := t.store.last(ctx, t.store.events, t.store.subjectOf(t.id))
	var now state
	var last uint64
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
	case err != nil:
		return err
	default:
		last = m.Sequence
		now, err = stateOf(m)
		if err != nil {
			return err
		}
		if t.adopt(m) {
			return nil
		}
	}
	if t.loaded && last > 0 && last < t.last {
		return fmt.Errorf("%w: the leader of the stream lags", provenance.ErrUnavailable)
	}
	// The record ends where this turn left it, so the turn continues. An ended session needs a new turn.
	if t.loaded && !t.lost.Load() && last == t.last && t.state.Session.State != provenance.StateEnded {
		return nil
	}
	t.store.mu.Lock()
	t.store.took++
	t.writer = t.store.name + "." + strconv.Itoa(t.store.took)
	t.store.mu.Unlock()
	t.state, t.last, t.batch, t.open = now, last, 0, nil
	if last == 0 {
		// Only a turn with all events can make checkpoints; otherwise Recall must set the fold first.
		t.fold = &cfharness.Fold{}
	}
	t.loaded = true
	t.lost.Store(false)
	t.held.Store(last > 0)
	return nil
}

// matches reports whether a message is this batch in the turn named writer.
func (b *batch) matches(m *jetstream.RawStreamMsg, writer string) bool {
	return m.Header.Get(headerWriter) == writer && m.Header.Get(headerBatch) == strconv.Itoa(b.number)
}

// adopt reports whether a message is a batch with unknown outcome, and if so marks that batch as recorded.
func (t *turn) adopt(m *jetstream.RawStreamMsg) bool {
	i := slices.IndexFunc(t.open, func(b *batch) bool { return b.matches(m, t.writer) })
	if i < 0 {
		return false
	}
	// Callers that got an error may append the same events again.
	if t.landed == nil {
		t.landed = map[*provenance.Event]provenance.Event{}
	}
	for _, e := range t.open[i].events {
		t.landed[e.from] = *e.as
	}
	t.advance(t.open[i], m.Sequence)
	return true
}

// advance makes b, recorded as message last, the end of the record.
func (t *turn) advance(b *batch, last uint64) {
	t.follow(b)
	t.state, t.last, t.open = b.state, last, nil
	t.held.Store(t.state.Session.State != provenance.StateEnded)
}

// commit records the waiting events, up to the maximum for a message.
func (t *turn) commit(ctx context.Context) {
	t.mu.Lock()
	requests := t.waiting[:min(len(t.waiting), maxBatch)]
	t.waiting = slices.Clone(t.waiting[len(requests):])
	t.mu.Unlock()
	if !t.loaded && !t.lost.Load() || t.state.Session.State == provenance.StateEnded && !t.lost.Load() {
		if err := t.load(ctx); err != nil {
			answer(requests, unavailable(err))
			return
		}
	}
	if t.lost.Load() {
		answer(requests, fmt.Errorf("append event: %w", provenance.ErrLost))
		return
	}
	for len(requests) > 0 {
		b, lines, placed, left := t.chain(t.unrecorded(requests))
		requests = left
		if len(placed) == 0 {
			continue
		}
		err := t.publish(ctx, b, lines)
		if err == nil {
			answer(placed, nil)
			continue
		}
		for _, r := range placed {
			r.event.Unplace()
		}
		if errors.Is(err, errAdopted) {
			// The requests that are left follow the adopted batch.
			requests = append(placed, left...)
			continue
		}
		answer(placed, err)
		answer(left, err)
		return
	}
}

// unrecorded answers the requests whose events are recorded already, and returns the others. An append with
// an unknown outcome is repeated with the same event, which may be recorded by now.
func (t *turn) unrecorded(requests []*request) (fresh []*request) {
	for _, r := range requests {
		recorded, ok := t.landed[r.event]
		if !ok {
			fresh = append(fresh, r)
			continue
		}
		*r.event = recorded
		close(r.done)
		delete(t.landed, r.event)
	}
	return fresh
}

func answer(requests []*request, err error) {
	for _, r := range requests {
		r.err = err
		close(r.done)
	}
}

func unavailable(err error) error {
	if errors.Is(err, provenance.ErrUnavailable) || errors.Is(err, provenance.ErrCorrupt) {
		return fmt.Errorf("append event: %w", err)
	}
	return fmt.Errorf("%w: append event: %w", provenance.ErrUnavailable, err)
}

// chain chains events to the record and answers the ones that it refuses. left are the events that do not fit
// into the message.
func (t *turn) chain(requests []*request) (b *batch, lines []byte, placed, left []*request) {
	b = &batch{number: t.batch + 1, state: t.state}
	tally := provenance.Tally{Session: t.state.Session}
	for i, r := range requests {
		before := tally
		r.event.Turn = t.writer
		line, err := tally.Extend(r.event, t.store.opts.Now)
		if err != nil {
			r.event.Turn = ""
			answer([]*request{r}, err)
			continue
		}
		if len(lines) > 0 && len(lines)+len(line) > maxBytes {
			tally = before
			r.event.Unplace()
			left = requests[i:]
			break
		}
		lines, placed = append(lines, line...), append(placed, r)
		as := *r.event
		b.events = append(b.events, recorded{r.event, &as})
		if !r.event.Kind.Facts().Apart {
			b.state.Called = r.event.Time
		}
	}
	b.state.Session, b.state.Bytes = tally.Session, t.state.Bytes+int64(len(lines))
	return b, lines, placed, left
}

// errAdopted means that an earlier batch of the turn, with unknown outcome until then, is recorded.
var errAdopted = errors.New("an earlier batch was recorded")

// publish records a batch. A lost answer is ambiguous, and so is a refusal, which may be caused by an earlier
// message of this turn. In both cases the last message at the leader of the stream decides: it is this batch,
// another writer's, or still the previous one.
//
// Errors: provenance.ErrLost, provenance.ErrUnavailable, errAdopted.
func (t *turn) publish(ctx context.Context, b *batch, lines []byte) error {
	m, err := t.message(ctx, b, lines)
	if err != nil {
		return unavailable(err)
	}
	end, hopeless := t.store.probe()
	if hopeless {
		return unavailable(provenance.ErrSilent)
	}
	defer end()
	t.batch = b.number
	doubt := false
	for begin := time.Now(); ; time.Sleep(pause) {
		try, cancel := context.WithTimeout(ctx, attempt)
		ack, err := t.store.js.PublishMsg(try, m, jetstream.WithExpectLastSequencePerSubject(t.last))
		cancel()
		if err == nil {
			t.store.heard()
			t.advance(b, ack.Sequence)
			return nil
		}
		// After an attempt with an unknown outcome, a refusal may mean that this attempt was recorded.
		if refused(err) && !doubt {
			return unavailable(err)
		}
		doubt = true
		got, failed := tryLast(ctx, t.store.events, m.Subject)
		switch {
		case errors.Is(failed, jetstream.ErrMsgNotFound) && t.last > 0:
			// The session was deleted.
			return t.lose()
		case failed != nil || got.Sequence <= t.last:
			// Still unknown: a former leader may have answered.
		case b.matches(got, t.writer):
			t.store.heard()
			t.advance(b, got.Sequence)
			return nil
		case t.adopt(got):
			return errAdopted
		default:
			return t.lose()
		}
		if t.store.spent(begin) {
			t.open = append(t.open, b)
			return unavailable(err)
		}
		t.store.nudge(begin)
	}
}

// message returns the message for a batch, with a checkpoint if one is due. Lines that are too long for a
// message are written as a file.
func (t *turn) message(ctx context.Context, b *batch, lines []byte) (*nats.Msg, error) {
	kept := t.checkpoint()
	if kept != "" {
		b.state.Checkpoint = mark{After: t.last, Seq: t.fold.Head.Seq}
	}
	encoded, err := json.Marshal(b.state)
	if err != nil {
		return nil, err
	}
	m := &nats.Msg{Subject: t.store.subjectOf(t.id), Data: lines, Header: nats.Header{
		headerWriter: {t.writer}, headerBatch: {strconv.Itoa(b.number)}, headerState: {string(encoded)}}}
	if kept != "" {
		m.Header.Set(headerCheckpoint, kept)
	}
	if len(lines) <= maxBytes {
		return m, nil
	}
	sum := digest.FromBytes(lines)
	if err := t.store.putBlob(ctx, sum, lines); err != nil {
		return nil, err
	}
	err = t.store.setFile(ctx, t.store.subject("long", t.id, sum.Encoded()),
		provenance.File{Size: int64(len(lines)), Digest: sum})
	if err != nil {
		return nil, err
	}
	m.Header.Set(headerBlob, sum.String())
	m.Data = nil
	return m, nil
}

// lose ends the turn, because another writer has the session.
func (t *turn) lose() error {
	t.open, t.landed, t.fold = nil, nil, nil
	t.lost.Store(true)
	t.held.Store(false)
	return fmt.Errorf("append event: %w", provenance.ErrLost)
}
