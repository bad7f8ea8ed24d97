package jetstream_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsstream "github.com/nats-io/nats.go/jetstream"

	"github.com/skillsd/skillsd/e2e/nightly"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/jetstream"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
	"github.com/skillsd/skillsd/provenance/storetest"
)

func TestMain(m *testing.M) {
	clustertest.Main()
	os.Exit(m.Run())
}

func open(t *testing.T, conn *nats.Conn, opts *jetstream.Options) *jetstream.Store {
	t.Helper()
	st, err := jetstream.Open(t.Context(), conn, opts)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// One server and three keep the contract of a store, and the three that of turns too.
func TestStore(t *testing.T) {
	t.Parallel()
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		conn := clustertest.Start(t, 1).Connect(t)
		storetest.Run(t, func(t *testing.T) provenance.Store {
			return open(t, conn, &jetstream.Options{Prefix: rand.Text(), Replicas: 1})
		})
	})
	t.Run("three", func(t *testing.T) {
		t.Parallel()
		cluster := clustertest.Start(t, 3)
		one, other := cluster.Connect(t), cluster.Connect(t)
		storetest.Run(t, func(t *testing.T) provenance.Store {
			return open(t, one, &jetstream.Options{Prefix: rand.Text()})
		})
		storetest.RunTurns(t, func(t *testing.T) (a, b provenance.Store) {
			opts := &jetstream.Options{Prefix: rand.Text()}
			return open(t, one, opts), open(t, other, opts)
		})
	})
}

// A Store waits for servers that start at the same time as it does.
func TestOpenWaits(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Start(t, 3)
	cluster.Stop(2)
	conn := cluster.Connect(t)
	opened := make(chan error, 1)
	go func() {
		st, err := jetstream.Open(t.Context(), conn, &jetstream.Options{Patience: time.Minute})
		if err == nil {
			err = st.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Fatalf("Open without the third server = %v", err)
	case <-time.After(3 * time.Second): // it was refused at once
	}
	cluster.Restart(2)
	if err := <-opened; err != nil {
		t.Errorf("Open = %v", err)
	}
}

// A server that has lost a session replaces no file that an event names, however late it writes.
func TestFileOfALoser(t *testing.T) {
	t.Parallel()
	conn := clustertest.Start(t, 1).Connect(t)
	opts := &jetstream.Options{Replicas: 1}
	const id, name = "contested", provenance.PolicySnapshotFile
	put := func(st *jetstream.Store, text string) provenance.File {
		f, err := st.Put(t.Context(), id, name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	winner, loser := open(t, conn, opts), open(t, conn, opts)
	defer winner.Close()
	defer loser.Close()
	put(loser, "early")
	e := storetest.Event(id, provenance.KindSessionStarted, 1)
	e.Files = []provenance.File{put(winner, "the winner's")}
	if err := winner.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	put(loser, "late")
	if got := storetest.Read(t, winner, id, name); string(got) != "the winner's" {
		t.Errorf("%s has %q", name, got)
	}
	for file, err := range winner.Files(t.Context(), id) {
		if err != nil || file != name && file != provenance.SessionFile {
			t.Errorf("file %q, %v", file, err)
		}
	}
	if _, err := winner.Verify(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// A record is read to its end, though a server that led before does not know all of it.
func TestReadFromFormerLeader(t *testing.T) {
	t.Parallel()
	st := open(t, clustertest.Start(t, 1).Connect(t), &jetstream.Options{Replicas: 1})
	defer st.Close()
	for range 3 {
		if err := st.Append(t.Context(), event("read", "requested")); err != nil {
			t.Fatal(err)
		}
	}
	st.ReadStale(3)
	n := 0
	for _, err := range st.Events(t.Context(), provenance.Query{Session: "read"}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 3 {
		t.Errorf("%d events, want 3", n)
	}
}

// What a server continues while its session is being deleted is kept.
func TestContinuedWhileCollected(t *testing.T) {
	t.Parallel()
	conn := clustertest.Start(t, 1).Connect(t)
	opts := &jetstream.Options{Replicas: 1}
	st := open(t, conn, opts)
	defer st.Close()
	const id = "continued"
	storetest.Append(t, st, id, provenance.KindSessionStarted, provenance.KindSessionEnded)
	storetest.Append(t, st, id, provenance.KindSessionResumed)
	// What it knows of ends with the first message of the stream.
	if err := st.Delete(t.Context(), id, 1); !errors.Is(err, provenance.ErrHeld) {
		t.Errorf("Delete = %v, want ErrHeld", err)
	}
	r, err := st.Stored(t.Context(), id, provenance.EventsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if left, err := io.ReadAll(r); err != nil || !bytes.Contains(left, []byte(provenance.KindSessionResumed)) {
		t.Errorf("left: %s, %v", left, err)
	}
}

// Bytes are deleted with the last session that names them, but not while somebody may be about to name them.
// An event that is longer than a message is recorded as any other.
func TestFilesCollected(t *testing.T) {
	t.Parallel()
	conn := clustertest.Start(t, 1).Connect(t)
	now := time.Now()
	opts := &jetstream.Options{Replicas: 1, Now: func() time.Time { return now }}
	st := open(t, conn, opts)
	defer st.Close()
	long := bytes.Repeat([]byte("x"), 600<<10)
	for _, id := range []string{"a", "b", "c.d"} {
		e := storetest.Event(id, provenance.KindSessionStarted, 1)
		e.Detail = string(long) + id
		if err := st.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		for _, data := range [][]byte{[]byte("shared"), append([]byte(id), long...)} {
			if _, err := st.Keep(t.Context(), id, data); err != nil {
				t.Fatal(err)
			}
		}
		storetest.Append(t, st, id, provenance.KindSessionEnded)
	}
	// files returns how many bytes the stream of files has.
	files := func() uint64 {
		t.Helper()
		js, err := natsstream.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := js.Stream(t.Context(), "skillsd-files")
		if err != nil {
			t.Fatal(err)
		}
		return stream.CachedInfo().State.Bytes
	}
	collect := func(keep int) {
		t.Helper()
		gone, err := st.Collect(t.Context(), provenance.CollectOptions{Before: now.Add(time.Hour), Keep: keep})
		if err != nil || len(gone) != 1 || gone[0].Err != nil {
			t.Fatalf("Collect = %+v, %v", gone, err)
		}
	}
	three := files()
	collect(2)
	if n := files(); n < three-1<<10 {
		t.Errorf("of %d bytes that were just written %d are left", three, n)
	}
	now = now.Add(48 * time.Hour)
	if _, err := st.Keep(t.Context(), "b", []byte("written again")); err != nil {
		t.Fatal(err)
	}
	storetest.Append(t, st, "e", provenance.KindSessionStarted, provenance.KindSessionEnded)
	collect(2)
	if n := files(); n < three/3-1<<10 || n > three/3+64<<10 {
		t.Errorf("of %d bytes of three sessions %d are left for one", three, n)
	}
	for s, err := range st.Sessions(t.Context(), time.Time{}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Verify(t.Context(), s.ID); err != nil {
			t.Errorf("Verify(%s) = %v", s.ID, err)
		}
	}
}

// A cell has the value of whoever changed it last, until its time is over; no change is lost.
func TestCells(t *testing.T) {
	t.Parallel()
	const workers = 8
	each := nightly.Size(5, 10)
	cluster := clustertest.Start(t, 3)
	var cells [2]*jetstream.Cells
	for i := range cells {
		var err error
		cells[i], err = jetstream.OpenCells(t.Context(), cluster.Connect(t), nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	value := func(key string) (value string) {
		t.Helper()
		err := cells[1].Change(t.Context(), key, time.Hour, func(was []byte) []byte {
			value = string(was)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range each {
				err := cells[w%2].Change(t.Context(), "count", time.Hour, func(was []byte) []byte {
					return append(bytes.Clone(was), '.')
				})
				if err != nil {
					t.Errorf("Change = %v", err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(value("count")); n != workers*each {
		t.Errorf("%d changes are left, want %d", n, workers*each)
	}
	err := cells[0].Change(t.Context(), "short", time.Second, func([]byte) []byte { return []byte("x") })
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); value("short") != ""; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a value outlives its time")
		}
	}
	err = cells[1].Change(t.Context(), "short", time.Hour, func(was []byte) []byte {
		if was != nil {
			t.Errorf("the value is %q after its time", was)
		}
		return []byte("y")
	})
	if err != nil || value("short") != "y" {
		t.Errorf("Change after the time of a value = %v, %q", err, value("short"))
	}
}

// What one store has recorded, kept or changed is seen by another at once, whichever servers they are connected
// to: no replica that lags answers.
func TestSeenAtOnce(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Start(t, 3)
	var stores [3]*jetstream.Store
	var cells [3]*jetstream.Cells
	for i := range stores {
		conn := cluster.ConnectTo(t, i)
		stores[i] = open(t, conn, nil)
		defer stores[i].Close()
		var err error
		cells[i], err = jetstream.OpenCells(t.Context(), conn, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	data := make([]byte, nightly.Size(600<<10, 1<<20)) // several parts
	for n := range nightly.Size(6, 10) * *rounds {
		a, b := n%3, (n+1+n/3%2)%3
		id := fmt.Sprint("s", n)
		e := storetest.Event(id, provenance.KindSessionStarted, n)
		rand.Read(data)
		sum, err := stores[a].Keep(t.Context(), id, data)
		if err == nil {
			err = stores[a].Append(t.Context(), e)
		}
		if err == nil {
			err = cells[a].Change(t.Context(), id, time.Hour, func([]byte) []byte { return []byte(id) })
		}
		if err != nil {
			t.Fatal(err)
		}
		seen := ""
		err = cells[b].Change(t.Context(), id, time.Hour, func(is []byte) []byte {
			seen = string(is)
			return nil
		})
		if err != nil || seen != id {
			t.Errorf("cell %s at another store: %q, %v", id, seen, err)
		}
		events := 0
		for got, err := range stores[b].Events(t.Context(), provenance.Query{Session: id}) {
			if err != nil || got.Hash != e.Hash {
				t.Fatalf("session %s at another store: %+v, %v", id, got, err)
			}
			events++
		}
		if events != 1 {
			t.Errorf("session %s has %d events at another store", id, events)
		}
		if got := storetest.Read(t, stores[b], id, provenance.ShownName(sum)); !bytes.Equal(got, data) {
			t.Errorf("a file of %s at another store has other bytes", id)
		}
	}
}

// Ids are parts of subjects, of which some have a meaning.
func TestSubjects(t *testing.T) {
	t.Parallel()
	st := open(t, clustertest.Start(t, 1).Connect(t), &jetstream.Options{Replicas: 1})
	defer st.Close()
	for _, id := range []string{"a.b", "a", "a.b.c", "...", "-"} {
		storetest.Append(t, st, id, provenance.KindSessionStarted)
	}
	for _, id := range []string{"*", ">", "a.*", "a.>", "", " ", "a b", "a\nb", "~"} {
		for _, err := range st.Events(t.Context(), provenance.Query{Session: id}) {
			if !errors.Is(err, provenance.ErrNotFound) {
				t.Errorf("Events of %q = %v", id, err)
			}
		}
		for _, err := range st.Follow(t.Context(), provenance.Query{Session: id}) {
			if !errors.Is(err, provenance.ErrNotFound) {
				t.Errorf("Follow of %q = %v", id, err)
			}
		}
		if _, err := st.Put(t.Context(), id, "outputs/x", nil); !errors.Is(err, provenance.ErrInvalid) {
			t.Errorf("Put in %q = %v", id, err)
		}
	}
	ids := map[string]bool{}
	for s, err := range st.Sessions(t.Context(), time.Time{}) {
		if err != nil || s.Head.Seq != 1 {
			t.Errorf("Sessions = %+v, %v", s, err)
		}
		ids[s.ID] = true
	}
	if len(ids) != 5 {
		t.Errorf("Sessions gave %v, want 5", ids)
	}
}

// A turn begins with one read, however long the record is.
func BenchmarkTake(b *testing.B) {
	conn := clustertest.Start(b, 3).Connect(b)
	st, err := jetstream.Open(b.Context(), conn, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	storetest.Long(b, st, "s", 10_000)
	for b.Loop() {
		st.Release("s")
		if err := st.Take(b.Context(), "s"); err != nil {
			b.Fatal(err)
		}
	}
}

// Clocks two hours apart change no order: turns are won by the numbers of messages.
func TestClocksApart(t *testing.T) {
	t.Parallel()
	conn := clustertest.Start(t, 1).Connect(t)
	at := func(apart time.Duration) *jetstream.Options {
		return &jetstream.Options{Replicas: 1, Now: func() time.Time { return time.Now().Add(apart) }}
	}
	stores := []*jetstream.Store{open(t, conn, at(time.Hour)), open(t, conn, at(-time.Hour))}
	const turns = 6
	for i := range turns {
		st, other := stores[i%2], stores[(i+1)%2]
		if err := st.Take(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		for j := range 2 {
			e := event("s", fmt.Sprint(i, j))
			e.Time = time.Time{}
			if err := st.Append(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		if err := other.Append(t.Context(), event("s", "late")); i > 0 && !errors.Is(err, provenance.ErrLost) {
			t.Errorf("Append in a lost turn = %v", err)
		} else if i == 0 && err != nil {
			// It has had no turn, and begins one.
			t.Fatal(err)
		}
	}
	report, err := stores[0].Verify(t.Context(), "s")
	if err != nil || report.Events != 2*turns+1 {
		t.Errorf("Verify = %+v, %v", report, err)
	}
	for _, st := range stores {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A clock that differs from the cluster's is seen, by about how much, and none that does not.
func TestSkew(t *testing.T) {
	t.Parallel()
	conn := clustertest.Start(t, 1).Connect(t)
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} { // of the cluster
		cells, err := jetstream.OpenCells(t.Context(), conn, &jetstream.Options{Replicas: 1,
			Now: func() time.Time { return time.Now().Add(-ahead) }})
		if err != nil {
			t.Fatal(err)
		}
		got, err := cells.Skew(t.Context())
		if off := got - ahead; err != nil || off.Abs() > time.Minute || (ahead == 0) != (got == 0) {
			t.Errorf("Skew = %v, %v; want %v", got, err, ahead)
		}
	}
}
