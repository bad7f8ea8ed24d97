package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skillsd/skillsd/provenance"
)

// Status is what can be seen of a cluster by whoever reads its records.
type Status struct {
	Streams []StreamStatus
	// Held is how many open sessions each node has, by the node's name. Left are of nodes that are gone, and
	// the next call of a session lets another one take it. Silent are of nodes that do not answer.
	Held         map[string]int
	Left, Silent int
	// Cell is the value of the cell that was asked for; nil without one.
	Cell []byte
}

// StreamStatus is the state of a stream.
type StreamStatus struct {
	Name            string
	Leader          string // the server of NATS that answers for it; empty without one
	Replicas        int    // of which it is to consist, with the leader
	Current         int    // those that have everything, with the leader
	Behind          []string
	Messages, Bytes uint64
}

// StatusOf looks at a cluster and at a cell of it. It makes no streams. The connection is the caller's.
//
// Errors: as OpenReader.
func StatusOf(ctx context.Context, conn *nats.Conn, opts *Options, cell string) (*Status, error) {
	c, err := connect(ctx, conn, opts.withDefaults(), false)
	if err != nil {
		return nil, err
	}
	cells := &Cells{cluster: c}
	if err := cells.open(ctx, false); err != nil {
		return nil, err
	}
	s := &Status{Held: map[string]int{}}
	for _, stream := range []jetstream.Stream{c.events, c.blobs, cells.state} {
		info := stream.CachedInfo()
		of := StreamStatus{Name: info.Config.Name, Replicas: info.Config.Replicas, Current: 1,
			Messages: info.State.Msgs, Bytes: info.State.Bytes}
		if info.Cluster != nil {
			of.Leader = info.Cluster.Leader
			for _, peer := range info.Cluster.Replicas {
				switch {
				case peer.Offline:
					of.Behind = append(of.Behind, peer.Name+" is not reached")
				case !peer.Current:
					of.Behind = append(of.Behind, fmt.Sprintf("%s lacks %d operations", peer.Name, peer.Lag))
				default:
					of.Current++
				}
			}
		}
		s.Streams = append(s.Streams, of)
	}
	m, err := c.last(ctx, cells.state, c.subjectOfCell(cell))
	switch {
	case err == nil:
		s.Cell = m.Data
	case !errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, err
	}
	if err := s.countSessions(ctx, c); err != nil {
		return nil, err
	}
	return s, ctx.Err()
}

// countSessions counts open sessions. A node that is silent is asked once.
func (s *Status) countSessions(ctx context.Context, c *cluster) error {
	r, silent := &reader{cluster: c}, map[string]bool{}
	all, err := r.sessions(ctx, time.Time{})
	for _, f := range all {
		if f.err != nil || f.state.Session.State != provenance.StateOpen {
			continue
		}
		store, _, _ := strings.Cut(f.last.Header.Get(headerWriter), ".")
		var answer string
		if !silent[store] {
			var err error
			answer, err = r.askHolder(ctx, f.last, f.id)
			silent[store] = err != nil && !errors.Is(err, nats.ErrNoResponders)
		}
		switch {
		case silent[store]:
			s.Silent++
		case strings.HasPrefix(answer, "1"):
			s.Held[store[:max(0, strings.LastIndex(store, "-"))]]++ // the rest is random
		default:
			s.Left++
		}
	}
	return err
}

// IsUnused reports whether an error says that a cluster has no streams of a Store.
func IsUnused(err error) bool { return errors.Is(err, jetstream.ErrStreamNotFound) }
