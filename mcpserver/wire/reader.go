package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/admit"
)

// worker reads when it holds the turn, and serves the call that it read while another worker reads on.
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
		// Handing the call over would wait for a processor to wake, and a new goroutine would have to grow
		// the deep stack that decoders need. Either takes as long as a small call.
		c.serve(call)
	}
}

// read handles lines until the input ends or the client stops reading. It returns a call that the caller
// serves while another worker reads on.
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
					// All workers are busy.
					default:
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

// notice handles a notification of the client; all but these two are ignored.
func (c *conn) notice(m *message) {
	switch m.method {
	case string(mcp.MethodNotificationCancelled):
		c.calls.cancel(m)
	case string(mcp.MethodNotificationInitialized):
		c.legacy.open()
	}
}

// request registers a call before the next line is read, and returns it if the caller still has to serve it.
func (c *conn) request(m *message) *call {
	call := newCall(m)
	call.wait = c.barrier
	call.ctx, call.cancel = context.WithCancelCause(c.base)
	call.session = newCallSession(c.hangUp, c.session, m, c.out, c.audience)
	if m.method == string(mcp.MethodInitialize) {
		call.release = make(chan struct{})
	}
	// From here on a cancellation on the next line finds the call.
	if ok, err := call.session.admission.join(c.calls, call); !ok {
		call.cancel(nil)
		if err != nil {
			c.refuse(m.id, err)
		}
		return nil
	}
	if call.ping {
		// It runs at once, even without a free slot.
		c.run(call)
		return nil
	}
	if call.release != nil {
		// Requests after the handshake depend on its results, such as the revision.
		c.barrier = call.release
		// A list that the client requests from here on may lack a change that happens later.
		c.audience.add(c.legacy)
	}
	return call
}

// serve runs one call when a slot is free.
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
	a := call.session.admission
	defer a.release()
	a.slot = c.slots.Wait(call.ctx, "", 1, math.MaxInt64, nil)
	if a.slot == nil {
		return
	}
	a.decoding = c.decoding.Wait(call.ctx, "", len(call.msg.raw), math.MaxInt64, nil)
	if a.decoding == nil {
		return
	}
	a.memory = admit.NewLedger(c.memory, "", holdingPatience)
	c.run(call)
}

// run answers one call, after the notifications that it sent. A call that the client cancelled gets no
// answer.
func (c *conn) run(call *call) {
	if call.release != nil {
		defer close(call.release)
	}
	defer call.session.admission.release()
	answer := c.dispatcher.answer(call.ctx, call.session)
	call.session.finish()
	if call.listen && errors.Is(context.Cause(call.ctx), ErrDisconnected) {
		c.out.hungUp(call.msg.id)
	}
	c.out.writeIf(answer, func() bool { return c.calls.settle(call) })
}
