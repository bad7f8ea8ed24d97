package wire

import (
	"maps"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// announcer queues list changes for one client (of the older revisions) or for one subscription. A
// client that does not read blocks only its own announcer.
type announcer struct {
	wants func(method string) bool // reports whether the client wants a change; nil: always
	wake  chan struct{}

	mu      sync.Mutex
	ready   bool     // changes may be sent; earlier ones stay pending
	pending []string // methods; a method that is pending already is not added again
}

func newAnnouncer(wants func(method string) bool) *announcer {
	return &announcer{wants: wants, wake: make(chan struct{}, 1)}
}

func (a *announcer) post(method string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.pending, method) {
		a.pending = append(a.pending, method)
	}
	a.signal()
}

// open starts the delivery of changes, including those already pending.
func (a *announcer) open() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = true
	a.signal()
}

func (a *announcer) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *announcer) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ready {
		return nil
	}
	methods := a.pending
	a.pending = nil
	return methods
}

// run passes pending changes to write until done is closed or out has failed.
func (a *announcer) run(done <-chan struct{}, out *lineWriter, write func(mcp.JSONRPCNotification)) {
	for {
		select {
		case <-done:
			return
		case <-out.failed:
			return
		case <-a.wake:
		}
		for _, method := range a.take() {
			write(mcp.JSONRPCNotification{
				JSONRPC: mcp.JSONRPC_VERSION, Notification: mcp.Notification{Method: method},
			})
		}
	}
}

// audience is the set of announcers of one transport.
type audience struct {
	mu      sync.Mutex
	all     map[*announcer]struct{}
	changes []string // methods to deliver, in order
}

func newAudience() *audience { return &audience{all: make(map[*announcer]struct{})} }

func (a *audience) add(member *announcer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all[member] = struct{}{}
}

func (a *audience) remove(member *announcer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, member)
}

// post queues a change for delivery to the members that want it. It does not block.
func (a *audience) post(method string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// The first one is being delivered already, and its receivers may have read the list before this change.
	if len(a.changes) > 1 && slices.Contains(a.changes[1:], method) {
		return
	}
	a.changes = append(a.changes, method)
	if len(a.changes) == 1 {
		go a.deliver()
	}
}

// deliver posts the queued changes to the members.
func (a *audience) deliver() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.changes) > 0 {
		method, members := a.changes[0], slices.Collect(maps.Keys(a.all))
		// The function wants may look up skills, so it is called without the lock.
		a.mu.Unlock()
		for _, member := range members {
			if member.wants == nil || member.wants(method) {
				member.post(method)
			}
		}
		a.mu.Lock()
		a.changes = a.changes[1:]
	}
}
