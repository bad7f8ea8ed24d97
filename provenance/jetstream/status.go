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

// Status is the state of a cluster that a reader of its records can observe.
type Status struct {
	Streams []StreamStatus // the existing streams
	// Unused means that a stream of records does not exist, because no server has used the cluster. All
	// fields below are then zero.
	Unused bool
	// Held is the number of open sessions of each node, by the node's name. Left is the number of open
	// sessions whose node is gone; their next call lets another node take them. Silent is the number of open
	// sessions whose node does not answer.
	Held         map[string]int
	Left, Silent int
	// Cell is the value of the requested cell; nil if it has none.
	Cell []byte
}

// StreamStatus is the state of a stream.
type StreamStatus struct {
	Name            string
	Replicas        int // configured number of servers
	Servers         []Server
	Messages, Bytes uint64
	Ahead           time.Duration // lead of its leader's clock over the local one; negative if behind
}

// Server is a NATS server with a replica of a stream.
type Server struct {
	Name    string `json:"name"`
	Leader  bool   `json:"leader"`  // answers for the stream
	Current bool   `json:"current"` // has all acknowledged messages, or nearly all
	Offline bool   `json:"offline"`
	Behind  uint64 `json:"behind"` // number of messages that it lacks
}

// serversOf returns the servers of a stream, sorted by name. If the stream has no leader, none has Leader
// set.
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

// StatusOf returns the status of a cluster and the value of one of its cells. It creates no streams. The
// caller owns the connection.
//
// Errors: the error of reading a stream.
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

// countSessions counts open sessions. It asks a silent node only once.
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
			// The part after the last dash is random.
			s.Held[store[:max(0, strings.LastIndex(store, "-"))]]++
		default:
			s.Left++
		}
	}
	return err
}

// IsUnused reports whether err means that the streams of a Store do not exist.
func IsUnused(err error) bool { return errors.Is(err, jetstream.ErrStreamNotFound) }
