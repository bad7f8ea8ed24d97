package wire

import (
	"maps"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// announcer collects the list changes that one client is to hear of: a client of the older revisions, or a
// subscription. A client that does not read holds up its own announcer and nothing else.
type announcer struct {
	wants func(method string) bool // reports whether a change is one for the client; nil for always
	wake  chan struct{}

	mu      sync.Mutex
	ready   bool     // changes may be sent; the ones before are kept
	pending []string // methods; a second notification before the client can look adds nothing
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

// open lets changes through, the ones that were kept as well.
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

// run gives changes to write until done is closed or out has failed.
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

// audience is the announcers of one transport.
type audience struct {
	mu      sync.Mutex
	all     map[*announcer]struct{}
	changes []string // methods that not all members have heard of, in their order
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

// post has the members for whom a change is news hear of it. It waits for none of them.
func (a *audience) post(method string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// The first one is being delivered, perhaps from before the change.
	if len(a.changes) > 1 && slices.Contains(a.changes[1:], method) {
		return
	}
	a.changes = append(a.changes, method)
	if len(a.changes) == 1 {
		go a.deliver()
	}
}

// deliver tells the members what waits. Whether a change is one for a client takes a look at the skills, so
// it is asked without the lock.
func (a *audience) deliver() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.changes) > 0 {
		method, members := a.changes[0], slices.Collect(maps.Keys(a.all))
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
