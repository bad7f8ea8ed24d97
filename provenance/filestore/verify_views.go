package filestore

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// viewCheck compares a view with the events, without keeping either in memory.
type viewCheck struct {
	name string
	file *os.File // nil if there is none; the same file even if it is replaced meanwhile
	rows int      // that the file seems to have
	next uint64   // the first event whose row is not in the file; 0 for none
	was  bool     // the events made that many rows at some point

	view *cfharness.ViewWriter // as it was there, or else at the end of the record; nil if it did not exist
	end  int64                 // of the record at that point

	comparer comparer
}

// rowStart begins each row of a view, and no other line.
const rowStart = "    {"

// openView opens a view and counts its rows. Whatever else the file holds, comparing it finds.
func (v *verifier) openView(name string) (*viewCheck, error) {
	c := &viewCheck{name: name}
	var err error
	if c.file, err = v.open(name); c.file == nil {
		return c, err
	}
	r := bufio.NewReader(c.file)
	for lineStart := true; err != io.EOF; {
		var part []byte
		part, err = r.ReadSlice('\n')
		if lineStart && bytes.HasPrefix(part, []byte(rowStart)) {
			c.rows++
		}
		if lineStart = err == nil; err != nil && err != bufio.ErrBufferFull && err != io.EOF {
			return c, fmt.Errorf("read %s: %w", name, cause(err))
		}
	}
	return c, nil
}

// follow notes the view as it is after event seq, which ends at offset of the record.
func (c *viewCheck) follow(heads *cfharness.Heads, seq uint64, offset int64) (err error) {
	n := heads.Rows(c.name)
	if n > c.rows && c.next == 0 {
		c.next = seq
	}
	if n > 0 && n == c.rows && !c.was {
		c.was, c.end = true, offset
		c.view, err = heads.Writer(c.name)
	}
	return err
}

// finish notes the view as it is at the end of the record if it never was like the file.
func (c *viewCheck) finish(heads *cfharness.Heads, offset int64) (err error) {
	if heads.Rows(c.name) > 0 && !c.was {
		c.end = offset
		c.view, err = heads.Writer(c.name)
	}
	return err
}

// checkViews compares each view with the view that the events give for the same number of rows. head is the
// number of the event in session.json.
func (v *verifier) checkViews(head uint64) error {
	if err := v.compareViews(); err != nil {
		return err
	}
	for _, c := range v.views {
		// A view may be of an earlier moment. One that never was like this must be wrong somewhere.
		if c.file != nil && (c.comparer.what != "" || !c.was) {
			return difference(c.name, max(c.comparer.line, 1),
				cmp.Or(c.comparer.what, "differs from the events"))
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

// compareViews makes the views again, in one pass over the events for each list, and compares the files with
// them.
func (v *verifier) compareViews() error {
	var writers []*viewWriter
	var end int64
	for _, c := range v.views {
		if c.view == nil || c.file == nil {
			continue
		}
		if _, err := c.file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("read %s: %w", c.name, cause(err))
		}
		c.comparer = comparer{r: bufio.NewReader(c.file), line: 1}
		c.view.Reset(&c.comparer)
		writers = append(writers, &viewWriter{ViewWriter: c.view, until: c.end})
		end = max(end, c.end)
	}
	for list := range 2 {
		if err := writeLists(v.dir, writers, list, scanPoint{}, end); err != nil {
			return fmt.Errorf("read %s: %w", provenance.EventsFile, err)
		}
	}
	for _, c := range v.views {
		if c.view == nil || c.file == nil {
			continue
		}
		if err := errors.Join(c.view.Close(), c.comparer.end()); err != nil {
			return fmt.Errorf("read %s: %w", c.name, cause(err))
		}
	}
	return nil
}

// comparer compares a file with the bytes that are written to it.
type comparer struct {
	r    *bufio.Reader
	line int    // of the first difference, or of the next byte
	what string // the first difference; empty if there is none yet
	buf  []byte
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
