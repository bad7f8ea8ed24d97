package wire

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/skillsd/skillsd/mcpserver/admit"
)

const (
	waitingPerSlot = 16  // waiting requests per running one
	maxListens     = 256 // open subscriptions
	workers        = 3   // take turns to read and answer; more would run on cold stacks
	graceFraction  = 10  // fraction of Drain for calls to notice that they were ended
)

// StdioOptions are the parameters of ServeStdio. In and Out are required; the zero value of every other field
// is its default.
type StdioOptions struct {
	// In is read until it ends. It is not closed.
	In io.Reader
	// Out gets every message with one Write. It is not closed.
	Out io.Writer
	// Drain is how long calls may continue after the input has ended; 0 means 2 s.
	Drain time.Duration
	// MaxLine is the maximum length of a line in bytes; 0 means 8 MiB. All waiting and running requests
	// together may hold eight times as much.
	MaxLine int
	// MaxInFlight is how many requests run at a time; 0 means 64. Sixteen times as many may wait or have
	// yielded their slot; further ones are refused with CodeBusy. Pings and open subscriptions (at most 256)
	// are exempt.
	MaxInFlight int
}

// ServeStdio serves d to one client, one JSON-RPC message per line, until the input ends, ctx ends or the
// output cannot be written.
//
// # Framing
//
// Blank lines are ignored; CRLF and a last line without newline are accepted. A line that is too long is
// skipped without being stored and answered -32600, as is a batch; a line that is not JSON or not UTF-8 is
// answered -32700. No line ends the connection. Nothing but messages is written to Out.
//
// # Order
//
// Requests run concurrently; answers come in the order in which they are ready. An initialize request is
// answered before any later request starts. Notifications of a call come in order and before its answer, and
// none is lost: a call waits while the client does not read. Pings are answered at once, before the next line
// is read.
//
// # Cancellation
//
// A request can be cancelled from the moment its line is read, and then gets no answer. Its context ends with
// cause [ErrCanceled]. A request that was waiting for a free slot does not start. An initialize request
// cannot be cancelled. A request with the id of another open request is answered -32600.
//
// # End
//
// When the input or ctx ends, contexts of [KillAtEOF] and open subscriptions end at once; other calls may
// continue for Drain. Then all end with cause [ErrDisconnected] and get another tenth of Drain to notice.
// ServeStdio returns nil then, and also if the client closed its end of Out. It returns an error if In or Out
// fails in another way. (A Go program that writes to a closed standard output is ended by SIGPIPE before it
// sees an error, unless it ignores or handles that signal.) ServeStdio does not wait for a blocked Read of
// In, a blocked Write to Out or a handler that ignores its context.
func ServeStdio(ctx context.Context, d *Dispatcher, opts *StdioOptions) error {
	c := newConn(ctx, d, opts)
	defer d.join(c.audience)()
	drain := cmp.Or(opts.Drain, 2*time.Second)
	defer c.close(drain / graceFraction)
	c.workers.Go(func() { c.legacy.run(c.base.Done(), c.out, c.out.notify) })
	for range workers {
		go c.worker()
	}
	c.turn <- struct{}{}

	var err error
	select {
	case err = <-c.ended:
	case <-ctx.Done():
	case <-c.out.failed:
		err = writeError(c.out.err)
	}
	c.drain(drain)
	return err
}

// conn is one client on a pair of streams.
type conn struct {
	dispatcher *Dispatcher
	lines      *lineReader
	out        *lineWriter
	base       context.Context // has the values of ServeStdio's context, ends with the connection
	end        context.CancelCauseFunc
	hangUp     context.Context // ends with the input
	endInput   context.CancelFunc
	workers    sync.WaitGroup
	session    *session
	audience   *audience
	legacy     *announcer // for a client of the older revisions
	calls      *callTable
	slots      *admit.Quota  // of running requests
	decoding   *admit.Quota  // bytes of messages being decoded
	memory     *admit.Quota  // bytes of files and pictures
	turn       chan struct{} // makes an idle worker the reader
	ended      chan error    // error of the last reader
	barrier    chan struct{} // the last initialize request; used by the worker that reads
}

func newConn(ctx context.Context, d *Dispatcher, o *StdioOptions) *conn {
	maxLine, maxInFlight := cmp.Or(o.MaxLine, 8<<20), cmp.Or(o.MaxInFlight, 64)
	c := &conn{
		dispatcher: d,
		lines:      newLineReader(o.In, maxLine),
		out:        newLineWriter(o.Out),
		calls:      newCallTable(waitingPerSlot*maxInFlight, maxListens, 8*maxLine),
		slots:      admit.NewQuota(maxInFlight, maxInFlight),
		decoding:   newDecoding(maxLine),
		memory:     newMemory(0),
		turn:       make(chan struct{}),
		ended:      make(chan error, 1),
		audience:   newAudience(),
	}
	c.base, c.end = context.WithCancelCause(context.WithoutCancel(ctx))
	c.hangUp, c.endInput = context.WithCancel(c.base)
	c.session = &session{id: "stdio"}
	c.legacy = newAnnouncer(d.changes(withSession(c.base, c.session)))
	return c
}

// drain lets calls finish and ends those that take too long.
func (c *conn) drain(limit time.Duration) {
	// Scripts end first: the client is gone and cannot see their results.
	c.endInput()
	idle := c.calls.close()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-idle:
		return
	case <-c.out.failed:
	case <-timer.C:
	}
	c.calls.abort()
	// A handler that was ended needs a moment to write its record.
	timer.Reset(limit / graceFraction)
	select {
	case <-idle:
	case <-timer.C:
	}
}

// close ends the goroutines of the connection and waits for them, but at most grace for those blocked on a
// client that does not read.
func (c *conn) close(grace time.Duration) {
	c.out.close()
	c.end(ErrDisconnected)
	ended := make(chan struct{})
	go func() {
		c.workers.Wait()
		close(ended)
	}()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

// writeError returns nil if the client merely closed its end.
func writeError(err error) error {
	if err == nil || isClosedPipe(err) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return fmt.Errorf("write message: %w", err)
}

// refuse answers a message that starts no call.
func (c *conn) refuse(id json.RawMessage, failure *Error) {
	c.out.write(c.dispatcher.refusal(id, failure))
}
