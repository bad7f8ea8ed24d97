package jetstream_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsstream "github.com/nats-io/nats.go/jetstream"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/jetstream"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// messages returns all messages of the records of a cluster, which has deleted none.
func messages(t *testing.T, conn *nats.Conn) (all []*natsstream.RawStreamMsg) {
	t.Helper()
	js, err := natsstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "skillsd-events")
	if err != nil {
		t.Fatal(err)
	}
	for seq := range stream.CachedInfo().State.LastSeq {
		m, err := stream.GetMsg(t.Context(), seq+1)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// publish publishes what change makes of messages.
func publish(
	t *testing.T, conn *nats.Conn, subject string, all []*natsstream.RawStreamMsg,
	change func(m *nats.Msg, last bool),
) {
	t.Helper()
	js, err := natsstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	for i, from := range all {
		m := &nats.Msg{Subject: subject, Data: bytes.Clone(from.Data), Header: nats.Header{}}
		for key, values := range from.Header {
			m.Header.Set(key, values[0])
		}
		change(m, i == len(all)-1)
		if _, err := js.PublishMsgAsync(m); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(time.Minute):
		t.Fatal("the server did not acknowledge the messages; is its disk full?")
	}
}

// Nothing is left of a reader that did not get the bytes of the first message.
func TestReadLeavesNothing(t *testing.T) {
	t.Parallel()
	conn := clustertest.Start(t, 1).Connect(t)
	st := open(t, conn, &jetstream.Options{Replicas: 1, Patience: time.Second})
	defer st.Close()
	storetest.Append(t, st, "s", provenance.KindSessionStarted)
	publish(t, conn, "skillsd.ev.s", messages(t, conn), func(m *nats.Msg, _ bool) {
		m.Subject, m.Data = "skillsd.ev.lost", nil
		m.Header.Set("Blob", digest.FromString("of no file").String())
	})
	type key struct{}
	held, free := new([100]byte), make(chan bool)
	runtime.AddCleanup(held, func(free chan bool) { close(free) }, free)
	for _, err := range st.Events(context.WithValue(t.Context(), key{}, held), provenance.Query{Session: "lost"}) {
		if !errors.Is(err, provenance.ErrUnavailable) {
			t.Fatalf("err = %v, want ErrUnavailable", err)
		}
	}
	held = nil
	for begin := time.Now(); ; runtime.GC() {
		select {
		case <-free:
			return
		case <-time.After(10 * time.Millisecond):
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatal("the context of a reader that failed is still in use")
		}
	}
}

// No reader takes a batch for whole whose events are not those that were recorded, or whose state is not
// theirs, wherever it is in the record.
func TestBatchDamaged(t *testing.T) {
	t.Parallel()
	const id, state = "s", "State"
	conn := clustertest.Start(t, 1).Connect(t)
	first := open(t, conn, &jetstream.Options{Replicas: 1})
	defer first.Close()
	storetest.Append(t, first, id, provenance.KindSessionStarted)
	appendBatch(t, first, nil, event(id, "a"), event(id, "b"), event(id, "c"))
	appendBatch(t, first, nil, event(id, "d"), event(id, "e"), event(id, "f"))
	record := messages(t, conn)
	if len(record) != 3 {
		t.Fatalf("the record has %d messages, want 3", len(record))
	}
	lines := func(change func(lines [][]byte) [][]byte) func(*nats.Msg) {
		return func(m *nats.Msg) { m.Data = bytes.Join(change(bytes.SplitAfter(m.Data, []byte("\n"))), nil) }
	}
	for name, change := range map[string]func(m *nats.Msg){
		"whole":     func(*nats.Msg) {},
		"torn":      func(m *nats.Msg) { m.Data = m.Data[:len(m.Data)-40] },
		"unended":   func(m *nats.Msg) { m.Data = m.Data[:len(m.Data)-1] },
		"extended":  func(m *nats.Msg) { m.Data = append(m.Data, `{"seq":8`...) },
		"empty":     func(m *nats.Msg) { m.Data = nil },
		"no-state":  func(m *nats.Msg) { m.Header.Del(state) },
		"shortened": lines(func(l [][]byte) [][]byte { return l[:2] }),
		"beheaded":  lines(func(l [][]byte) [][]byte { return l[1:] }),
		"thinned":   lines(func(l [][]byte) [][]byte { return slices.Delete(l, 1, 2) }),
		"doubled":   lines(func(l [][]byte) [][]byte { return slices.Insert(l, 1, l[0]) }),
		"twice":     lines(func(l [][]byte) [][]byte { return append(l, l[2]) }),
		"swapped":   lines(func(l [][]byte) [][]byte { l[0], l[1] = l[1], l[0]; return l }),
		"repeated":  func(m *nats.Msg) { m.Data = append(m.Data, m.Data...) },
		"forged":    func(m *nats.Msg) { m.Data = bytes.Replace(m.Data, []byte("local"), []byte("other"), 1) },
		// By somebody who knows how lines are hashed.
		"rehashed": lines(func(l [][]byte) [][]byte {
			e, err := provenance.DecodeLine(l[2][:len(l[2])-1])
			if err != nil {
				t.Fatal(err)
			}
			e.Detail = "forged"
			l[2], err = provenance.EncodeLine(e)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}),
		"later": func(m *nats.Msg) {
			m.Header.Set(state, strings.Replace(m.Header.Get(state), `"head":{"seq":`, `"head":{"seq":1`, 1))
		},
	} {
		for where, at := range map[string]int{"last": 2, "between": 1} {
			if where == "between" && (name == "later" || name == "no-state") {
				continue // the last message has the state of the record
			}
			prefix := name + "-" + where
			st := open(t, conn, &jetstream.Options{Replicas: 1, Prefix: prefix})
			defer st.Close()
			n := 0
			publish(t, conn, prefix+".ev."+id, record, func(m *nats.Msg, _ bool) {
				if n == at {
					change(m)
				}
				n++
			})
			read := func(events func(func(*provenance.Event, error) bool)) (err error) {
				for _, err = range events {
				}
				return err
			}
			q := provenance.Query{Session: id}
			_, verified := st.Verify(t.Context(), id)
			_, recalled := cfharness.Recall(t.Context(), st, id)
			for doing, err := range map[string]error{"Events": read(st.Events(t.Context(), q)),
				"Follow": read(st.Follow(t.Context(), q)), "Verify": verified, "Recall": recalled} {
				if name == "whole" && err != nil || name != "whole" && !errors.Is(err, provenance.ErrCorrupt) {
					t.Errorf("%s of a record that is %s in the %s batch = %v", doing, name, where, err)
				}
			}
		}
	}
}
