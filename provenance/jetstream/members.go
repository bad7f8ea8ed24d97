package jetstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skillsd/skillsd/provenance"
)

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
