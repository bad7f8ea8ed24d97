package wire

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
)

// call is one request between its line and its answer.
type call struct {
	msg     *message
	key     string
	ctx     context.Context
	cancel  context.CancelCauseFunc
	session *callSession
	listen  bool            // a subscription
	ping    bool            // which never has to wait
	wait    <-chan struct{} // an initialize request that came earlier, or nil
	release chan struct{}   // closed when this initialize request is answered, or nil

	canceled bool // guarded by callTable.mu
	away     bool // another server does it; guarded by callTable.mu
}

// callTable holds the calls that are waiting or running. Safe for concurrent use.
type callTable struct {
	maxCalls, maxListens, maxBytes int

	mu      sync.Mutex
	byKey   map[string]*call
	calls   int // until the answer is written, listens not counted
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

// add registers c, so that a cancellation read next finds it. It reports false
// without an error when the connection is closing.
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
		// A client asks with a ping whether a server that is busy is alive.
	// A message alone is accepted at any length that the transport lets through.
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

// sendAway says that another server is to do a call, and reports false for one that was cancelled.
func (t *callTable) sendAway(c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.away = true
	return !c.canceled
}

// cancel ends the call that a cancellation of the client names, and reports false if that is not done here.
func (t *callTable) cancel(m *message) bool {
	id := canceledID(m.params)
	if id == nil {
		return true // of no call
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// The protocol forbids to cancel initialize, and requests behind it wait for it.
	c := t.byKey[idKey(id)]
	if c != nil && c.release == nil {
		c.canceled = true
		c.session.silent.Store(true)
		c.cancel(ErrCanceled)
	}
	return c != nil && !c.away
}

// canceledID returns the id of the request that a cancellation names, nil if it names none or could name two.
func canceledID(params json.RawMessage) json.RawMessage {
	members, err := Members(params)
	at := slices.IndexFunc(members, func(m Member) bool { return m.Key == "requestId" && validID(m.Value) })
	if err != nil || at < 0 {
		return nil
	}
	return members[at].Value
}

// settle takes c off the table right before its answer is written and reports whether there is to be one.
func (t *callTable) settle(c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byKey, c.key)
	return !c.canceled
}

// leave counts c out after its answer was written or given up.
func (t *callTable) leave(c *call) {
	c.cancel(nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	// After settle the client may have used the id again.
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

// close lets no call in any more, ends the open subscriptions and returns a channel that is closed when no
// call is left.
func (t *callTable) close() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closing = true
	// A subscription has no end of its own, so it would hold up the others until the limit.
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

// abort ends all calls.
func (t *callTable) abort() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.byKey {
		c.cancel(ErrDisconnected)
	}
}
