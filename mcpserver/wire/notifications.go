package wire

import (
	"context"
	"errors"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

const notificationRoom = 64

// notifications is a queue: deliver is called with each notification in order, on one goroutine.
type notifications struct {
	deliver func(mcp.JSONRPCNotification)

	mu      sync.Mutex
	ch      chan mcp.JSONRPCNotification // nil until used
	sending sync.WaitGroup
	closed  bool
	stopped chan struct{}
}

func newNotifications(deliver func(mcp.JSONRPCNotification)) *notifications {
	return &notifications{deliver: deliver}
}

var errAnswered = errors.New("the request is answered")

// send waits for room until ctx ends.
func (q *notifications) send(ctx context.Context, n mcp.JSONRPCNotification) error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return errAnswered
	}
	if q.ch == nil {
		q.ch, q.stopped = make(chan mcp.JSONRPCNotification, notificationRoom), make(chan struct{})
		go func() {
			defer close(q.stopped)
			for n := range q.ch {
				q.deliver(n)
			}
		}()
	}
	q.sending.Add(1)
	q.mu.Unlock()
	defer q.sending.Done()
	select {
	case q.ch <- n:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close waits until all sent notifications are delivered.
func (q *notifications) close() {
	q.mu.Lock()
	running := q.ch != nil && !q.closed
	q.closed = true
	q.mu.Unlock()
	if running {
		q.sending.Wait()
		close(q.ch)
		<-q.stopped
	}
}
