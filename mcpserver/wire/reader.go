package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// read handles lines until the input ends or the client stops reading.
func (c *conn) read() error {
	for {
		line, err := c.lines.next()
		switch {
		case errors.Is(err, errLineTooLong):
			c.refuse(nil, invalidRequest("message too long"))
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrClosed), errors.Is(err, io.ErrClosedPipe):
			return nil
		case err != nil:
			return fmt.Errorf("read message: %w", err)
		case skipSpace(line, 0) == len(line):
		default:
			m, err := parse(line)
			switch {
			case err != nil:
				c.refuse(m.id, err)
			case m.kind == response:
				c.asks.route(m)
			case m.kind == notification:
				c.notice(m)
			default:
				c.request(m)
			}
		}
		select {
		case <-c.out.failed:
			return writeError(c.out.err)
		default:
		}
	}
}

func (c *conn) notice(m *message) {
	switch m.method {
	case string(mcp.MethodNotificationCancelled):
		if id := canceledID(m.params); id != nil {
			c.calls.cancel(idKey(id))
		}
		return
	case string(mcp.MethodNotificationInitialized):
		c.announcer.open()
	}
	select {
	case c.notices <- m:
	default:
		c.dropped++
		// A client that sends too many must not fill the log as well, so most are only counted.
		if c.dropped <= 3 || c.dropped&(c.dropped-1) == 0 {
			c.dispatcher.logger().WarnContext(c.base, "notification dropped",
				slog.String("method", m.method), slog.Int("dropped", c.dropped))
		}
	}
}

// canceledID returns the id of the request that a cancellation names, nil if it names none or could
// name two.
func canceledID(params json.RawMessage) json.RawMessage {
	members, err := Members(params)
	if err != nil {
		return nil
	}
	for _, m := range members {
		if m.Key == "requestId" && validID(m.Value) {
			return m.Value
		}
	}
	return nil
}

// request registers one call before anything else is read and starts it.
func (c *conn) request(m *message) {
	call := &call{
		msg: m, key: idKey(m.id), wait: c.barrier,
		listen: m.method == string(mcp.MethodSubscriptionsListen),
		ping:   m.method == string(mcp.MethodPing),
	}
	call.ctx, call.cancel = context.WithCancelCause(c.base)
	call.session = newCallSession(call.ctx, c.session, m, c.out, c.announcer, c.asks)
	if m.method == string(mcp.MethodInitialize) {
		call.release = make(chan struct{})
	}
	// From here on a cancellation on the next line finds the call.
	if ok, err := c.calls.add(call); !ok {
		call.cancel(nil)
		if err != nil {
			c.refuse(m.id, err)
		}
		return
	}
	if call.ping {
		c.run(call) // at once, even if no slot is free
		return
	}
	if call.release != nil {
		// The requests after the handshake depend on its results, such as the revision.
		c.barrier = call.release
		c.announcer.initialize()
	}
	c.start(call)
}

// start runs call on a goroutine that has run calls before when one is idle: the
// library needs a deep stack, and growing it costs as much as a small call.
func (c *conn) start(first *call) {
	select {
	case c.work <- first:
		return
	default:
	}
	go func() {
		for call := first; ; {
			c.serve(call)
			if c.idle.Add(1) > maxIdle {
				c.idle.Add(-1)
				return
			}
			select {
			case call = <-c.work:
				c.idle.Add(-1)
			case <-c.base.Done():
				return
			}
		}
	}()
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
	c.run(call)
	call.session.yield()
}

// run answers one call. The notifications it sent come first, and a call the
// client cancelled meanwhile gets no answer.
func (c *conn) run(call *call) {
	if call.release != nil {
		defer close(call.release)
	}
	defer c.calls.leave(call)
	ctx := c.requestContext(call.ctx, call.session)
	answer := c.dispatcher.answer(ctx, call.msg, c.dispatcher.respond)
	call.session.finish()
	c.out.writeIf(answer, func() bool { return c.calls.settle(call) })
}
