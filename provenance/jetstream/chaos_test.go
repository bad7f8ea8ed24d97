package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsstream "github.com/nats-io/nats.go/jetstream"

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

// An event whose acknowledgement was lost is recorded once, whether it is appended again or not, and never
// over one of another writer.
func TestAcknowledgementLost(t *testing.T) {
	cluster := clustertest.Start(t, 1)
	dialer := &deafDialer{}
	deaf := open(t, cluster.Connect(t, nats.SetCustomDialer(dialer)),
		&jetstream.Options{Replicas: 1, Patience: time.Second})
	defer deaf.Close()
	other := open(t, cluster.Connect(t), &jetstream.Options{Replicas: 1})
	defer other.Close()
	lost := map[string]*provenance.Event{}
	for _, id := range []string{"again", "not-again", "taken"} {
		lost[id] = event(id, "lost")
		if err := deaf.Append(t.Context(), event(id, "first")); err != nil {
			t.Fatal(err)
		}
	}
	dialer.set(true)
	var wg sync.WaitGroup
	for _, e := range lost {
		wg.Go(func() {
			if err := deaf.Append(t.Context(), e); !errors.Is(err, provenance.ErrUnavailable) || e.Seq != 0 {
				t.Errorf("Append without an answer = %v, seq %d", err, e.Seq)
			}
		})
	}
	wg.Wait()
	for _, e := range lost {
		wantRecord(t, other, e.Session, "first", "lost")
	}
	if err := errors.Join(other.Take(t.Context(), "taken"), other.Append(t.Context(), event("taken", "other"))); err != nil {
		t.Fatal(err)
	}
	dialer.set(false)
	again := lost["again"]
	if err := deaf.Append(t.Context(), again); err != nil || again.Seq != 2 || again.Hash == "" {
		t.Errorf("Append again = %v, seq %d", err, again.Seq)
	}
	for _, id := range []string{"again", "not-again"} {
		if err := deaf.Append(t.Context(), event(id, "next")); err != nil {
			t.Error(err)
		}
		wantRecord(t, other, id, "first", "lost", "next")
	}
	if err := deaf.Append(t.Context(), lost["taken"]); !errors.Is(err, provenance.ErrLost) {
		t.Errorf("Append in a lost turn = %v", err)
	}
	wantRecord(t, other, "taken", "first", "lost", "other")
}

// Servers are killed while many write. What was acknowledged is in the record once, and no append fails.
func TestServersKilled(t *testing.T) {
	const writers, sessions = 16, 4
	cluster := clustertest.StartApart(t, 3)
	conn := cluster.Connect(t)
	st := open(t, conn, nil)
	defer st.Close()
	js, err := natsstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	// until waits for a state of the cluster.
	until := func(what string, reached func(ctx context.Context) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			ok := reached(ctx)
			cancel()
			if ok {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("not within a minute: %s", what)
			}
		}
	}
	leader := 0
	whole := func(ctx context.Context) bool {
		for _, name := range []string{"skillsd-files", "skillsd-events"} {
			stream, err := js.Stream(ctx, name)
			if err != nil || stream.CachedInfo().Cluster == nil {
				return false
			}
			info := stream.CachedInfo().Cluster
			for _, peer := range info.Replicas {
				if !peer.Current || peer.Offline {
					return false
				}
			}
			if n, _ := fmt.Sscanf(info.Leader, "n%d", &leader); n != 1 || len(info.Replicas) != 2 {
				return false
			}
		}
		return true
	}
	var mu sync.Mutex
	var count atomic.Int64
	acknowledged := map[string]string{}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				e := event(fmt.Sprint("s", w%sessions), fmt.Sprint(w, " ", i))
				if err := st.Append(t.Context(), e); err != nil {
					t.Errorf("Append = %v", err)
					return
				}
				mu.Lock()
				acknowledged[e.ID()] = e.Hash
				mu.Unlock()
				count.Add(1)
			}
		})
	}
	goesOn := func() {
		t.Helper()
		before := count.Load()
		until("appends", func(context.Context) bool { return count.Load() > before+2*writers })
	}
	until("three replicas", whole)
	goesOn()
	for _, victims := range [][]int{{0}, {1}, {0, 1}} { // after the leader
		until("three replicas", whole)
		for _, n := range victims {
			cluster.Stop((leader + n) % 3)
		}
		if len(victims) == 1 {
			goesOn()
		}
		for i := range 3 {
			cluster.Restart(i)
		}
		goesOn()
	}
	close(stop)
	wg.Wait()
	total := 0
	for i := range sessions {
		found, err := st.Verify(t.Context(), fmt.Sprint("s", i))
		if err != nil {
			t.Fatal(err)
		}
		total += found.Events
		for e, err := range st.Events(t.Context(), provenance.Query{Session: found.Session.ID}) {
			if err != nil {
				t.Fatal(err)
			}
			if acknowledged[e.ID()] != e.Hash {
				t.Errorf("event %s was not acknowledged so", e.ID())
			}
		}
	}
	if total != len(acknowledged) || int64(total) != count.Load() {
		t.Errorf("%d events are recorded, %d were acknowledged", total, count.Load())
	}
}
