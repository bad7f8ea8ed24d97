package wire

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// call is one request from the parse of its message until its answer.
type call struct {
	msg     *message
	key     string
	ctx     context.Context
	cancel  context.CancelCauseFunc
	session *callSession
	listen  bool            // a subscription
	ping    bool            // pings do not wait for a slot
	wait    <-chan struct{} // an earlier initialize request to wait for, or nil
	release chan struct{}   // closed when this initialize request is answered, or nil

	canceled bool // guarded by callTable.mu
	away     bool // handled by another server; guarded by callTable.mu
}

// newCall returns the call of a request, without a context and a session yet.
func newCall(m *message) *call {
	return &call{msg: m, key: idKey(m.id), listen: m.method == string(mcp.MethodSubscriptionsListen),
		ping: m.method == string(mcp.MethodPing)}
}

// callTable holds the calls that wait or run. Safe for concurrent use.
type callTable struct {
	maxCalls, maxListens, maxBytes int

	mu      sync.Mutex
	byKey   map[string]*call
	calls   int // until the answer is written; subscriptions are excluded
	listens int
	bytes   int
	closing bool
	running sync.WaitGroup
}

func newCallTable(maxCalls, maxListens, maxBytes int) *callTable {
	return &callTable{
		maxCalls: maxCalls, maxListens: maxListens, maxBytes: maxBytes,
		byKey: make(map[string]*call),
	}
}

// add registers c before the next message is read, so that a cancellation finds it. It returns false without
// an error if the connection is closing.
func (t *callTable) add(c *call) (bool, *Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closing:
		return false, nil
	case t.byKey[c.key] != nil:
		return false, invalidRequest("id is in use by another request")
	case c.listen && t.listens >= t.maxListens:
		return false, &Error{Code: CodeBusy, Message: "too many open subscriptions"}
	case c.ping:
		// A ping is accepted on a busy server, because it tests whether the server is alive. The first
		// message is accepted at any length that the transport accepts.
	case !c.listen && t.calls >= t.maxCalls, t.bytes > 0 && t.bytes+len(c.msg.raw) > t.maxBytes:
		return false, &Error{Code: CodeBusy, Message: "too many requests in flight"}
	}
	t.running.Add(1)
	t.byKey[c.key] = c
	t.bytes += len(c.msg.raw)
	if c.listen {
		t.listens++
	} else {
		t.calls++
	}
	return true, nil
}

// sendAway marks a call as handled by another server. It returns false if the call was cancelled.
func (t *callTable) sendAway(c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.away = true
	return !c.canceled
}

// cancel ends the call that a cancellation names. It returns false if another server handles the call.
func (t *callTable) cancel(m *message) bool {
	id := canceledID(m.params)
	if id == nil {
		// It names no call.
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// The protocol forbids cancelling initialize, and later requests wait for it.
	c := t.byKey[idKey(id)]
	if c != nil && c.release == nil {
		c.canceled = true
		c.session.silent.Store(true)
		c.cancel(ErrCanceled)
	}
	return c != nil && !c.away
}

// canceledID returns the id of the request that a cancellation names, or nil if it names none or is
// ambiguous.
func canceledID(params json.RawMessage) json.RawMessage {
	members, err := Members(params)
	at := slices.IndexFunc(members, func(m Member) bool { return m.Key == "requestId" && validID(m.Value) })
	if err != nil || at < 0 {
		return nil
	}
	return members[at].Value
}

// settle removes c from the table just before its answer is written, and reports whether to write one.
func (t *callTable) settle(c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byKey, c.key)
	return !c.canceled
}

// leave releases the limits held by c after its answer was written or dropped.
func (t *callTable) leave(c *call) {
	c.cancel(nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	// After settle the client may have reused the id.
	if t.byKey[c.key] == c {
		delete(t.byKey, c.key)
	}
	t.bytes -= len(c.msg.raw)
	if c.listen {
		t.listens--
	} else {
		t.calls--
	}
	t.running.Done()
}

// close rejects new calls, ends the open subscriptions and returns a channel that is closed when no call is
// left.
func (t *callTable) close() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closing = true
	// Subscriptions do not end by themselves and would delay the shutdown until its limit.
	for _, c := range t.byKey {
		if c.listen {
			c.cancel(ErrDisconnected)
		}
	}
	idle := make(chan struct{})
	go func() {
		t.running.Wait()
		close(idle)
	}()
	return idle
}

// abort cancels all calls.
func (t *callTable) abort() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.byKey {
		c.cancel(ErrDisconnected)
	}
}
