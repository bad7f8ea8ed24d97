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
	// maxBatch and maxBytes bound a message: as a JSON answer, it must fit into the 1 MiB of a server.
	maxBatch = 512
	maxBytes = 512 << 10
)

// Headers of the messages of a record.
const (
	headerWriter = "Writer" // the name of the turn
	headerBatch  = "Batch"  // counts the messages of the turn
	headerState  = "State"  // after the batch
	headerBlob   = "Blob"   // digest of the lines, if they are too long for a message

	headerCheckpoint = "Checkpoint" // what was before the batch, in some messages; see checkpoint
)

// state is what the next writer of a session needs to know.
type state struct {
	Session provenance.Session `json:"session"`
	Called  time.Time          `json:"called,omitzero"` // when the client called last
	Bytes   int64              `json:"bytes"`           // of all lines

	Checkpoint mark `json:"checkpoint,omitzero"` // the last one
}

// stateOf reads the state after a message.
//
// Errors: provenance.ErrCorrupt.
func stateOf(m *jetstream.RawStreamMsg) (s state, err error) {
	if err := json.Unmarshal([]byte(m.Header.Get(headerState)), &s); err != nil || s.Session.Head.Seq == 0 {
		return s, fmt.Errorf("%w: message %d has no state", provenance.ErrCorrupt, m.Sequence)
	}
	return s, nil
}

// turn is the turn of one store at a session, or its next one.
type turn struct {
	store *Store
	id    string
	users int         // guarded by Store.mu
	held  atomic.Bool // the store has the session
	lost  atomic.Bool // another writer has it; only Take begins another turn

	mu      sync.Mutex
	waiting []*request

	work   chan struct{} // full while the record is read or written; guards the rest
	writer string        // name of the turn
	loaded bool
	state  state
	last   uint64 // sequence number of the last message
	batch  int
	open   []*batch        // those whose fate is not known, after the last message
	fold   *cfharness.Fold // of the events, nil if it is not known or too large for a checkpoint
	landed map[*provenance.Event]provenance.Event
}

type request struct {
	event *provenance.Event
	done  chan struct{} // closed once err is what became of the event
	err   error
}

// batch is what was published, and what the turn is after it.
type batch struct {
	number int
	state  state
	events []recorded
}

type recorded struct{ from, as *provenance.Event }

// turn returns the turn at a session; leave must follow.
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

// Take implements provenance.Writer. It always succeeds if the cluster answers: the other writer loses the
// session with the first event of this one.
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
	t.work <- struct{}{} // until what was handed over is recorded
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
		case <-r.done: // who is answered appends again, rather than record what others wait for
		default:
			t.gather()
			t.commit(context.WithoutCancel(ctx))
		}
		<-t.work
	}
}

// gather waits for those who were just answered and append again, for as long as some come: a message takes
// milliseconds, whether it has one event or many.
func (t *turn) gather() {
	for before, now := 0, 1; now > before && now < maxBatch; {
		runtime.Gosched()
		t.mu.Lock()
		before, now = now, len(t.waiting)
		t.mu.Unlock()
	}
}

// load reads where the record ends, and begins a turn if it is not this one's.
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
		if t.adopts(m) {
			return nil
		}
	}
	if t.loaded && last > 0 && last < t.last {
		return fmt.Errorf("%w: the leader of the stream lags", provenance.ErrUnavailable)
	}
	if t.loaded && !t.lost.Load() && last == t.last && t.state.Session.State != provenance.StateEnded {
		return nil
	}
	t.store.mu.Lock()
	t.store.took++
	t.writer = t.store.name + "." + strconv.Itoa(t.store.took)
	t.store.mu.Unlock()
	t.state, t.last, t.batch, t.open = now, last, 0, nil
	if last == 0 {
		t.fold = &cfharness.Fold{}
	}
	t.loaded = true
	t.lost.Store(false)
	t.held.Store(last > 0)
	return nil
}

// is reports whether a message is the batch, in the turn of that name.
func (b *batch) is(m *jetstream.RawStreamMsg, writer string) bool {
	return m.Header.Get(headerWriter) == writer && m.Header.Get(headerBatch) == strconv.Itoa(b.number)
}

// adopts reports whether a message is the batch whose fate was not known, and notes that it is recorded.
func (t *turn) adopts(m *jetstream.RawStreamMsg) bool {
	i := slices.IndexFunc(t.open, func(b *batch) bool { return b.is(m, t.writer) })
	if i < 0 {
		return false
	}
	// Who got an error may append the same events again.
	if t.landed == nil {
		t.landed = map[*provenance.Event]provenance.Event{}
	}
	for _, e := range t.open[i].events {
		t.landed[e.from] = *e.as
	}
	t.became(t.open[i], m.Sequence)
	return true
}

func (t *turn) became(b *batch, last uint64) {
	t.follow(b)
	t.state, t.last, t.open = b.state, last, nil
	t.held.Store(t.state.Session.State != provenance.StateEnded)
}

// commit records the events that wait, or as many as a message has room for.
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
		var fresh []*request
		for _, r := range requests {
			if recorded, ok := t.landed[r.event]; ok {
				*r.event = recorded
				close(r.done)
				delete(t.landed, r.event)
			} else {
				fresh = append(fresh, r)
			}
		}
		b, lines, placed, left := t.chain(fresh)
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
			requests = append(placed, left...) // they follow what was recorded after all
			continue
		}
		answer(placed, err)
		answer(left, err)
		return
	}
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

// chain gives events their places in the record, and answers those that cannot have one. left do not fit into
// the message.
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
		if r.event.Kind.OfCall() {
			b.state.Called = r.event.Time
		}
	}
	b.state.Session, b.state.Bytes = tally.Session, t.state.Bytes+int64(len(lines))
	return b, lines, placed, left
}

// errAdopted means that an earlier batch of the turn, whose fate was not known, is recorded.
var errAdopted = errors.New("an earlier batch was recorded")

// publish records a batch. After an answer that was lost, or a refusal, which can be of a message of this
// turn that is still on its way, only what the leader of the stream has decides: this batch, another
// writer's, or nothing yet.
//
// Errors: provenance.ErrLost, provenance.ErrUnavailable, errAdopted.
func (t *turn) publish(ctx context.Context, b *batch, lines []byte) error {
	kept := t.checkpoint()
	if kept != "" {
		b.state.Checkpoint = mark{After: t.last, Seq: t.fold.Head.Seq}
	}
	encoded, err := json.Marshal(b.state)
	if err != nil {
		return unavailable(err)
	}
	m := &nats.Msg{Subject: t.store.subjectOf(t.id), Data: lines, Header: nats.Header{
		headerWriter: {t.writer}, headerBatch: {strconv.Itoa(b.number)}, headerState: {string(encoded)}}}
	if kept != "" {
		m.Header.Set(headerCheckpoint, kept)
	}
	if len(lines) > maxBytes {
		sum := digest.FromBytes(lines)
		err := t.store.putBlob(ctx, sum, lines)
		if err != nil {
			return unavailable(err)
		}
		err = t.store.setFile(ctx, t.store.subject("long", t.id, sum.Encoded()),
			provenance.File{Size: int64(len(lines)), Digest: sum})
		if err != nil {
			return unavailable(err)
		}
		m.Header.Set(headerBlob, sum.String())
		m.Data = nil
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
			t.became(b, ack.Sequence)
			return nil
		}
		if refused(err) && !doubt {
			return unavailable(err)
		}
		doubt = true
		try, cancel = context.WithTimeout(ctx, attempt)
		got, failed := t.store.events.GetLastMsgForSubject(try, m.Subject)
		cancel()
		switch {
		case errors.Is(failed, jetstream.ErrMsgNotFound) && t.last > 0:
			return t.lose() // the session was deleted
		case failed != nil || got.Sequence <= t.last:
			// Nothing is known: a former leader may have answered.
		case b.is(got, t.writer):
			t.store.heard()
			t.became(b, got.Sequence)
			return nil
		case t.adopts(got):
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

func (t *turn) lose() error {
	t.open, t.landed, t.fold = nil, nil, nil
	t.lost.Store(true)
	t.held.Store(false)
	return fmt.Errorf("append event: %w", provenance.ErrLost)
}
