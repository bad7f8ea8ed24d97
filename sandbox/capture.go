package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"unicode/utf8"
)

// outputFactor is how many times its limit a stream may have before its run is ended.
const outputFactor = 64

// Capture keeps the first two thirds and the last third of a stream's limit, in bytes, and computes the size
// and hash of the whole stream. It is not safe for concurrent use.
type Capture struct {
	limit   int64
	headCap int
	head    []byte
	tail    []byte // a ring buffer once it is full
	next    int    // next position in the ring
	total   int64
	sum     hash.Hash
	live    io.Writer // nil for none
}

// NewCapture returns a capture that keeps limit bytes; limit must be positive. Everything written to it is
// also written to live, which may be nil.
func NewCapture(limit int64, live io.Writer) *Capture {
	return &Capture{limit: limit, headCap: int(limit - limit/3), sum: sha256.New(), live: live}
}

// Write adds the next bytes of the stream. It never fails.
func (c *Capture) Write(p []byte) (int, error) {
	written := len(p)
	if c.live != nil && written > 0 {
		// The result is complete without the copy, so its error must not end the run.
		_, _ = c.live.Write(p)
	}
	c.total += int64(len(p))
	c.sum.Write(p)
	if n := min(c.headCap-len(c.head), len(p)); n > 0 {
		c.head = append(c.head, p[:n]...)
		p = p[n:]
	}
	size := int(c.limit) - c.headCap
	if len(p) > size {
		p = p[len(p)-size:]
	}
	if n := min(size-len(c.tail), len(p)); n > 0 {
		c.tail = append(c.tail, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 {
		n := copy(c.tail[c.next:], p)
		c.next = (c.next + n) % size
		p = p[n:]
	}
	return written, nil
}

// Drain reads a pipe until its end. After the pipe's deadline, it reads the bytes that are still in it.
// Beyond 64 times the capture's limit it stops and calls end with [OutputLimit].
func (c *Capture) Drain(pipe *os.File, end func(Outcome)) {
	buf := make([]byte, 32<<10)
	for {
		n, err := pipe.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			n, err = readNow(pipe, buf)
		}
		_, _ = c.Write(buf[:max(n, 0)])
		// The product could overflow.
		if (c.total-1)/outputFactor >= c.limit {
			end(OutputLimit)
			return
		}
		if err != nil {
			return
		}
	}
}

// Stream returns the captured stream for a [Result].
func (c *Capture) Stream() Stream {
	s := Stream{
		Total:     c.total,
		Truncated: c.total > c.limit,
		SHA256:    "sha256:" + hex.EncodeToString(c.sum.Sum(nil)),
	}
	tail := append(c.tail[c.next:len(c.tail):len(c.tail)], c.tail[:c.next]...)
	if !s.Truncated {
		s.Head = append(c.head, tail...)
		return s
	}
	s.Head, s.Tail = cutEnd(c.head), cutStart(tail)
	return s
}

// cutEnd removes an incomplete character from the end of b.
func cutEnd(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// cutStart removes the rest of a character from the start of b.
func cutStart(b []byte) []byte {
	for i := 0; i < utf8.UTFMax && i < len(b); i++ {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}
