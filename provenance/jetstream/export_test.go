package jetstream

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"
)

// Delete deletes a session up to a message.
func (st *Store) Delete(ctx context.Context, id string, last uint64) error {
	return st.delete(ctx, id, last)
}

// Hold has the events of a session wait until release, which makes them one batch if it has room for them.
func (st *Store) Hold(id string) (waiting func() int, release func()) {
	t, err := st.turn(id)
	if err != nil {
		panic(err)
	}
	t.work <- struct{}{}
	waiting = func() int {
		t.mu.Lock()
		defer t.mu.Unlock()
		return len(t.waiting)
	}
	return waiting, func() {
		<-t.work
		st.leave(t)
	}
}

// stale answers n requests for a message as a server does that led before the message was recorded.
type stale struct {
	jetstream.Stream
	n atomic.Int32
}

func (s *stale) GetMsg(
	ctx context.Context, seq uint64, opts ...jetstream.GetMsgOpt,
) (*jetstream.RawStreamMsg, error) {
	if seq > 1 && s.n.Add(-1) >= 0 {
		return nil, jetstream.ErrMsgNotFound
	}
	return s.Stream.GetMsg(ctx, seq, opts...)
}

// ReadStale has n reads of events answered by a server that lags.
func (st *Store) ReadStale(n int32) {
	s := &stale{Stream: st.events}
	s.n.Store(n)
	st.events = s
}

// Reads counts what is read of records.
type Reads struct {
	jetstream.Stream
	Requests, Bytes atomic.Int64
	Events          atomic.Int64 // each once
	seen            sync.Map     // numbers of messages
}

func (r *Reads) GetMsg(
	ctx context.Context, seq uint64, opts ...jetstream.GetMsgOpt,
) (*jetstream.RawStreamMsg, error) {
	return r.count(r.Stream.GetMsg(ctx, seq, opts...))
}

func (r *Reads) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	return r.count(r.Stream.GetLastMsgForSubject(ctx, subject))
}

func (r *Reads) count(m *jetstream.RawStreamMsg, err error) (*jetstream.RawStreamMsg, error) {
	r.Requests.Add(1)
	if err == nil {
		if _, again := r.seen.LoadOrStore(m.Sequence, true); !again {
			r.Events.Add(int64(bytes.Count(m.Data, []byte("\n"))))
		}
		r.Bytes.Add(int64(len(m.Data)))
		for key, values := range m.Header {
			r.Bytes.Add(int64(len(key) + len(values[0])))
		}
	}
	return m, err
}

// CountReads counts what the store reads of records from now on.
func (st *Store) CountReads() *Reads {
	r := &Reads{Stream: st.events}
	st.events = r
	return r
}
