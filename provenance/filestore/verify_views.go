package filestore

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// viewCheck compares a view with the events, without keeping either in memory.
type viewCheck struct {
	name string
	file *os.File // nil if there is none; the same file even if it is replaced meanwhile
	rows int      // that the file has; -1 if it is not a view

	prefix viewPoint // where the events made that many rows
	whole  viewPoint // at the end of the record
	next   uint64    // the first event whose row is not in the file; 0 for none
}

// viewPoint is a view as it was at some event.
type viewPoint struct {
	frame *cfharness.Frame // nil if it did not exist
	end   int64            // of the record
}

func (c *viewCheck) close() error {
	if c.file == nil {
		return nil
	}
	return c.file.Close()
}

func (v *verifier) openView(name string) (*viewCheck, error) {
	c := &viewCheck{name: name}
	f, err := openRegular(v.dir, name)
	switch {
	case errors.Is(err, provenance.ErrNotFound):
		return c, nil
	case errors.Is(err, fsys.ErrNotRegular):
		return nil, difference(name, 1, "not a regular file")
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	c.file, c.rows = f, countRows(bufio.NewReader(f))
	return c, nil
}

// countRows returns how many rows a view has, or -1 if it is not a JSON object.
func countRows(r io.Reader) int {
	dec := json.NewDecoder(r)
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return -1
	}
	rows := 0
	for dec.More() {
		if _, err := dec.Token(); err != nil {
			return -1
		}
		t, err := dec.Token()
		if t == json.Delim('{') {
			err = skipObject(dec)
		}
		if err != nil {
			return -1
		}
		if t != json.Delim('[') {
			continue
		}
		for ; dec.More(); rows++ {
			var row json.RawMessage
			if dec.Decode(&row) != nil {
				return -1
			}
		}
		if _, err := dec.Token(); err != nil {
			return -1
		}
	}
	if _, err := dec.Token(); err != nil {
		return -1
	}
	return rows
}

// skipObject reads the rest of an object.
func skipObject(dec *json.Decoder) error {
	for depth := 1; depth > 0; {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	return nil
}

// follow notes the view as it is after event seq, which ends at offset of the record.
func (c *viewCheck) follow(heads *cfharness.Heads, seq uint64, offset int64) (err error) {
	n := heads.Rows(c.name)
	if n > max(c.rows, 0) && c.next == 0 {
		c.next = seq
	}
	if n > 0 && n == c.rows && c.prefix.frame == nil {
		c.prefix.end = offset
		c.prefix.frame, err = heads.Frame(c.name)
	}
	return err
}

// finish notes the view as it is at the end of the record.
func (c *viewCheck) finish(heads *cfharness.Heads, offset int64) (err error) {
	if heads.Rows(c.name) > 0 {
		c.whole.end = offset
		c.whole.frame, err = heads.Frame(c.name)
	}
	return err
}

// checkViews compares each view with the view that the events give for the same number of rows. head is the
// number of the event in session.json.
func (v *verifier) checkViews(head uint64) error {
	differences, err := v.compare(func(c *viewCheck) viewPoint { return c.prefix })
	if err != nil {
		return err
	}
	for _, c := range v.views {
		// A view may be of an earlier moment. One that never was like this must be wrong somewhere.
		if c.file != nil && (c.prefix.frame == nil || differences[c.name] != nil) {
			return v.nameDifference(c)
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

// nameDifference returns where a view that the events never made begins to differ from the whole one.
func (v *verifier) nameDifference(c *viewCheck) error {
	differences, err := v.compare(func(other *viewCheck) viewPoint {
		if other != c {
			return viewPoint{}
		}
		return c.whole
	})
	if err != nil {
		return err
	}
	if d := differences[c.name]; d != nil {
		return d
	}
	return difference(c.name, 1, "differs from the events")
}

// compare makes the views as they were at a point of each, in one pass over the events for each list, and
// returns how the files differ from them. It skips views without a frame.
func (v *verifier) compare(point func(*viewCheck) viewPoint) (map[string]*provenance.VerifyError, error) {
	var writers []*viewWriter
	var comparers []*comparer
	var end int64
	for _, c := range v.views {
		p := point(c)
		if p.frame == nil || c.file == nil {
			continue
		}
		if _, err := c.file.Seek(0, io.SeekStart); err != nil {
			return nil, fmt.Errorf("read %s: %w", c.name, cause(err))
		}
		cmp := &comparer{r: bufio.NewReader(c.file), line: 1}
		comparers = append(comparers, cmp)
		writers = append(writers, &viewWriter{
			name: c.name, frame: p.frame, until: p.end, spans: make([]span, len(p.frame.Lists)),
			out: bufio.NewWriterSize(cmp, 64<<10),
		})
		end = max(end, p.end)
	}
	for list := range 2 {
		if err := writeLists(v.dir, writers, list, scanPoint{}, end); err != nil {
			return nil, fmt.Errorf("read %s: %w", provenance.EventsFile, err)
		}
	}
	differences := make(map[string]*provenance.VerifyError)
	for i, w := range writers {
		w.write(w.frame.Tail)
		err := w.out.Flush()
		if err == nil {
			err = comparers[i].end()
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", w.name, cause(err))
		}
		if what := comparers[i].what; what != "" {
			differences[w.name] = difference(w.name, comparers[i].line, what)
		}
	}
	return differences, nil
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
