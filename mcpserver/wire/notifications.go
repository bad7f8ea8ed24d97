package wire

import (
	"context"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

const notificationRoom = 64

// notifications makes a reliable queue of the channel mcp-go sends notifications on. mcp-go asks for the
// channel before each send and drops what does not fit; room therefore waits until there is space for several
// senders. Each notification is given to deliver in order, on one goroutine.
type notifications struct {
	done    <-chan struct{} // whoever waits for room gives up
	deliver func(mcp.JSONRPCNotification)
	space   chan struct{}
	stop    chan struct{}

	mu      sync.Mutex
	ch      chan mcp.JSONRPCNotification // nil until used
	closed  bool
	stopped chan struct{}
}

func newNotifications(ctx context.Context, deliver func(mcp.JSONRPCNotification)) *notifications {
	return &notifications{done: ctx.Done(), deliver: deliver}
}

// room returns the channel to send one notification on, nil after close.
func (q *notifications) room() chan<- mcp.JSONRPCNotification {
	ch := q.open()
	if len(ch) <= notificationRoom/2 {
		return ch
	}
	// One wake-up may follow many deliveries: pass it to the next sender.
	defer q.signal()
	for len(ch) > notificationRoom/2 {
		select {
		case <-q.space:
		case <-q.done:
			return ch
		}
	}
	return ch
}

func (q *notifications) open() chan mcp.JSONRPCNotification {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil
	}
	if q.ch == nil {
		q.ch = make(chan mcp.JSONRPCNotification, notificationRoom)
		q.space = make(chan struct{}, 1)
		q.stop = make(chan struct{})
		q.stopped = make(chan struct{})
		go q.pump()
	}
	return q.ch
}

func (q *notifications) pump() {
	defer close(q.stopped)
	for {
		select {
		case n := <-q.ch:
			q.deliver(n)
			q.signal()
		case <-q.stop:
			for {
				select {
				case n := <-q.ch:
					q.deliver(n)
				default:
					return
				}
			}
		}
	}
}

func (q *notifications) signal() {
	select {
	case q.space <- struct{}{}:
	default:
	}
}

// close delivers what was sent and waits for it.
func (q *notifications) close() {
	q.mu.Lock()
	running := q.ch != nil && !q.closed
	q.closed = true
	q.mu.Unlock()
	if running {
		close(q.stop)
		<-q.stopped
	}
}
