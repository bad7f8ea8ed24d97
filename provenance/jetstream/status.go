package jetstream

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skillsd/skillsd/provenance"
)

// Status is what can be seen of a cluster by whoever reads its records.
type Status struct {
	Streams []StreamStatus // that there are
	// Unused says that a stream of records is missing, since no server has used the cluster. The fields below
	// are zero then.
	Unused bool
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
	Replicas        int // how many servers it is to be on
	Servers         []Server
	Messages, Bytes uint64
	Ahead           time.Duration // by how much the clock of its leader is ahead of the clock here, or behind
}

// Server is a server of NATS that has a stream.
type Server struct {
	Name    string `json:"name"`
	Leader  bool   `json:"leader"`  // it answers for the stream
	Current bool   `json:"current"` // it has all that was acknowledged, or nearly
	Offline bool   `json:"offline"`
	Behind  uint64 `json:"behind"` // messages that it lacks
}

// serversOf returns the servers of a stream by their names. A stream without a leader has none that leads.
func serversOf(info *jetstream.StreamInfo) []Server {
	found := []Server{}
	if info.Cluster == nil {
		return found
	}
	if leader := info.Cluster.Leader; leader != "" {
		found = append(found, Server{Name: leader, Leader: true, Current: true})
	}
	for _, p := range info.Cluster.Replicas {
		found = append(found, Server{p.Name, false, p.Current && !p.Offline, p.Offline, p.Lag})
	}
	slices.SortFunc(found, func(a, b Server) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// StatusOf looks at a cluster and at a cell of it. It makes no streams. The connection is the caller's.
//
// Errors: the error of looking at a stream.
func StatusOf(ctx context.Context, conn *nats.Conn, opts *Options, cell string) (*Status, error) {
	c, err := newCluster(conn, opts.withDefaults())
	if err != nil {
		return nil, err
	}
	s, found := &Status{}, map[string]jetstream.Stream{}
	for _, name := range streams {
		began := time.Now()
		stream, err := c.stream(ctx, name, false)
		if IsUnused(err) {
			s.Unused = s.Unused || name != streamSkills
			continue
		}
		if err != nil {
			return nil, err
		}
		found[name] = stream
		info := stream.CachedInfo()
		s.Streams = append(s.Streams, StreamStatus{info.Config.Name, info.Config.Replicas, serversOf(info),
			info.State.Msgs, info.State.Bytes, skew(info, began, time.Now())})
	}
	if s.Unused {
		return s, nil
	}
	c.events, c.blobs, s.Held = found[streamEvents], found[streamFiles], map[string]int{}
	m, err := c.last(ctx, found[streamState], c.subjectOfCell(cell))
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
