package jetstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// Members are the participants of a cluster.
type Members struct {
	Servers []Server `json:"servers"` // with the records
	Nodes   []Node   `json:"nodes"`   // that write the records
}

// Node is a [Store].
type Node struct {
	Name     string `json:"name"` // begins the turns of its events
	Address  string `json:"address"`
	Sessions int    `json:"sessions"` // number of sessions it has
	Own      bool   `json:"own"`      // this is the store that was asked
}

// answerWithin is how long [Store.Members] waits for nodes; maxNodes is how many it lists.
const (
	answerWithin = 300 * time.Millisecond
	maxNodes     = 100
)

// Self returns this store as a node, without its number of sessions.
func (st *Store) Self() Node { return Node{Name: st.name, Address: st.opts.Address, Own: true} }

// Lives reports whether the node with this name is running. A node has one name as long as its process runs.
//
// Errors: provenance.ErrUnavailable if that cannot be determined; the error of ctx.
func (st *Store) Lives(ctx context.Context, name string) (bool, error) {
	try, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	_, err := st.conn.RequestWithContext(try, st.subject("holds", name), nil)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, nats.ErrNoResponders):
		return false, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	}
	return false, fmt.Errorf("find node %s: %w: %w", name, provenance.ErrUnavailable, err)
}

// present answers a request for the list of nodes.
func (st *Store) present(m *nats.Msg) {
	own := st.Self()
	st.mu.Lock()
	for _, t := range st.turns {
		if t.held.Load() {
			own.Sessions++
		}
	}
	st.mu.Unlock()
	if answer, err := json.Marshal(own); err == nil {
		// If the answer is lost, the caller asks again.
		_ = m.Respond(answer)
	}
}

// Members returns the current participants of the cluster. It omits a node that does not answer at once.
//
// Errors: provenance.ErrUnavailable, or the error of ctx.
func (st *Store) Members(ctx context.Context) (*Members, error) {
	var info *jetstream.StreamInfo
	err := st.ask(ctx, func(ctx context.Context) (err error) {
		info, err = st.events.Info(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find members: %w", err)
	}
	members := &Members{Servers: serversOf(info), Nodes: []Node{}}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	err = st.Nodes(ctx, func(node Node) { members.Nodes = append(members.Nodes, node) })
	if err != nil {
		return nil, err
	}
	slices.SortFunc(members.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return members, nil
}

// Nodes calls found for each node that answers, until ctx ends.
//
// Errors: provenance.ErrUnavailable.
func (st *Store) Nodes(ctx context.Context, found func(Node)) error {
	inbox := st.conn.NewRespInbox()
	answers, err := st.conn.SubscribeSync(inbox)
	if err != nil {
		return fmt.Errorf("find members: %w: %w", provenance.ErrUnavailable, err)
	}
	defer answers.Unsubscribe()
	if err := st.conn.PublishRequest(st.subject("nodes"), inbox, nil); err != nil {
		return fmt.Errorf("find members: %w: %w", provenance.ErrUnavailable, err)
	}
	for n := 0; n < maxNodes; {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			break
		}
		var node Node
		if json.Unmarshal(m.Data, &node) == nil && node.Name != "" {
			node.Own = node.Name == st.name
			found(node)
			n++
		}
	}
	return nil
}
