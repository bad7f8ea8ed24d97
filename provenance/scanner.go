package provenance

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/opencontainers/go-digest"
)

// ErrTorn reports a last line without its newline: the writing process was killed before it finished the
// line, so it had not acknowledged the event.
var ErrTorn = errors.New("last line is torn")

// Scanner reads the events of one session from its record. It verifies every line and its position in the
// chain. It is not safe for concurrent use.
type Scanner struct {
	// Tally is the fold of all events read.
	Tally Tally
	// Offset is the total length of the lines read, in bytes.
	Offset int64
	// Line is the number of the line of the last call of Next, from 1.
	Line int
	// Torn is the length of a torn last line, in bytes.
	Torn int64

	r *bufio.Reader
}

// NewScanner returns a Scanner that reads r. The caller must not read from r afterwards.
func NewScanner(r io.Reader) *Scanner {
	return &Scanner{r: bufio.NewReaderSize(r, 64<<10)}
}

// All yields the events up to the end or to a torn last line. An error, as returned by Next, ends the
// iteration.
func (s *Scanner) All() iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		for {
			e, err := s.Next()
			if err == io.EOF || err == ErrTorn || !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Follow yields the events of a growing record that match q, until ctx ends, or an error that ends the
// iteration. It calls seen with each event before it reads the next one.
func (s *Scanner) Follow(
	ctx context.Context, q Query, seen func(*Event), yield func(*Event, error) bool,
) {
	for e, err := range s.All() {
		if err != nil && ctx.Err() != nil {
			return
		}
		if err != nil {
			yield(nil, fmt.Errorf("session %s: %s:%d: %w", q.Session, EventsFile, s.Line, err))
			return
		}
		seen(e)
		if q.Matches(e) && !yield(e, nil) {
			return
		}
	}
}

// Next returns the next event.
//
// Errors: io.EOF at the end, ErrTorn at a torn last line, ErrCorrupt for a line that does not follow the
// previous one, or the error of the reader. An error is final.
func (s *Scanner) Next() (*Event, error) {
	s.Line++
	line, err := s.readLine()
	if err != nil {
		return nil, err
	}
	e, err := decodeLine(line[:len(line)-1])
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrCorrupt, err)
	}
	if err := s.Tally.Add(e); err != nil {
		if errors.Is(err, ErrCorrupt) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %v", ErrCorrupt, err)
	}
	s.Offset += int64(len(line))
	return e, nil
}

func (s *Scanner) readLine() ([]byte, error) {
	var line []byte
	for length := 0; ; {
		part, err := s.r.ReadSlice('\n')
		length += len(part)
		// A line that is too long is not kept. If the file ends in it, it is torn, because after a crash a
		// file may be longer than the bytes written to it.
		if len(line) <= MaxLine {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF && length > MaxLine:
			s.Torn = int64(length)
			return nil, ErrTorn
		case err == io.EOF && length > 0:
			// The last byte is not a newline. If only that byte is wrong, it was changed, since a torn line
			// lacks its end.
			if _, err := DecodeLine(line[:len(line)-1]); err == nil {
				return nil, fmt.Errorf("%w: line does not end in a newline", ErrCorrupt)
			}
			s.Torn = int64(len(line))
			return nil, ErrTorn
		case err != nil:
			return nil, err
		case length > MaxLine:
			return nil, fmt.Errorf("%w: line over %d bytes", ErrCorrupt, MaxLine)
		default:
			return line, nil
		}
	}
}

// DropDigests removes from a set of sha256 digests those that appear anywhere in the bytes of a record.
//
// Errors: the errors of r and of ctx.
func DropDigests(ctx context.Context, r io.Reader, digests map[digest.Digest]bool) error {
	const digits = 2 * sha256.Size
	in := bufio.NewReaderSize(r, 64<<10)
	var run []byte // hexadecimal digits, at most one more than in a digest
	for {
		c, err := in.ReadByte()
		if err == nil && (c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			if len(run) <= digits {
				run = append(run, c)
			}
			continue
		}
		if len(run) == digits {
			delete(digests, digest.NewDigestFromEncoded(digest.SHA256, string(run)))
		}
		run = run[:0]
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case c == '\n' && ctx.Err() != nil:
			return ctx.Err()
		}
	}
}
