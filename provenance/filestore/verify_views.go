package filestore

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// viewCheck compares a view with the events as they are read, without keeping either in memory.
type viewCheck struct {
	name  string
	file  *os.File // nil if there is none; the same file even if it is replaced meanwhile
	rows  int      // that the file seems to have
	next  uint64   // the first event whose row is not in the file; 0 for none
	was   bool     // the events made that many rows at some point
	parts [][]byte // around the lists, as they were there, or else at the end of the record

	lists []cfharness.RowList
	found []*comparer // of the rows of each list that the file seems to have
	row   []byte
}

// rowStart begins each row of a view, and no other line.
const rowStart = "    {"

// openView opens a view, finds its lists and counts its rows. Whatever else the file holds, comparing it
// finds.
func (v *verifier) openView(name string) (*viewCheck, error) {
	c := &viewCheck{name: name, lists: cfharness.RowLists(name)}
	var err error
	c.file, err = v.open(name)
	if c.file == nil {
		return c, err
	}
	r := bufio.NewReaderSize(c.file, 64<<10)
	at, line := int64(0), 1
	for lineStart := true; err != io.EOF; {
		var part []byte
		part, err = r.ReadSlice('\n')
		switch {
		case !lineStart:
		case bytes.HasPrefix(part, []byte(rowStart)):
			c.rows++
		case len(c.found) < len(c.lists) && bytes.HasPrefix(part, []byte(c.lists[len(c.found)].Start)):
			start := at + int64(len(c.lists[len(c.found)].Start))
			c.found = append(c.found, newComparer(c.file, start, line))
		}
		at += int64(len(part))
		lineStart = err == nil
		if lineStart {
			line++
		} else if err != bufio.ErrBufferFull && err != io.EOF {
			return c, fmt.Errorf("read %s: %w", name, cause(err))
		}
	}
	return c, nil
}

// follow compares the rows that an event adds, up to the event after which the view had as many as the file.
func (c *viewCheck) follow(heads *cfharness.Heads, e *provenance.Event) (err error) {
	for i := 0; i < len(c.found) && !c.was; i++ {
		c.row, err = c.lists[i].Append(c.row[:0], e)
		if err != nil {
			return fmt.Errorf("read %s: %w", c.name, cause(err))
		}
		if len(c.row) > 0 {
			err = c.found[i].addRow(c.row)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", c.name, cause(err))
		}
	}
	n := heads.Rows(c.name)
	if n > c.rows && c.next == 0 {
		c.next = e.Seq
	}
	if n > 0 && n == c.rows && !c.was {
		c.was = true
		return c.takeParts(heads)
	}
	return nil
}

func (c *viewCheck) takeParts(heads *cfharness.Heads) error {
	view, err := heads.Writer(c.name)
	if err != nil {
		return err
	}
	c.parts = view.Parts()
	return err
}

// finish compares what is around the lists, and returns the first difference.
func (c *viewCheck) finish(heads *cfharness.Heads) (first *comparer, err error) {
	if heads.Rows(c.name) > 0 && !c.was {
		if err := c.takeParts(heads); err != nil {
			return nil, err
		}
	}
	at := newComparer(c.file, 0, 1)
	for i, part := range c.parts {
		if i > 0 && at.rows > 0 {
			part = append([]byte("\n  "), part...)
		}
		_, err = at.Write(part)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", c.name, cause(err))
		}
		if i == len(c.parts)-1 {
			err = at.end()
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", c.name, cause(err))
		}
		if at.what != "" || i == len(c.parts)-1 {
			break
		}
		if i >= len(c.found) { // the file was changed since it was opened
			at.what = "differs from the events"
			break
		}
		// The list begins where it was found: otherwise the part before it would differ.
		at = c.found[i]
	}
	return at, nil
}

// checkViews says what is wrong with the views. head is the number of the event in session.json.
func (v *verifier) checkViews(heads *cfharness.Heads, head uint64) error {
	for _, c := range v.views {
		var at comparer
		if c.file != nil {
			found, err := c.finish(heads)
			if err != nil {
				return err
			}
			at = *found
		}
		// A view may be of an earlier moment. One that never was like this must be wrong somewhere.
		if c.file != nil && (at.what != "" || !c.was) {
			line := at.line
			if at.what == "" {
				line = 1
			}
			return difference(c.name, line, cmp.Or(at.what, "differs from the events"))
		}
		// Views are written before session.json, so none may lack a row of an event up to head.
		switch older := c.next > 0 && c.next <= head; {
		case older && c.file == nil:
			return difference(c.name, 1, "missing")
		case older:
			return difference(c.name, 1,
				fmt.Sprintf("older than %s: event %d is not in it", provenance.SessionFile, c.next))
		case c.next > 0:
			v.report.Stale = append(v.report.Stale, c.name)
		}
		if c.file != nil {
			v.report.Files++
		}
	}
	return nil
}

// comparer compares a file with the bytes that are written to it.
type comparer struct {
	r    *bufio.Reader
	rows int    // that were added
	line int    // of the first difference, or of the next byte
	what string // the first difference; empty if there is none yet
	buf  []byte
}

// newComparer returns a comparer of a file from an offset on, which is in a line.
func newComparer(f io.ReaderAt, offset int64, line int) *comparer {
	r := io.NewSectionReader(f, offset, math.MaxInt64-offset)
	return &comparer{r: bufio.NewReaderSize(r, 64<<10), line: line}
}

// addRow compares the next row of a list.
func (c *comparer) addRow(row []byte) (err error) {
	c.rows++
	if c.rows > 1 {
		_, err = c.Write([]byte{','})
	}
	if err != nil {
		return err
	}
	_, err = c.Write(row)
	return err
}

// Write compares p with the next bytes of the file.
func (c *comparer) Write(p []byte) (int, error) {
	if c.what != "" {
		return len(p), nil
	}
	if len(c.buf) < len(p) {
		c.buf = make([]byte, len(p))
	}
	n, err := io.ReadFull(c.r, c.buf[:len(p)])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, err
	}
	if n == len(p) && bytes.Equal(c.buf[:n], p) {
		c.line += bytes.Count(p, []byte("\n"))
		return n, nil
	}
	same := 0
	for same < n && c.buf[same] == p[same] {
		same++
	}
	c.line += bytes.Count(p[:same], []byte("\n"))
	switch {
	case same < n:
		c.what = "differs from the events"
	case n < len(p):
		c.what = "cut short"
	}
	return len(p), nil
}

// end checks that the file ends where the written bytes end.
func (c *comparer) end() error {
	if c.what != "" {
		return nil
	}
	_, err := c.r.ReadByte()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		c.what = "differs from the events"
	}
	return err
}
