package cfharness

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/skillsd/skillsd/provenance"
)

// RowList is a list of rows of a view.
type RowList struct {
	Start     string // the line before its rows
	view, key string
}

const (
	decisionsKey   = "decisions"
	invocationsKey = "cfcInvocationContexts"
)

// rowLists are the lists of all views, without Start. The lists of one view are in the order of its file.
var rowLists = [...]RowList{
	{view: provenance.ActivationsFile, key: "activations"},
	{view: provenance.ResourceReadsFile, key: "reads"},
	{view: provenance.ScriptExecutionsFile, key: "executions"},
	{view: provenance.PolicyTraceFile, key: decisionsKey},
	{view: provenance.PolicyTraceFile, key: invocationsKey},
}

// RowLists returns the lists of rows in a view, in the order of its file. The last ones may be missing in a
// file.
func RowLists(view string) (lists []RowList) {
	for _, l := range rowLists {
		if l.view == view {
			l.Start = "  \"" + l.key + "\": ["
			lists = append(lists, l)
		}
	}
	return lists
}

// row returns the row that an event adds to the list, or nil.
func (l RowList) row(e *provenance.Event) json.RawMessage {
	switch {
	case l.key == decisionsKey:
		return e.Decision
	case l.key == invocationsKey:
		return e.Invocation
	case l.view == e.Kind.Facts().View:
		return e.Row
	}
	return nil
}

// Append appends the row that an event adds to the list, if any, in the form of the view without the
// preceding comma.
//
// Errors: ErrInvalid if the row is not JSON.
func (l RowList) Append(dst []byte, e *provenance.Event) ([]byte, error) {
	row := l.row(e)
	if len(row) == 0 {
		return dst, nil
	}
	dst = append(dst, "\n    "...)
	if dst, sure := provenance.AppendIndented(dst, row, "    ", "  "); sure {
		return dst, nil
	}
	buf := bytes.NewBuffer(dst)
	if err := json.Indent(buf, bytes.TrimSpace(row), "    ", "  "); err != nil {
		return dst, fmt.Errorf("%w: row: %v", provenance.ErrInvalid, err)
	}
	return buf.Bytes(), nil
}

// Heads folds events into the parts of each view other than its rows. Its size does not grow with the number
// of events. The zero Heads is ready to use; it is not safe for concurrent use.
type Heads struct {
	session string
	info    provenance.SessionInfo
	views   [4]viewHead // in the order of ViewNames
}

// viewHead holds the parts of a view other than its rows.
type viewHead struct {
	rows   int // in all lists
	at     time.Time
	info   provenance.SessionInfo
	counts DecisionCounts
	calls  int // invocation contexts
}

// Add folds e. It does not check the position of e in the chain. It accepts every event that a Tally accepts.
//
// Errors: ErrInvalid if the Row or the Decision of e is not valid in a view. The fold is then unchanged.
func (h *Heads) Add(e *provenance.Event) error {
	info, err := e.SessionInfo()
	if err != nil {
		return err
	}
	decision, err := e.Decided()
	if err != nil {
		return err
	}
	if info != nil {
		h.info = *info
	}
	h.session = e.Session
	for _, l := range rowLists {
		if len(l.row(e)) == 0 {
			continue
		}
		v := h.view(l.view)
		v.rows++
		v.at, v.info = e.Time, h.info
		switch l.key {
		case decisionsKey:
			v.counts.Total++
			switch decision.Outcome {
			case provenance.DecisionAllowed:
				v.counts.Allowed++
			case provenance.DecisionWarned:
				v.counts.Warned++
			case provenance.DecisionDenied:
				v.counts.Denied++
			}
		case invocationsKey:
			v.calls++
		}
		if decision.Mode != "" {
			// A call can be stricter than its session. The view has the mode of its last row.
			v.info.Mode = decision.Mode
		}
	}
	return nil
}

func (h *Heads) view(name string) *viewHead {
	return &h.views[slices.Index(provenance.ViewNames(), name)]
}

// Rows returns the number of rows in a view. A view without rows does not exist.
func (h *Heads) Rows(name string) int { return h.view(name).rows }

// ViewWriter writes a view row by row: for each list Begin, Add for its rows, and End; then Close.
type ViewWriter struct {
	Spans []Span // position of the rows of each list in the view

	before [][]byte // text before each list
	lists  []RowList
	tail   []byte
	out    *bufio.Writer
	at     int64
	row    []byte
}

// Span is a range of bytes in a file.
type Span struct{ Start, End int64 }

// Writer returns a writer for a view of the events added. Reset must be called before it is used.
//
// Errors: ErrNotFound for a name that is not a view, or a view without rows.
func (h *Heads) Writer(name string) (*ViewWriter, error) {
	if !provenance.IsView(name) || h.Rows(name) == 0 {
		return nil, fmt.Errorf("view %.60q: %w", name, provenance.ErrNotFound)
	}
	data, err := provenance.EncodePretty(h.shell(name))
	if err != nil {
		return nil, err
	}
	w := &ViewWriter{lists: RowLists(name)}
	if name == provenance.PolicyTraceFile && h.view(name).calls == 0 {
		w.lists = w.lists[:1]
	}
	for _, l := range w.lists {
		end := bytes.Index(data, []byte("\n"+l.Start)) + len("\n"+l.Start)
		w.before = append(w.before, data[:end])
		// The array in the shell is empty, or has a single null that keeps it from being omitted.
		data = data[end+bytes.IndexByte(data[end:], ']'):]
	}
	w.tail, w.Spans = data, make([]Span, len(w.before))
	return w, nil
}

// Parts returns the text before the first list, between the lists, and after the last list.
func (w *ViewWriter) Parts() [][]byte { return append(slices.Clip(w.before), w.tail) }

// Reset sets the destination of the view.
func (w *ViewWriter) Reset(out io.Writer) { w.out = bufio.NewWriterSize(out, 64<<10) }

// write ignores the error, which Flush in Close returns again.
func (w *ViewWriter) write(data []byte) {
	n, _ := w.out.Write(data)
	w.at += int64(n)
}

// Begin writes the text before the rows of a list.
func (w *ViewWriter) Begin(list int) {
	w.write(w.before[list])
	w.Spans[list].Start = w.at
}

// Copy writes the first rows of a list from their span in an earlier version of the view.
func (w *ViewWriter) Copy(version io.ReaderAt, s Span) error {
	n, err := io.Copy(w.out, io.NewSectionReader(version, s.Start, s.End-s.Start))
	w.at += n
	if err != nil {
		return err
	}
	if n != s.End-s.Start {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// Add writes the row that e adds to a list, if any. Errors: ErrInvalid if the row is not JSON.
func (w *ViewWriter) Add(list int, e *provenance.Event) error {
	row, err := w.lists[list].Append(w.row[:0], e)
	w.row = row
	if err != nil || len(row) == 0 {
		return err
	}
	if w.at > w.Spans[list].Start {
		w.write([]byte{','})
	}
	w.write(row)
	return nil
}

// End ends a list of rows.
func (w *ViewWriter) End(list int) {
	w.Spans[list].End = w.at
	if w.at > w.Spans[list].Start {
		w.write([]byte("\n  "))
	}
}

// Close writes the rest of the view.
func (w *ViewWriter) Close() error {
	w.write(w.tail)
	return w.out.Flush()
}

// shell returns the view without rows.
func (h *Heads) shell(name string) any {
	v := h.view(name)
	at := provenance.Stamp(v.at)
	switch name {
	case provenance.ActivationsFile:
		return Activations{TypeActivations, 1, at, nil}
	case provenance.ResourceReadsFile:
		return ResourceReads{TypeResourceReads, 1, at, nil}
	case provenance.ScriptExecutionsFile:
		return ScriptExecutions{TypeScriptExecutions, 1, at, nil}
	}
	trace := PolicyTrace{
		Type: TypePolicyTrace, Version: 1, GeneratedAt: at, RunID: h.session, Mode: v.info.Mode,
		PolicySnapshotPath: v.info.PolicySnapshotPath, PolicySnapshotDigest: v.info.PolicySnapshotDigest,
		DecisionCounts: v.counts,
	}
	if v.calls > 0 {
		trace.InvocationContexts = []json.RawMessage{json.RawMessage("null")}
	}
	return trace
}

// WriteView writes a view of a record. events yields the record each time it is called: once for the parts of
// the view other than rows, and once for each list of rows.
//
// Errors: ErrNotFound for a name that is not a view, or a view without rows, and the errors of events and w.
func WriteView(w io.Writer, name string, events func() iter.Seq2[*provenance.Event, error]) error {
	var heads Heads
	for e, err := range events() {
		if err != nil {
			return err
		}
		err = heads.Add(e)
		if err != nil {
			return err
		}
	}
	view, err := heads.Writer(name)
	if err != nil {
		return err
	}
	view.Reset(w)
	for list := range view.Spans {
		view.Begin(list)
		for e, err := range events() {
			if err != nil {
				return err
			}
			err = view.Add(list, e)
			if err != nil {
				return err
			}
		}
		view.End(list)
	}
	return view.Close()
}
