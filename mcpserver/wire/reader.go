package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// worker reads when it is its turn, and serves the call that it read while another worker reads on. To hand
// over the call instead would have it wait until a processor wakes, and a new goroutine would have to grow
// its stack, which decoders need deep: either takes as long as a small call.
func (c *conn) worker() {
	for {
		select {
		case <-c.turn:
		case <-c.base.Done():
			return
		}
		call, err := c.read()
		if call == nil {
			c.ended <- err
			return
		}
		c.serve(call)
	}
}

// read handles lines until the input ends or the client stops reading. It returns a call that is to be served
// by the caller if another worker reads on.
func (c *conn) read() (*call, error) {
	for {
		line, err := c.lines.next()
		switch {
		case errors.Is(err, errLineTooLong):
			c.refuse(nil, invalidRequest("message too long"))
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrClosed), errors.Is(err, io.ErrClosedPipe):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("read message: %w", err)
		case skipSpace(line, 0) == len(line):
		default:
			m, err := parse(line)
			switch {
			case err != nil:
				c.refuse(m.id, err)
			case m.kind == response:
				c.session.asks.route(m)
			case m.kind == notification:
				c.notice(m)
			default:
				if call := c.request(m); call != nil {
					select {
					case c.turn <- struct{}{}:
						return call, nil
					default: // all workers are busy
						go c.serve(call)
					}
				}
			}
		}
		select {
		case <-c.out.failed:
			return nil, writeError(c.out.err)
		default:
		}
	}
}

// notice takes a notification of the client; others than these two mean nothing here.
func (c *conn) notice(m *message) {
	switch m.method {
	case string(mcp.MethodNotificationCancelled):
		c.calls.cancel(m)
	case string(mcp.MethodNotificationInitialized):
		c.legacy.open()
	}
}

// request registers one call before anything else is read, and returns it if it is still to be served.
func (c *conn) request(m *message) *call {
	call := &call{
		msg: m, key: idKey(m.id), wait: c.barrier,
		listen: m.method == string(mcp.MethodSubscriptionsListen),
		ping:   m.method == string(mcp.MethodPing),
	}
	call.ctx, call.cancel = context.WithCancelCause(c.base)
	call.session = newCallSession(c.hangUp, c.session, m, c.out, c.audience)
	if m.method == string(mcp.MethodInitialize) {
		call.release = make(chan struct{})
	}
	// From here on a cancellation on the next line finds the call.
	if ok, err := c.calls.add(call); !ok {
		call.cancel(nil)
		if err != nil {
			c.refuse(m.id, err)
		}
		return nil
	}
	if call.ping {
		c.run(call) // at once, even if no slot is free
		return nil
	}
	if call.release != nil {
		// The requests after the handshake depend on its results, such as the revision.
		c.barrier = call.release
		// A change from here on may be missing in the lists that its sender asks for.
		c.audience.add(c.legacy)
	}
	return call
}

// serve runs one call when it is its turn.
func (c *conn) serve(call *call) {
	if call.wait != nil {
		select {
		case <-call.wait:
		case <-call.ctx.Done():
		}
	}
	if call.listen || call.release != nil {
		c.run(call)
		return
	}
	select {
	case c.slots <- struct{}{}:
	default:
		// One select alone would choose at random between a free slot and the end of the call.
		select {
		case c.slots <- struct{}{}:
		case <-call.ctx.Done():
			c.calls.leave(call)
			return
		}
	}
	call.session.yield = sync.OnceValue(func() bool { <-c.slots; return true })
	defer call.session.yield()
	size := len(call.msg.raw)
	if !c.decoding.wait(call.ctx, "", size, math.MaxInt64) {
		c.calls.leave(call)
		return
	}
	call.session.decoded = sync.OnceValue(func() bool { c.decoding.leave("", size); return true })
	defer call.session.decoded()
	call.session.ledger = &ledger{memory: c.memory}
	defer call.session.ledger.close()
	c.run(call)
}

// run answers one call. The notifications it sent come first, and a call the client cancelled meanwhile
// gets no answer.
func (c *conn) run(call *call) {
	if call.release != nil {
		defer close(call.release)
	}
	defer c.calls.leave(call)
	answer := c.dispatcher.answer(call.ctx, call.session)
	call.session.finish()
	if call.listen && errors.Is(context.Cause(call.ctx), ErrDisconnected) {
		c.out.hungUp(call.msg.id)
	}
	c.out.writeIf(answer, func() bool { return c.calls.settle(call) })
}
