package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
	"github.com/skillsd/skillsd/sandbox"
)

// works answers a job by itself, and counts.
type works struct {
	runs    atomic.Int32
	slots   chan struct{}             // a token is a slot
	before  func()                    // called before a job starts; may be nil
	running func(ctx context.Context) // called while one runs; may be nil
}

func newWorks(slots int) *works {
	w := &works{slots: make(chan struct{}, slots)}
	for range slots {
		w.slots <- struct{}{}
	}
	return w
}

func (w *works) Slot(ctx context.Context, _ string, waiting func(int)) (func(), error) {
	select {
	case <-w.slots:
	default:
		waiting(7)
		select {
		case <-w.slots:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return func() { w.slots <- struct{}{} }, nil
}

func (w *works) Run(ctx context.Context, job []byte, started func() error) []byte {
	if w.before != nil {
		w.before()
	}
	if err := started(); err != nil {
		return []byte(err.Error())
	}
	w.runs.Add(1)
	if w.running != nil {
		w.running(ctx)
	}
	return slices.Concat([]byte("answer to "), job)
}

func link(t *testing.T, conn *nats.Conn, key byte) *Link {
	t.Helper()
	l, err := NewLink(conn, "test", bytes.Repeat([]byte{key}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serve starts a worker of the pool "p" and waits until it takes offers.
func serve(t *testing.T, l *Link, w Work) {
	t.Helper()
	serveAs(t, l, "w", w)
}

func serveAs(t *testing.T, l *Link, node string, w Work) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ready := make(chan struct{})
	log := slog.New(slog.NewTextHandler(writer(func() { close(ready) }), nil))
	ended.Go(func() { _ = l.Serve(ctx, "p", node, w, log) })
	t.Cleanup(func() { cancel(); ended.Wait() })
	<-ready
}

// writer calls itself at its first write.
func writer(first func()) writing { return writing{sync.OnceFunc(first)} }

type writing struct{ f func() }

func (w writing) Write(p []byte) (int, error) { w.f(); return len(p), nil }

func none(int) {}

func sure() error { return nil }

func TestRun(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, 1)
	works := newWorks(1)
	serve(t, link(t, c.Connect(t), 'k'), works)
	pool := link(t, c.Connect(t), 'k').Pool("p")
	for _, size := range []int{0, 1, part, part + 1, 5 * part} {
		job := bytes.Repeat([]byte{'j'}, size)
		slot, err := pool.Acquire(t.Context(), fmt.Sprint("run ", size), "alice", sure, none)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := slot.Run(t.Context(), job)
		slot.Release()
		if err != nil || !bytes.Equal(answer, slices.Concat([]byte("answer to "), job)) || slot.Node() != "w" || slot.Queued() {
			t.Errorf("job of %d bytes: answer of %d bytes, %v", size, len(answer), err)
		}
	}
	// A slot that is given back is there for the next, who is told that it waits.
	first, err := pool.Acquire(t.Context(), "first", "alice", sure, none)
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan int, 1)
	type got struct {
		*Slot
		error
	}
	next := make(chan got)
	go func() {
		slot, err := pool.Acquire(t.Context(), "second", "bob", sure, func(before int) { waited <- before })
		next <- got{slot, err}
	}()
	if before := <-waited; before != 7 {
		t.Errorf("%d come before it", before)
	}
	first.Release()
	second := <-next
	if second.error != nil || !second.Queued() {
		t.Fatal(second.error)
	}
	second.Release()
	if _, err := pool.Acquire(t.Context(), "run 1", "alice", sure, none); !errors.As(err, new(*RefusedError)) {
		t.Errorf("a run that was run: %v", err)
	}
	if _, err := link(t, pool.conn, 'k').Pool("other").Acquire(t.Context(), "r", "alice", sure, none); !isUnavailable(err) {
		t.Errorf("no worker: %v", err)
	}
	serve(t, link(t, c.Connect(t), 'k'), newWorks(0))
	if names, err := pool.Workers(t.Context()); err != nil || !slices.Equal(names, []string{"w", "w"}) {
		t.Errorf("workers %q, %v", names, err)
	}
	if names, err := pool.Link.Pool("other").Workers(t.Context()); err != nil || len(names) != 0 {
		t.Errorf("workers of a pool without %q, %v", names, err)
	}
}

// A message of many parts may take longer than each of them: an answer comes over a slow network, too.
func TestPartsAreWaitedFor(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, 1)
	l := link(t, c.Connect(t), 'k')
	body := bytes.Repeat([]byte{'b'}, 5*part)
	// A busy machine may take longer even for one.
	for wait := time.Second; ; wait *= 4 {
		in, err := l.listen()
		if err != nil {
			t.Fatal(err)
		}
		if err := (&sender{Link: l, inbox: in.sub.Subject}).send(kindAnswer, body, ""); err != nil {
			t.Fatal(err)
		}
		var parts []*nats.Msg
		for range 5 {
			m, err := in.sub.NextMsg(time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, m)
		}
		go func() {
			for _, m := range parts {
				time.Sleep(wait / 3)
				if err := l.conn.Publish(m.Subject, m.Data); err != nil {
					return // the test is over
				}
			}
		}()
		got, err := in.receive(t.Context(), wait)
		if err == nil && bytes.Equal(got.body, body) {
			return
		}
		if !errors.Is(err, nats.ErrTimeout) || wait > 10*time.Second {
			t.Fatalf("received %d bytes, %v", len(got.body), err)
		}
	}
}

func isUnavailable(err error) bool {
	_, ok := errors.AsType[*sandbox.UnavailableError](err)
	return ok
}

// What was sent once does nothing when it is sent again, and what others send does nothing at all.
func TestForgedAndRepeated(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, 1)
	works := newWorks(2)
	serve(t, link(t, c.Connect(t), 'k'), works)
	enemy := c.Connect(t)
	heard, err := enemy.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	if err := enemy.Flush(); err != nil {
		t.Fatal(err)
	}
	pool := link(t, c.Connect(t), 'k').Pool("p")
	// During the run all that was heard comes again, and once more with a changed byte.
	var sent []*nats.Msg
	again := func() {
		// After a Flush all that was sent before waits here.
		if err := enemy.Flush(); err != nil {
			t.Error(err)
		}
		waiting, _, err := heard.Pending()
		if err != nil {
			t.Error(err)
		}
		for range waiting {
			m, err := heard.NextMsg(time.Minute)
			if err != nil {
				t.Error(err)
				break
			}
			sent = append(sent, m)
		}
		for _, m := range sent {
			altered := bytes.Clone(m.Data)
			if len(altered) > 0 {
				altered[len(altered)-1] ^= 1
			}
			for _, data := range [][]byte{m.Data, altered} {
				if err := enemy.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: m.Reply, Data: data}); err != nil {
					t.Error(err)
				}
			}
		}
		if err := enemy.Flush(); err != nil {
			t.Error(err)
		}
	}
	works.running = func(context.Context) { again() }
	slot, err := pool.Acquire(t.Context(), "run", "alice", sure, none)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := slot.Run(t.Context(), []byte("job"))
	if err != nil || string(answer) != "answer to job" {
		t.Errorf("%q, %v", answer, err)
	}
	works.running = nil
	again()
	// What was sealed for one worker's ear is nothing to another.
	next, err := pool.Acquire(t.Context(), "next", "alice", sure, none)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range sent {
		if m.Subject == slot.worker.inbox {
			if err := enemy.Publish(next.worker.inbox, m.Data); err != nil {
				t.Error(err)
			}
		}
	}
	if err := enemy.Flush(); err != nil {
		t.Error(err)
	}
	if answer, err := next.Run(t.Context(), []byte("next")); err != nil || string(answer) != "answer to next" {
		t.Errorf("%q, %v", answer, err)
	}
	// Who has another key is not answered, and its slot at the worker is not taken.
	foreign := link(t, enemy, 'x').Pool("p")
	if _, err := foreign.Acquire(t.Context(), "foreign", "mallory", sure, none); !errors.Is(err, ErrBusy) {
		t.Errorf("foreign offer: %v", err)
	}
	for range 2 { // both slots are free
		<-works.slots
	}
	if n := works.runs.Load(); n != 2 || len(sent) < 5 {
		t.Errorf("%d messages were heard; %d runs", len(sent), n)
	}
}

// restless says often that a run waits, before it has a slot for it.
type restless struct {
	*works
	asked *atomic.Int32 // for slots
}

func (w restless) Slot(ctx context.Context, principal string, waiting func(int)) (func(), error) {
	w.asked.Add(1)
	for before := range 9 {
		waiting(before)
	}
	return w.works.Slot(ctx, principal, waiting)
}

// Another worker that is sent the offer again says nothing about the run of the first one, and has no slot for it.
func TestRepeatedOffer(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, 1)
	works, other := newWorks(1), newWorks(1)
	serve(t, link(t, c.Connect(t), 'k'), works)
	enemy := c.Connect(t)
	heard, err := enemy.SubscribeSync("test.run.p")
	if err == nil {
		err = enemy.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	slot, err := link(t, c.Connect(t), 'k').Pool("p").Acquire(t.Context(), "run", "alice", sure, none)
	if err != nil {
		t.Fatal(err)
	}
	asked := new(atomic.Int32)
	serve(t, link(t, c.Connect(t), 'k'), restless{other, asked})
	offered, err := heard.NextMsg(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	works.running = func(context.Context) {
		for range 30 { // one of two takes each
			if err := enemy.PublishMsg(&nats.Msg{Subject: offered.Subject, Data: offered.Data}); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(startWithin + beat) // the other worker has given it up
	}
	answer, err := slot.Run(t.Context(), []byte("job"))
	if err != nil || string(answer) != "answer to job" || works.runs.Load() != 1 || other.runs.Load() != 0 {
		t.Errorf("%q, %v; %d and %d runs", answer, err, works.runs.Load(), other.runs.Load())
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("repeated offers took %d slots", n)
	}
}

// Who repeats a question about a run does not make its worker remember ever more.
func TestRepeatedQuestion(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, 1)
	works, l := newWorks(1), link(t, c.Connect(t), 'k')
	serve(t, l, works)
	enemy := c.Connect(t)
	heard, err := enemy.SubscribeSync("test.ask.p")
	if err == nil {
		err = enemy.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	pool := link(t, c.Connect(t), 'k').Pool("p")
	slot, err := pool.Acquire(t.Context(), "run", "alice", sure, none)
	if err != nil {
		t.Fatal(err)
	}
	const repeated = 50
	var answers *nats.Subscription
	late := make(chan error, 1)
	works.running = func(ctx context.Context) {
		go func() {
			_, answer, err := pool.Late(t.Context(), "run", none2)
			if err == nil && string(answer) != "answer to job" {
				err = fmt.Errorf("answer %q", answer)
			}
			late <- err
		}()
		asked, err := heard.NextMsg(time.Minute)
		if err != nil {
			t.Error(err)
			return
		}
		msg, _, _, _ := l.open(asked)
		var o offer
		if err := json.Unmarshal(msg.body, &o); err != nil {
			t.Error(err)
		}
		answers, err = enemy.SubscribeSync(o.Inbox)
		if err != nil {
			t.Error(err)
		}
		for range repeated {
			if err := enemy.PublishMsg(asked); err != nil {
				t.Error(err)
			}
		}
		for was := 0; was < repeated; { // all have been read
			m, err := answers.NextMsg(time.Minute)
			if err != nil {
				t.Error(err)
				return
			}
			if msg, _, _, _ := l.open(m); msg.kind == kindWas {
				was++
			}
		}
	}
	if answer, err := slot.Run(t.Context(), []byte("job")); err != nil || string(answer) != "answer to job" {
		t.Errorf("who offered it: %q, %v", answer, err)
	}
	if err := <-late; err != nil {
		t.Errorf("who asked: %v", err)
	}
	// What others have received has been sent here, too.
	if err := enemy.Flush(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for {
		m, err := answers.NextMsg(100 * time.Millisecond)
		if err != nil {
			break
		}
		if msg, _, _, _ := l.open(m); msg.kind == kindAnswer {
			n++
		}
	}
	if n == 0 || n >= mostAskers {
		t.Errorf("%d answers to a question that was repeated %d times", n, repeated)
	}
}

// A job that is not begun in time is not begun at all.
func TestLateJob(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, 1)
	works, l := newWorks(1), link(t, c.Connect(t), 'k')
	l.prepare = startWithin + time.Second
	works.before = func() { time.Sleep(l.prepare + 10*time.Millisecond) }
	serve(t, l, works)
	pool := link(t, c.Connect(t), 'k').Pool("p")
	slot, err := pool.Acquire(t.Context(), "run", "alice", sure, none)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slot.Run(t.Context(), nil); !errors.Is(err, ErrBusy) {
		t.Errorf("begun late: %v", err)
	}
	// One that takes long to prepare is waited for.
	works.before = func() { time.Sleep(startWithin + 500*time.Millisecond) }
	slot, err = pool.Acquire(t.Context(), "prepared", "alice", sure, none)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slot.Run(t.Context(), nil); err != nil {
		t.Errorf("prepared for long: %v", err)
	}
	// Nor is one that its sender keeps to itself for too long.
	slot, err = pool.Acquire(t.Context(), "sent late", "alice", sure, none)
	if err != nil {
		t.Fatal(err)
	}
	<-works.slots // the worker has given the slot up
	works.slots <- struct{}{}
	if _, err := slot.Run(t.Context(), nil); !errors.Is(err, ErrBusy) {
		t.Errorf("sent late: %v", err)
	}
	if n := works.runs.Load(); n != 1 {
		t.Errorf("%d runs", n)
	}
}

// mute drops what is written to its connections while it is set.
type mute struct{ set atomic.Bool }

func (m *mute) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return muted{conn, m}, err
}

type muted struct {
	net.Conn
	by *mute
}

func (c muted) Write(p []byte) (int, error) {
	if c.by.set.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// A worker gives no slot to a run before it is meant, however long that takes, and none to one that is not.
func TestMeant(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, 1)
	works := newWorks(1)
	serve(t, link(t, c.Connect(t), 'k'), works)
	pool := link(t, c.Connect(t), 'k').Pool("p")
	refused := errors.New("not recorded")
	if _, err := pool.Acquire(t.Context(), "refused", "alice", func() error { return refused }, none); err != refused {
		t.Errorf("not meant: %v", err)
	}
	asked := 0
	slot, err := pool.Acquire(t.Context(), "slow", "alice", func() error {
		asked++
		time.Sleep(startWithin / 2)
		if len(works.slots) == 0 {
			t.Error("a slot for a run that is not meant yet")
		}
		time.Sleep(startWithin)
		return nil
	}, none)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := slot.Run(t.Context(), []byte("job")); err != nil || string(answer) != "answer to job" || asked != 1 {
		t.Errorf("%q, %v; asked %d times", answer, err, asked)
	}
}

// A worker whose machine has no name gets no run: its records would say that the server ran the script.
func TestNamelessWorker(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, 1)
	works := newWorks(1)
	serveAs(t, link(t, c.Connect(t), 'k'), "", works)
	meant := func() error { t.Error("the run was confirmed"); return nil }
	slot, err := link(t, c.Connect(t), 'k').Pool("p").Acquire(t.Context(), "run", "alice", meant, none)
	if !errors.Is(err, ErrBusy) {
		t.Errorf("%v, %v", slot, err)
	}
}

// A worker that says hello again is not confirmed again.
func TestHelloTwice(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, 1)
	l := link(t, c.Connect(t), 'k')
	offers, err := l.conn.SubscribeSync(l.subject("run", "p"))
	if err == nil {
		err = l.conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	confirmed := make(chan int, 1)
	go func() {
		defer close(confirmed)
		m, err := offers.NextMsg(time.Minute)
		if err != nil {
			t.Error(err)
			return
		}
		msg, _, _, _ := l.open(m)
		var o offer
		if err := json.Unmarshal(msg.body, &o); err != nil {
			t.Error(err)
		}
		in, err := l.listen()
		if err != nil {
			t.Error(err)
			return
		}
		defer in.close()
		body, _ := json.Marshal(ready{"w", in.sub.Subject})
		worker := &sender{Link: l, inbox: o.Inbox}
		for _, k := range []kind{kindHello, kindHello, kindReady} {
			if err := worker.send(k, body, ""); err != nil {
				t.Error(err)
			}
		}
		n := 0
		for {
			m, err := in.receive(t.Context(), time.Minute)
			switch {
			case err != nil:
				t.Error(err)
				return
			case m.kind == kindConfirm:
				n++
			case m.kind == kindCancel:
				confirmed <- n
				return
			}
		}
	}()
	asked := 0
	slot, err := link(t, c.Connect(t), 'k').Pool("p").Acquire(t.Context(), "run", "alice",
		func() error { asked++; return nil }, none)
	if err != nil {
		t.Fatal(err)
	}
	slot.Release()
	if n := <-confirmed; n != 1 || asked != 1 {
		t.Errorf("confirmed %d times, asked %d times", n, asked)
	}
}

// A worker that can say nothing starts nothing, although it has the job.
func TestMuteWorker(t *testing.T) {
	t.Parallel()
	c, m := clustertest.Start(t, 1), new(mute)
	works, conn := newWorks(1), c.Connect(t, nats.SetCustomDialer(m))
	serve(t, link(t, conn, 'k'), works)
	slot, err := link(t, c.Connect(t), 'k').Pool("p").Acquire(t.Context(), "run", "alice", sure, none)
	if err != nil {
		t.Fatal(err)
	}
	m.set.Store(true)
	prepared := make(chan struct{})
	works.before = func() { close(prepared) }
	if _, err := slot.Run(t.Context(), nil); !errors.As(err, new(*UnknownError)) {
		t.Errorf("what nobody says: %v", err)
	}
	<-prepared
	conn.Close()
	<-works.slots // it has ended
	if n := works.runs.Load(); n != 0 {
		t.Errorf("%d runs", n)
	}
}

// The answer of a run whose sender is gone is there for who asks, while it runs and later.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, 1)
	works := newWorks(1)
	serve(t, link(t, c.Connect(t), 'k'), works)
	begun, end := make(chan struct{}), make(chan struct{})
	works.running = func(context.Context) { close(begun); <-end }
	front := c.Connect(t)
	slot, err := link(t, front, 'k').Pool("p").Acquire(t.Context(), "run", "alice", sure, none)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = slot.Run(t.Context(), []byte("job")) }()
	<-begun
	front.Close()
	pool := link(t, c.Connect(t), 'k').Pool("p")
	time.AfterFunc(silent+beat, func() { close(end) })
	for range 2 {
		job, answer, err := pool.Late(t.Context(), "run", func() { t.Error("lost") })
		if err != nil || string(job) != "job" || string(answer) != "answer to job" {
			t.Errorf("%q, %q, %v", job, answer, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, _, err := pool.Late(ctx, "another", cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that nobody knows: %v", err)
	}
}

// Nobody knows what a worker did that is silent; one that is asked to end a run says what became of it.
func TestSilentAndCanceled(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, 1)
	works, conn := newWorks(1), c.Connect(t)
	serve(t, link(t, conn, 'k'), works)
	pool := link(t, c.Connect(t), 'k').Pool("p")
	ctx, cancel := context.WithCancel(t.Context())
	works.running = func(ctx context.Context) { cancel(); <-ctx.Done() }
	slot, err := pool.Acquire(ctx, "canceled", "alice", sure, none)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := slot.Run(ctx, nil); err != nil || string(answer) != "answer to " {
		t.Errorf("canceled: %q, %v", answer, err)
	}
	works.running = func(ctx context.Context) { <-ctx.Done() }
	slot, err = pool.Acquire(t.Context(), "unheard", "alice", sure, none)
	if err != nil {
		t.Fatal(err)
	}
	slot.seq = 100 // what the worker says from now on is not heard
	if _, err := slot.Run(t.Context(), nil); !errors.As(err, new(*UnknownError)) || works.runs.Load() != 2 {
		t.Errorf("begun, unheard: %v, %d runs", err, works.runs.Load())
	}
	end := make(chan struct{})
	defer close(end)
	works.running = func(context.Context) { conn.Close(); <-end }
	slot, err = pool.Acquire(t.Context(), "silent", "alice", sure, none)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slot.Run(t.Context(), nil); !errors.As(err, new(*UnknownError)) {
		t.Errorf("silent: %v", err)
	}
}

// Which answer is the oldest does not depend on the order in which runs are noted.
func TestKeptInOrder(t *testing.T) {
	w := &worker{Link: &Link{most: 100}, runs: map[string]*run{}}
	ended := time.Now()
	for _, r := range []*run{{id: "second", answer: make([]byte, 60), done: ended}, {id: "first",
		answer: make([]byte, 60), done: ended.Add(-time.Millisecond)}} {
		w.runs[r.id] = r
		w.keep(r)
	}
	if w.runs["second"] == nil || w.runs["first"] != nil || len(w.kept) != 1 {
		t.Errorf("kept %v of %v", w.kept, w.runs)
	}
}

// Answers are forgotten, the oldest first, when there are too many.
func TestKept(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, 1)
	l := link(t, c.Connect(t), 'k')
	l.most = 100
	serve(t, l, newWorks(1))
	pool := link(t, c.Connect(t), 'k').Pool("p")
	for _, run := range []string{"first", "second"} {
		slot, err := pool.Acquire(t.Context(), run, "alice", sure, none)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := slot.Run(t.Context(), bytes.Repeat([]byte{'x'}, 40)); err != nil {
			t.Fatal(err)
		}
	}
	if _, answer, err := pool.Late(t.Context(), "second", none2); err != nil || len(answer) != 50 {
		t.Errorf("second: %q, %v", answer, err)
	}
	// The worker makes room after it has answered.
	for begin := time.Now(); ; {
		ctx, cancel := context.WithCancel(t.Context())
		if _, _, err := pool.Late(ctx, "first", cancel); err != nil {
			break
		}
		cancel()
		if time.Since(begin) > time.Minute {
			t.Fatal("the first is still kept")
		}
	}
}

func none2() {}
