package jetstream_test

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/jetstream"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// wantRecalled recalls a session and checks that it is what all events say. It returns what was read for it.
func wantRecalled(t *testing.T, st *jetstream.Store, session string) (read *jetstream.Reads) {
	t.Helper()
	// Without its own method, as a store of any other kind.
	want, err := cfharness.Recall(t.Context(), struct{ provenance.Reader }{st}, session)
	if err != nil {
		t.Fatal(err)
	}
	read = st.CountReads()
	got, err := cfharness.Recall(t.Context(), st, session)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("recalled %+v, %v\nwant %+v", got, err, want)
	}
	return read
}

// appendMany appends events at once, of which a message has many.
func appendMany(t *testing.T, st *jetstream.Store, session string, n int) {
	t.Helper()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if err := st.Append(t.Context(), event(session, "many")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// Whoever takes a session over reads at most 1,000 of its events, and an append is one message as before: of
// one event or of many, by the first server of the session or a later one.
func TestRecallLong(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Start(t, 1)
	opts := &jetstream.Options{Replicas: 1}
	const id = "long"
	var before *jetstream.Store
	total := 0
	for _, writes := range []struct{ lone, many int }{{lone: 1010}, {many: 1500}, {lone: 10, many: 500}} {
		conn := cluster.Connect(t)
		st := open(t, conn, opts)
		defer st.Close()
		if before != nil {
			if err := st.Take(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			read := wantRecalled(t, st, id)
			if got, asked := read.Events.Load(), read.Requests.Load(); got > 1000 || asked > 1002 {
				t.Errorf("of %d events %d are read with %d requests", total, got, asked)
			}
			storetest.Append(t, st, id, provenance.KindSessionResumed)
			total++
			for range 2 {
				err := before.Append(t.Context(), event(id, "late"))
				if !errors.Is(err, provenance.ErrLost) {
					t.Fatalf("Append in a lost turn = %v", err)
				}
			}
		}
		sent := conn.Stats().OutMsgs
		for range writes.lone {
			storetest.Append(t, st, id, provenance.KindResourceRead)
		}
		appendMany(t, st, id, writes.many)
		n := writes.lone + writes.many
		if got := conn.Stats().OutMsgs - sent; got > uint64(n+1) { // and one to begin the turn
			t.Errorf("%d messages are sent for %d events", got, n)
		}
		before, total = st, total+n
	}
	if report, err := before.Verify(t.Context(), id); err != nil || report.Events != total {
		t.Errorf("Verify = %+v, %v", report, err)
	}
}

// packed returns what change makes of a checkpoint.
func packed(t *testing.T, text string, change func(string) string) string {
	t.Helper()
	r, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	changed := change(string(data))
	if err != nil || changed == string(data) {
		t.Fatalf("the checkpoint %.200s… has nothing to change, %v", data, err)
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := io.WriteString(w, changed); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(out.Bytes())
}

// A checkpoint that is not there, not whole, of another form, or of other events counts for nothing: all
// events are read, and the next message has a new one.
func TestCheckpointRefused(t *testing.T) {
	t.Parallel()
	const id, n, checkpoint, state = "s", 600, "Checkpoint", "State"
	conn := clustertest.Start(t, 1).Connect(t)
	first := open(t, conn, &jetstream.Options{Replicas: 1})
	defer first.Close()
	storetest.Long(t, first, id, 10)
	appendMany(t, first, id, n-20)
	for range 10 {
		storetest.Append(t, first, id, provenance.KindResourceRead)
	}
	record := messages(t, conn)
	in := func(change func(string) string) func(h nats.Header, last bool) {
		return func(h nats.Header, _ bool) {
			if text := h.Get(checkpoint); text != "" {
				h.Set(checkpoint, change(text))
			}
		}
	}
	replaced := func(old, by string) func(nats.Header, bool) {
		return in(func(text string) string {
			return packed(t, text, func(data string) string { return strings.ReplaceAll(data, old, by) })
		})
	}
	// What a server writes that knows nothing of checkpoints.
	older := func(h nats.Header) {
		var all map[string]json.RawMessage
		if err := json.Unmarshal([]byte(h.Get(state)), &all); err != nil {
			t.Fatal(err)
		}
		delete(all, "checkpoint")
		left, _ := json.Marshal(all) // as it was
		h.Set(state, string(left))
	}
	for name, change := range map[string]func(h nats.Header, last bool){
		"whole": func(nats.Header, bool) {},
		"none":  func(h nats.Header, _ bool) { h.Del(checkpoint) },
		"older": func(h nats.Header, _ bool) { h.Del(checkpoint); older(h) },
		"last older": func(h nats.Header, last bool) {
			if last {
				older(h)
			}
		},
		"astray": func(h nats.Header, _ bool) {
			h.Set(state, regexp.MustCompile(`"after":\d+`).ReplaceAllString(h.Get(state), `"after":1`))
		},
		"beyond": func(h nats.Header, _ bool) {
			h.Set(state, strings.Replace(h.Get(state), `"after":`, `"after":99`, 1))
		},
		"form":     replaced(`{"form":`, `{"form":1`),
		"session":  replaced(`"id":"s"`, `"id":"other"`),
		"fold":     replaced(`"fold":`, `"folded":`),
		"cut":      in(func(text string) string { return text[:len(text)/2] }),
		"tail":     in(func(text string) string { return text[:len(text)-12] }),
		"byte":     in(func(text string) string { return text[:99] + string(text[99]^1) + text[100:] }),
		"empty":    in(func(string) string { return "x" }),
		"other":    replaced(`"hash":"`, `"hash":"0`),
		"later":    replaced(`"head":{"seq":`, `"head":{"seq":1`),
		"garbage":  replaced(`{`, `[`),
		"no skill": replaced(`"skills":["pdf"]`, `"skills":[]`),
		"request":  replaced(`"pending":`, `"pending":["x"],"requests":{"x":null},"was":`),
		"large":    replaced(`"fold":{`, `"fold":{"x":"`+strings.Repeat(" ", 2<<20)+`",`),
	} {
		prefix := strings.ReplaceAll(name, " ", "-")
		st := open(t, conn, &jetstream.Options{Replicas: 1, Prefix: prefix})
		defer st.Close()
		checkpoints := 0
		publish(t, conn, prefix+".ev."+id, record, func(m *nats.Msg, last bool) {
			if m.Header.Get(checkpoint) != "" {
				checkpoints++
			}
			change(m.Header, last)
		})
		if checkpoints != 1 {
			t.Fatalf("the record has %d checkpoints", checkpoints)
		}
		if err := st.Take(t.Context(), id); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := wantRecalled(t, st, id).Events.Load(); (got < n) != (name == "whole") {
			t.Errorf("%s: of %d events %d are read", name, n, got)
		}
		storetest.Append(t, st, id, provenance.KindSessionResumed)
		read := st.CountReads()
		if _, err := cfharness.Recall(t.Context(), st, id); err != nil || read.Events.Load() >= n/2 {
			t.Errorf("%s: after the next message, %d events are read, %v", name, read.Events.Load(), err)
		}
	}
}

// A session whose checkpoint would be too large for a message is recorded like any other.
func TestCheckpointTooLarge(t *testing.T) {
	t.Parallel()
	st := open(t, clustertest.Start(t, 1).Connect(t), &jetstream.Options{Replicas: 1})
	defer st.Close()
	const id = "large"
	storetest.Append(t, st, id, provenance.KindSessionStarted)
	var all sync.WaitGroup
	for i := range 2200 { // whose checkpoints are ever larger
		all.Go(func() {
			e := storetest.Event(id, provenance.KindSkillActivated, i)
			e.Skill = "pdf"
			if i%2 == 0 {
				for range 8 {
					e.Skill += rand.Text()
				}
			}
			e.Row = []byte(`{"name":"pdf"}`)
			if err := st.Append(t.Context(), e); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := wantRecalled(t, st, id).Events.Load(); got <= 1000 {
		t.Errorf("%d events are read, so that this tests nothing", got)
	}
	storetest.Append(t, st, id, provenance.KindSessionEnded)
}

// BenchmarkRecall says what is read to recall a session of 10,000 events.
func BenchmarkRecall(b *testing.B) {
	conn := clustertest.Start(b, 1).Connect(b)
	st, err := jetstream.Open(b.Context(), conn, &jetstream.Options{Replicas: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	before := conn.Stats()
	storetest.Long(b, st, "s", 10_000)
	after := conn.Stats()
	b.Logf("recorded with %d messages, %d bytes", after.OutMsgs-before.OutMsgs, after.OutBytes-before.OutBytes)
	for name, from := range map[string]provenance.Reader{"all": struct{ provenance.Reader }{st}, "since": st} {
		b.Run(name, func(b *testing.B) {
			read := st.CountReads()
			for b.Loop() {
				if _, err := cfharness.Recall(b.Context(), from, "s"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(read.Requests.Load())/float64(b.N), "requests/op")
			b.ReportMetric(float64(read.Bytes.Load())/float64(b.N), "read-bytes/op")
		})
	}
}
