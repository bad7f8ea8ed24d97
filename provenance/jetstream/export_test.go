package jetstream

import (
	"context"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"
)

// Delete deletes a session up to a message.
func (st *Store) Delete(ctx context.Context, id string, last uint64) error {
	return st.delete(ctx, id, last)
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
