package jetstream_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skillsd/skillsd/e2e/nightly"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/jetstream"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// deafDialer makes connections that hear nothing while deaf is set.
type deafDialer struct {
	mu   sync.Mutex
	deaf chan struct{} // closed when it hears again; nil if it does
}

type deafConn struct {
	net.Conn
	*deafDialer
}

func (d *deafDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return &deafConn{conn, d}, err
}

func (c *deafConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	wait := c.deaf
	c.mu.Unlock()
	if wait != nil {
		<-wait
	}
	return n, err
}

func (d *deafDialer) set(deaf bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if deaf {
		d.deaf = make(chan struct{})
	} else {
		close(d.deaf)
		d.deaf = nil
	}
}

// wantRecord checks what the details of a record are.
func wantRecord(t *testing.T, st provenance.Store, session string, want ...string) {
	t.Helper()
	var got []string
	for e, err := range st.Events(t.Context(), provenance.Query{Session: session}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Detail)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the record of %s is %q, want %q", session, got, want)
	}
}

func event(session, detail string) *provenance.Event {
	e := storetest.Event(session, provenance.KindScriptRequested, 1)
	e.Detail = detail
	return e
}

// appendBatch appends events of a session as one batch, in this order, and checks what becomes of all.
func appendBatch(t *testing.T, st *jetstream.Store, want error, events ...*provenance.Event) {
	t.Helper()
	waiting, release := st.Hold(events[0].Session)
	var all sync.WaitGroup
	for i, e := range events {
		all.Go(func() {
			if err := st.Append(t.Context(), e); !errors.Is(err, want) || (e.Seq == 0) != (want != nil) {
				t.Errorf("Append(%s) = %v, seq %d; want %v", e.Detail, err, e.Seq, want)
			}
		})
		for end := time.Now().Add(time.Minute); waiting() <= i && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
	release()
	all.Wait()
}

// Events whose acknowledgement was lost are recorded once, whether they are appended again or not, and never
// over those of another writer.
func TestAcknowledgementLost(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Start(t, 1)
	dialer := &deafDialer{}
	deaf := open(t, cluster.Connect(t, nats.SetCustomDialer(dialer)),
		&jetstream.Options{Replicas: 1, Patience: 3 * time.Second})
	defer deaf.Close()
	other := open(t, cluster.Connect(t), &jetstream.Options{Replicas: 1})
	defer other.Close()
	lost := map[string][]*provenance.Event{}
	for _, id := range []string{"again", "not-again", "taken"} {
		for _, detail := range []string{"lost", "also", "too"} {
			lost[id] = append(lost[id], event(id, detail))
		}
		if err := deaf.Append(t.Context(), event(id, "first")); err != nil {
			t.Fatal(err)
		}
	}
	dialer.set(true)
	var wg sync.WaitGroup
	for _, events := range lost {
		wg.Go(func() { appendBatch(t, deaf, provenance.ErrUnavailable, events...) })
	}
	wg.Wait()
	for id := range lost {
		wantRecord(t, other, id, "first", "lost", "also", "too")
	}
	if err := other.Append(t.Context(), event("taken", "other")); err != nil {
		t.Fatal(err)
	}
	dialer.set(false)
	again := lost["again"]
	appendBatch(t, deaf, nil, again[2], event("again", "new"), again[0], again[1])
	for i, e := range again {
		if e.Seq != uint64(2+i) || e.Hash == "" {
			t.Errorf("event %q, appended again, has seq %d and hash %q", e.Detail, e.Seq, e.Hash)
		}
	}
	for _, id := range []string{"again", "not-again"} {
		if err := deaf.Append(t.Context(), event(id, "next")); err != nil {
			t.Error(err)
		}
	}
	wantRecord(t, other, "again", "first", "lost", "also", "too", "new", "next")
	wantRecord(t, other, "not-again", "first", "lost", "also", "too", "next")
	appendBatch(t, deaf, provenance.ErrLost, lost["taken"]...)
	wantRecord(t, other, "taken", "first", "lost", "also", "too", "other")
}

// A batch whose acknowledgement is lost is sent again until the cluster says what became of it, and recorded
// once.
func TestBatchSentAgain(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Start(t, 1)
	dialer := &deafDialer{}
	st := open(t, cluster.Connect(t, nats.SetCustomDialer(dialer)), &jetstream.Options{Replicas: 1})
	defer st.Close()
	if err := st.Append(t.Context(), event("s", "first")); err != nil {
		t.Fatal(err)
	}
	// Until nothing was heard, so that the store asks whether the batch is there.
	watching, hear := cluster.Connect(t), sync.OnceFunc(func() { dialer.set(false) })
	_, err := watching.Subscribe("$JS.API.STREAM.MSG.GET.skillsd-events", func(*nats.Msg) { hear() })
	if err := errors.Join(err, watching.Flush()); err != nil {
		t.Fatal(err)
	}
	dialer.set(true)
	appendBatch(t, st, nil, event("s", "a"), event("s", "b"), event("s", "c"))
	appendBatch(t, st, nil, event("s", "d"), event("s", "e"))
	wantRecord(t, st, "s", "first", "a", "b", "c", "d", "e")
	if report, err := st.Verify(t.Context(), "s"); err != nil || report.Events != 6 {
		t.Errorf("Verify = %+v, %v", report, err)
	}
}

// A store that has waited in vain for as long as it may asks once, and one caller at a time, until it is
// answered.
func TestCutOff(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Start(t, 1)
	dialer := &deafDialer{}
	st := open(t, cluster.Connect(t, nats.SetCustomDialer(dialer)),
		&jetstream.Options{Replicas: 1, Patience: 3 * time.Second})
	defer st.Close()
	// A message to another connection that watches may be seen after the answer, so the store itself counts.
	reads := st.CountReads()
	take := func(want error, requests int64, answers bool) {
		t.Helper()
		before := reads.Requests.Load()
		if err := st.Take(t.Context(), "s"); !errors.Is(err, want) {
			t.Errorf("Take = %v, want %v", err, want)
		}
		if got := reads.Requests.Load() - before; got != requests || st.Answers() != answers {
			t.Errorf("asked %d times, answers is %v; want %d and %v", got, st.Answers(), requests, answers)
		}
	}
	take(nil, 1, true)
	dialer.set(true)
	take(provenance.ErrUnavailable, 2, false)
	take(provenance.ErrUnavailable, 1, false)
	take(provenance.ErrUnavailable, 1, false)
	many := func(want error) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				err := st.Append(t.Context(), event(fmt.Sprint("t", i), "x"))
				if !errors.Is(err, want) {
					t.Errorf("Append = %v, want %v", err, want)
				}
			})
		}
		wg.Wait()
	}
	before := reads.Requests.Load()
	many(provenance.ErrUnavailable)
	if got := reads.Requests.Load() - before; got != 1 {
		t.Errorf("ten at once asked %d times", got)
	}
	dialer.set(false)
	many(nil)
	take(nil, 1, true)
}

// rounds is how often what happens to servers does.
var rounds = flag.Int("rounds", 1, "how often servers are killed and cut off")

// traffic is what many write while something happens to servers.
type traffic struct {
	*testing.T
	cluster *clustertest.Cluster
	conn    *nats.Conn
	store   *jetstream.Store
	leader  int // of the events, as whole found it

	writing sync.WaitGroup
	stop    chan struct{}
	count   atomic.Int64

	mu           sync.Mutex
	acknowledged map[string]string // hashes of events
}

const trafficWriters, trafficSessions = 16, 4

// until waits for a state of the cluster.
func (x *traffic) until(what string, reached func(ctx context.Context) bool) {
	x.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(x.Context(), time.Second)
		ok := reached(ctx)
		cancel()
		if ok {
			return
		}
		if time.Now().After(end) {
			x.Fatalf("not within a minute: %s", what)
		}
	}
}

// whole waits until all servers have all of the streams.
func (x *traffic) whole() {
	x.Helper()
	x.leader = x.cluster.Whole("skillsd-files", "skillsd-events")
}

// begin lets many write to a store of a connection.
func (x *traffic) begin() {
	x.stop, x.acknowledged = make(chan struct{}), map[string]string{}
	for w := range trafficWriters {
		x.writing.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-x.stop:
					return
				default:
				}
				e := event(fmt.Sprint("s", w%trafficSessions), fmt.Sprint(w, " ", i))
				if err := x.store.Append(x.Context(), e); err != nil {
					x.Errorf("Append = %v", err)
					return
				}
				x.mu.Lock()
				x.acknowledged[e.ID()] = e.Hash
				x.mu.Unlock()
				x.count.Add(1)
			}
		})
	}
}

// goesOn waits until every writer can have written once more.
func (x *traffic) goesOn() {
	x.Helper()
	before := x.count.Load()
	x.until("appends", func(context.Context) bool { return x.count.Load() > before+2*trafficWriters })
}

// end wants what was acknowledged in the record, once, and nothing else.
func (x *traffic) end() {
	x.Helper()
	close(x.stop)
	x.writing.Wait()
	total := 0
	for i := range trafficSessions {
		found, err := x.store.Verify(x.Context(), fmt.Sprint("s", i))
		if err != nil {
			x.Fatal(err)
		}
		total += found.Events
		for e, err := range x.store.Events(x.Context(), provenance.Query{Session: found.Session.ID}) {
			if err != nil {
				x.Fatal(err)
			}
			if x.acknowledged[e.ID()] != e.Hash {
				x.Errorf("event %s was not acknowledged so", e.ID())
			}
		}
	}
	if total != len(x.acknowledged) || int64(total) != x.count.Load() {
		x.Errorf("%d events are recorded, %d were acknowledged", total, x.count.Load())
	}
	x.Logf("%d events", total)
}

// Servers are killed while many write: the leader, a follower, two of three. No append fails.
func TestServersKilled(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	cluster := clustertest.StartApart(t, 3)
	x := &traffic{T: t, cluster: cluster, conn: cluster.Connect(t)}
	x.store = open(t, x.conn, nil)
	defer x.store.Close()
	x.whole()
	x.begin()
	for range *rounds {
		for _, victims := range [][]int{{0}, {1}, {0, 1}} { // after the leader
			x.whole()
			for _, n := range victims {
				cluster.Stop((x.leader + n) % 3)
			}
			if len(victims) == 1 {
				x.goesOn()
			}
			for i := range 3 {
				cluster.Restart(i)
			}
			x.goesOn()
		}
	}
	x.end()
}

// The leader, to which the writers are connected, is cut off from the other servers. Writers go on at those,
// nobody takes another's place for good, and what the leader had not passed on is not acknowledged.
func TestLeaderCutOff(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	cluster := clustertest.Start(t, 3)
	x := &traffic{T: t, cluster: cluster, conn: cluster.Connect(t)}
	x.store = open(t, x.conn, nil)
	x.whole()
	if err := x.store.Close(); err != nil {
		t.Fatal(err)
	}
	for range *rounds {
		x.conn = cluster.ConnectTo(t, x.leader)
		x.store = open(t, x.conn, nil)
		x.count.Store(0)
		x.begin()
		x.goesOn()
		cut := x.leader
		cluster.Cut(cut)
		begin := time.Now()
		x.goesOn()
		t.Logf("appends go on after %v", time.Since(begin))
		cluster.Heal(cut)
		x.goesOn()
		x.whole()
		x.goesOn()
		x.end()
		_, err := x.store.Collect(t.Context(), provenance.CollectOptions{Before: time.Now().Add(time.Hour),
			Release: func(_ context.Context, session string) bool {
				x.store.Release(session)
				return true
			}})
		if err := errors.Join(err, x.store.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
