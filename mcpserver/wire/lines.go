package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

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
