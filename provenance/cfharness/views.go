package cfharness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/skillsd/skillsd/provenance"
)

// viewList is an array of rows in a view.
type viewList struct {
	view, key string
	row       func(*provenance.Event) json.RawMessage
}

const (
	decisionsKey   = "decisions"
	invocationsKey = "cfcInvocationContexts"
)

// viewLists are the arrays of all views. The arrays of one view have the order they have in its file.
var viewLists = [...]viewList{
	{provenance.ActivationsFile, "activations", rowOf(provenance.ActivationsFile)},
	{provenance.ResourceReadsFile, "reads", rowOf(provenance.ResourceReadsFile)},
	{provenance.ScriptExecutionsFile, "executions", rowOf(provenance.ScriptExecutionsFile)},
	{provenance.PolicyTraceFile, decisionsKey,
		func(e *provenance.Event) json.RawMessage { return e.Decision }},
	{provenance.PolicyTraceFile, invocationsKey,
		func(e *provenance.Event) json.RawMessage { return e.Invocation }},
}

func rowOf(view string) func(*provenance.Event) json.RawMessage {
	return func(e *provenance.Event) json.RawMessage {
		if e.Kind.View() != view {
			return nil
		}
		return e.Row
	}
}

// Heads folds events into what each view says besides its rows. Its size does not grow with the number of
// events. The zero Heads is ready; it is not safe for concurrent use.
type Heads struct {
	session string
	info    provenance.SessionInfo
	views   [4]viewHead // in the order of ViewNames
}

// viewHead is what a view says besides its rows.
type viewHead struct {
	rows   int // in all lists
	at     time.Time
	info   provenance.SessionInfo
	counts DecisionCounts
	calls  int // invocation contexts
}

// Add folds e; it does not check the place of e in the chain. It accepts every event that a Tally accepts.
//
// Errors: ErrInvalid if the Row or the Decision of e cannot be in a view. The fold is then as before.
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
	for _, l := range viewLists {
		if len(l.row(e)) == 0 {
			continue
		}
		v := h.view(l.view)
		v.rows++
		v.at, v.info = e.Time, h.info
		switch l.key {
		case decisionsKey:
			v.counts.add(decision.Outcome)
		case invocationsKey:
			v.calls++
		}
		if decision.Mode != "" {
			// A call can be stricter than its session; the view has the mode of its last row.
			v.info.Mode = decision.Mode
		}
	}
	return nil
}

func (h *Heads) view(name string) *viewHead {
	return &h.views[slices.Index(provenance.ViewNames(), name)]
}

// Rows returns how many rows a view has. A view without rows does not exist.
func (h *Heads) Rows(name string) int { return h.view(name).rows }

// Frame is a view without its rows, so that they can be written one by one: for each list Before,
// the rows with Append, and After; Tail at the end.
type Frame struct {
	Lists []FrameList
	Tail  []byte
}

// FrameList is the place of one array of rows in a Frame.
type FrameList struct {
	Before []byte

	row func(*provenance.Event) json.RawMessage
}

// Frame returns the frame of a view of the events added.
//
// Errors: ErrNotFound for a name that is not a view, or a view without rows.
func (h *Heads) Frame(name string) (*Frame, error) {
	if !provenance.IsView(name) || h.Rows(name) == 0 {
		return nil, fmt.Errorf("view %.60q: %w", name, provenance.ErrNotFound)
	}
	data, err := provenance.EncodePretty(h.shell(name))
	if err != nil {
		return nil, err
	}
	frame := &Frame{}
	for _, l := range viewLists {
		if l.view != name || l.key == invocationsKey && h.view(name).calls == 0 {
			continue
		}
		key := []byte("\n  \"" + l.key + "\": [")
		before, after, _ := bytes.Cut(data, key)
		// The array of the shell is empty, or holds the one null that keeps it from being omitted.
		end := bytes.IndexByte(after, ']')
		before = append(before[:len(before):len(before)], key...)
		frame.Lists = append(frame.Lists, FrameList{Before: before, row: l.row})
		data = after[end:]
	}
	frame.Tail = data
	return frame, nil
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

// Row returns the row that e adds to the list, or nil.
func (l *FrameList) Row(e *provenance.Event) json.RawMessage { return l.row(e) }

// Append writes a row; first says that it is the first of the list. Errors: ErrInvalid if row is not JSON.
func (l *FrameList) Append(buf *bytes.Buffer, row json.RawMessage, first bool) error {
	if !first {
		buf.WriteByte(',')
	}
	buf.WriteString("\n    ")
	if err := json.Indent(buf, bytes.TrimSpace(row), "    ", "  "); err != nil {
		return fmt.Errorf("%w: row: %v", provenance.ErrInvalid, err)
	}
	return nil
}

// After returns the bytes between the rows of the list and the next Before or Tail.
func (l *FrameList) After(rows bool) []byte {
	if rows {
		return []byte("\n  ")
	}
	return nil
}

// WriteView writes a view of a record, which events yields each time it is called; it is read once for what
// the view says besides its rows, and once for each list of rows.
//
// Errors: ErrNotFound for a name that is not a view, or a view without rows, and the errors of events and w.
func WriteView(w io.Writer, name string, events func() iter.Seq2[*provenance.Event, error]) error {
	var heads Heads
	for e, err := range events() {
		if err == nil {
			err = heads.Add(e)
		}
		if err != nil {
			return err
		}
	}
	frame, err := heads.Frame(name)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	write := func(data []byte) {
		if err == nil {
			_, err = w.Write(data)
		}
	}
	for i := range frame.Lists {
		l := &frame.Lists[i]
		write(l.Before)
		first := true
		for e, readErr := range events() {
			if readErr != nil {
				return readErr
			}
			row := l.Row(e)
			if len(row) == 0 {
				continue
			}
			buf.Reset()
			if err := l.Append(&buf, row, first); err != nil {
				return err
			}
			write(buf.Bytes())
			first = false
		}
		write(l.After(!first))
	}
	write(frame.Tail)
	return err
}
