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

// viewCheck compares a view with the events as they are read, and keeps neither in memory.
type viewCheck struct {
	name    string
	file    *os.File // nil if the view does not exist; stays open if the view is replaced meanwhile
	rows    int      // number of rows in the file, as counted by openView
	next    uint64   // the first event whose row is not in the file; 0 if all are
	matched bool     // at some event, the view had that many rows
	parts   [][]byte // the text around the lists at that event, or else at the end of the record

	lists []cfharness.RowList
	found []*comparer // for the rows of each list that openView found
	row   []byte
}

// rowStart begins each row of a view and no other line.
const rowStart = "    {"

// openView opens a view, finds its lists and counts its rows. It ignores everything else, which the
// comparison covers.
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

// follow compares the rows that an event adds, up to the event after which the view has as many rows as the
// file.
func (c *viewCheck) follow(heads *cfharness.Heads, e *provenance.Event) (err error) {
	for i := 0; i < len(c.found) && !c.matched; i++ {
		c.row, err = c.lists[i].Append(c.row[:0], e)
		if err != nil {
			return fmt.Errorf("read %s: %w", c.name, cause(err))
		}
		if len(c.row) == 0 {
			continue
		}
		if err := c.found[i].addRow(c.row); err != nil {
			return fmt.Errorf("read %s: %w", c.name, cause(err))
		}
	}
	n := heads.Rows(c.name)
	if n > c.rows && c.next == 0 {
		c.next = e.Seq
	}
	if n > 0 && n == c.rows && !c.matched {
		c.matched = true
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
	return nil
}

// finish compares the text around the lists and returns a comparer with the first difference.
func (c *viewCheck) finish(heads *cfharness.Heads) (first *comparer, err error) {
	if heads.Rows(c.name) > 0 && !c.matched {
		if err := c.takeParts(heads); err != nil {
			return nil, err
		}
	}
	at := newComparer(c.file, 0, 1)
	for i, part := range c.parts {
		if i > 0 && at.rows > 0 {
			part = append([]byte("\n  "), part...)
		}
		if _, err := at.Write(part); err != nil {
			return nil, fmt.Errorf("read %s: %w", c.name, cause(err))
		}
		if i == len(c.parts)-1 {
			if err := at.end(); err != nil {
				return nil, fmt.Errorf("read %s: %w", c.name, cause(err))
			}
			break
		}
		if at.what != "" {
			break
		}
		// The file was changed after openView read it.
		if i >= len(c.found) {
			at.what = "differs from the events"
			break
		}
		// The next list begins here: otherwise the part before it would differ.
		at = c.found[i]
	}
	return at, nil
}

// checkViews returns the first difference between the views and the events. head is the number of the event
// in session.json.
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
		// A view may lag, but one that never had these rows must differ somewhere.
		if c.file != nil && (at.what != "" || !c.matched) {
			line := at.line
			if at.what == "" {
				line = 1
			}
			return difference(c.name, line, cmp.Or(at.what, "differs from the events"))
		}
		// Views are written before session.json, so each has the rows of all events up to head.
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

// comparer compares a file with the bytes written to it.
type comparer struct {
	r    *bufio.Reader
	rows int    // number of rows added
	line int    // line of the first difference, or of the next byte
	what string // the first difference, or empty
	buf  []byte
}

// newComparer returns a comparer of a file from offset on; line is the number of the line at offset.
func newComparer(f io.ReaderAt, offset int64, line int) *comparer {
	r := io.NewSectionReader(f, offset, math.MaxInt64-offset)
	return &comparer{r: bufio.NewReaderSize(r, 64<<10), line: line}
}

// addRow compares the next row of a list.
func (c *comparer) addRow(row []byte) error {
	c.rows++
	if c.rows > 1 {
		if _, err := c.Write([]byte{','}); err != nil {
			return err
		}
	}
	_, err := c.Write(row)
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

// end checks that the file ends here.
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
