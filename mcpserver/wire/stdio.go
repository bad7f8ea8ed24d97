package wire

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

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
	c.legacy = newAnnouncer(d.changes(context.WithValue(c.base, sessionKey{}, c.session)))
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
			call := c.receive(line)
			if call == nil {
				break
			}
			select {
			case c.turn <- struct{}{}:
				return call, nil
			// All workers are busy.
			default:
				go c.serve(call)
			}
		}
		select {
		case <-c.out.failed:
			return nil, writeError(c.out.err)
		default:
		}
	}
}

// receive handles one message of the client. It returns a call that still has to be served, or nil.
func (c *conn) receive(line []byte) *call {
	m, err := parse(line)
	switch {
	case err != nil:
		c.refuse(m.id, err)
	case m.kind == response:
		c.session.asks.route(m)
	case m.kind == notification:
		c.notice(m)
	default:
		return c.request(m)
	}
	return nil
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
	call := newCall(c.base, c.session, m, &admission{
		memory: admit.Ledger{Memory: c.memory, Patience: holdingPatience}})
	call.out, call.audience, call.hangUp, call.wait = c.out, c.audience, c.hangUp, c.barrier
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
		c.serve(call)
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

// serve answers one call when a slot is free, after the notifications that it sent. A call that the client
// cancelled gets no answer.
func (c *conn) serve(call *call) {
	a := call.admission
	if call.release != nil {
		defer close(call.release)
	}
	defer a.release()
	// A ping runs at once, even without a free slot.
	if call.wait != nil && !call.ping {
		select {
		case <-call.wait:
		case <-call.ctx.Done():
		}
	}
	if !call.ping && !call.listen && call.release == nil {
		a.slot = c.slots.Wait(call.ctx, "", 1, math.MaxInt64, nil)
		if a.slot == nil {
			return
		}
		a.decoding = c.decoding.Wait(call.ctx, "", len(call.msg.raw), math.MaxInt64, nil)
		if a.decoding == nil {
			return
		}
	}

	result, failure := c.dispatcher.respond(call.ctx, call, nil)
	answer := c.dispatcher.encode(call.ctx, call.msg, result, failure)
	call.finish()
	if call.listen && errors.Is(context.Cause(call.ctx), ErrDisconnected) {
		c.out.hungUp(call.msg.id)
	}
	c.out.writeIf(answer, func() bool { return c.calls.settle(call) })
}

var errLineTooLong = errors.New("line too long")

const readBuffer = 64 << 10

// lineReader splits its input into lines of at most max bytes. It skips longer lines without storing them.
type lineReader struct {
	in      *bufio.Reader
	max     int
	started bool
	err     error
}

func newLineReader(in io.Reader, limit int) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(in, readBuffer), max: limit}
}

// next returns one line without its newline; the caller owns it. The last line may lack a newline. It returns
// errLineTooLong for a skipped line, and the input's error, including io.EOF, after the last line.
func (r *lineReader) next() ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	var line []byte
	size := 0
	for {
		part, err := r.in.ReadSlice('\n')
		size += len(part)
		if err == nil {
			part, size = part[:len(part)-1], size-1
		}
		if size <= r.max {
			if len(line)+len(part) > cap(line) {
				// Smaller steps would take several times the memory of a long line.
				line = slices.Grow(line, max(len(line), len(part)))
			}
			line = append(line, part...)
		} else {
			line = nil
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		r.err = err
		break
	}
	switch {
	case size > r.max:
		return nil, errLineTooLong
	case size == 0 && r.err != nil:
		return nil, r.err
	}
	if !r.started {
		r.started = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	return line, nil
}

// lineWriter writes whole lines, each with one Write. It is safe for concurrent use. After a failed Write it
// discards everything.
type lineWriter struct {
	out    io.Writer
	lock   chan struct{} // a mutex; a waiting writer can give up
	failed chan struct{} // closed after err is set
	err    error
	closed chan struct{}

	retired sync.Once
}

func newLineWriter(out io.Writer) *lineWriter {
	return &lineWriter{
		out: out, lock: make(chan struct{}, 1), failed: make(chan struct{}), closed: make(chan struct{}),
	}
}

// write writes line and a newline. It may use the spare capacity of line.
func (w *lineWriter) write(line []byte) {
	w.writeIf(line, func() bool { return true })
}

// writeIf is write if wanted returns true when the lock is held.
func (w *lineWriter) writeIf(line []byte, wanted func() bool) {
	line = append(line, '\n')
	select {
	case w.lock <- struct{}{}:
	case <-w.closed:
		return
	}
	defer func() { <-w.lock }()
	// Both channels may have been closed while this line waited.
	select {
	case <-w.closed:
		return
	case <-w.failed:
		return
	default:
	}
	if !wanted() {
		return
	}
	if _, err := w.out.Write(line); err != nil {
		w.err = err
		close(w.failed)
	}
}

func (w *lineWriter) notify(n mcp.JSONRPCNotification) {
	if line, err := marshalLine(n); err == nil {
		w.write(line)
	}
}

// hungUp announces the end of a subscription, before its result.
func (w *lineWriter) hungUp(id json.RawMessage) {
	// The specification requires the notification in one place and the result in another.
	w.notify(mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION, Notification: mcp.Notification{
		Method: string(mcp.MethodNotificationCancelled),
		Params: mcp.NotificationParams{AdditionalFields: map[string]any{
			"requestId": id, "reason": "the server ends",
		}},
	}})
}

// handOver calls write, which writes to the underlying writer, while no line is written. If write returns
// true, nothing is written after it.
func (w *lineWriter) handOver(write func() bool) {
	w.lock <- struct{}{}
	// The value is also used if write panics.
	written := true
	defer func() {
		if written {
			w.retired.Do(w.close)
		} else {
			<-w.lock
		}
	}()
	written = write()
}

// close makes every later write a no-op. It does not wait for a Write that is blocked on a client that does
// not read.
func (w *lineWriter) close() { close(w.closed) }

// retire ends all writing and waits for a write under way.
func (w *lineWriter) retire() {
	w.retired.Do(func() {
		w.close()
		// A response must not be touched after its handler has returned (net/http.Handler).
		w.lock <- struct{}{}
	})
}
