package wire

import (
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// changes is a set of lists that changed. A set is enough: a second notification
// before the client can look adds nothing.
type changes uint8

const (
	toolsChanged changes = 1 << iota
	promptsChanged
	resourcesChanged
)

var changeMethods = [...]struct {
	change changes
	method string
}{
	{toolsChanged, mcp.MethodNotificationToolsListChanged},
	{promptsChanged, mcp.MethodNotificationPromptsListChanged},
	{resourcesChanged, mcp.MethodNotificationResourcesListChanged},
}

const maxAnnouncements = 256

// announcer sends the client what does not belong to a call: list changes to an
// initialized client of the older revisions and to every open subscription that
// asked for them, anything else to the former only. A client that does not read
// holds up the announcer and nothing else.
type announcer struct {
	out  *lineWriter
	wake chan struct{}
	stop chan struct{}
	news func(method string) bool // reports whether a change is news to the client; nil for always

	mu          sync.Mutex
	initialized bool // an initialize request was seen
	ready       bool // the client said notifications/initialized
	pending     changes
	others      []mcp.JSONRPCNotification
	listens     map[*callSession]struct{}
}

func newAnnouncer(out *lineWriter) *announcer {
	return &announcer{
		out: out, wake: make(chan struct{}, 1), stop: make(chan struct{}),
		listens: make(map[*callSession]struct{}),
	}
}

// run delivers until stop is closed.
func (a *announcer) run() {
	for {
		select {
		case <-a.stop:
			return
		case <-a.wake:
		}
		for _, deliver := range a.take() {
			deliver()
		}
	}
}

// post takes a broadcast of mcp-go. It does not block.
func (a *announcer) post(n mcp.JSONRPCNotification) {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.signal()
	change := changeOf(n.Method)
	if change == 0 {
		if a.initialized && len(a.others) < maxAnnouncements {
			a.others = append(a.others, n)
		}
		return
	}
	// Kept until the client is ready: it may have asked for the lists already.
	if a.initialized {
		a.pending |= change
	}
	for s := range a.listens {
		if s.wants()&change != 0 {
			s.pending |= change
		}
	}
}

func changeOf(method string) changes {
	for _, c := range changeMethods {
		if c.method == method {
			return c.change
		}
	}
	return 0
}

// take removes what can be delivered.
func (a *announcer) take() []func() {
	a.mu.Lock()
	defer a.mu.Unlock()
	var work []func()
	if a.ready {
		for _, n := range listChanges(a.pending) {
			work = append(work, func() { a.write(n) })
		}
		for _, n := range a.others {
			work = append(work, func() { a.write(n) })
		}
		a.pending, a.others = 0, nil
	}
	for s := range a.listens {
		if !s.acknowledged {
			continue // the acknowledgement must be the first message
		}
		for _, n := range listChanges(s.pending) {
			work = append(work, func() { s.write(s.tagged(n)) })
		}
		s.pending = 0
	}
	return work
}

func listChanges(set changes) []mcp.JSONRPCNotification {
	var list []mcp.JSONRPCNotification
	for _, c := range changeMethods {
		if set&c.change != 0 {
			list = append(list, mcp.JSONRPCNotification{
				JSONRPC: mcp.JSONRPC_VERSION, Notification: mcp.Notification{Method: c.method},
			})
		}
	}
	return list
}

func (a *announcer) write(n mcp.JSONRPCNotification) {
	if line, err := marshalLine(n); err == nil {
		a.out.write(line)
	}
}

// initialize is called when an initialize request is read: a change from here on
// may be missing in the lists its sender asks for.
func (a *announcer) initialize() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.initialized = true
}

// open is called when the client said that it is initialized.
func (a *announcer) open() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = true
	a.signal()
}

func (a *announcer) add(s *callSession) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listens[s] = struct{}{}
}

// acknowledge is called when the acknowledgement, the first message of a
// subscription, has been written.
func (a *announcer) acknowledge(s *callSession) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.acknowledged = true
	a.signal()
}

func (a *announcer) remove(s *callSession) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.listens, s)
}

func (a *announcer) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// wants is the set of list changes the subscription asked for and got.
func (s *callSession) wants() changes {
	filter, _ := s.SubscriptionFilter()
	var set changes
	if filter.ToolsListChanged {
		set |= toolsChanged
	}
	if filter.PromptsListChanged {
		set |= promptsChanged
	}
	if filter.ResourcesListChanged {
		set |= resourcesChanged
	}
	return set
}
