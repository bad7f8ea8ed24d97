package cfharness

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/skillsd/skillsd/provenance"
)

// Frame is a view without its rows, so that they can be written one by one: for each list Before,
// the rows with Append, and After; Tail at the end.
type Frame struct {
	Lists []FrameList
	Tail  []byte
}

// FrameList is the place of one array of rows in a Frame.
type FrameList struct {
	Before []byte

	id  int
	row func(*provenance.Event) json.RawMessage
}

// Frame returns the frame of a view of the events added. Errors: ErrNotFound for a name that is no
// view, or a view of no rows.
func (t *Heads) Frame(name string) (*Frame, error) {
	if !provenance.IsView(name) || t.Rows(name) == 0 {
		return nil, fmt.Errorf("view %.60q: %w", name, provenance.ErrNotFound)
	}
	return newFrame(name, t.session, t.view(name))
}

// Row returns the row that e adds to the list, or nil.
func (l *FrameList) Row(e *provenance.Event) json.RawMessage { return l.row(e) }

// Append writes a row; first says that none of the list stands before it. Errors: ErrInvalid for
// what is not JSON.
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

// After returns what follows the rows of the list before the next Before or Tail.
func (l *FrameList) After(rows bool) []byte {
	if rows {
		return []byte("\n  ")
	}
	return nil
}

func newFrame(name, session string, h *viewHead) (*Frame, error) {
	data, err := provenance.EncodePretty(h.shell(name, session))
	if err != nil {
		return nil, err
	}
	frame := &Frame{}
	for i, l := range viewLists() {
		if l.view != name || l.key == invocationsKey && h.calls == 0 {
			continue
		}
		key := []byte("\n  \"" + l.key + "\": [")
		before, after, _ := bytes.Cut(data, key)
		// The array of the shell is empty, or holds the one null that keeps it from being left out.
		end := bytes.IndexByte(after, ']')
		frame.Lists = append(frame.Lists, FrameList{Before: append(before[:len(before):len(before)], key...), id: i, row: l.row})
		data = after[end:]
	}
	frame.Tail = data
	return frame, nil
}

// shell is the view without rows.
func (h *viewHead) shell(name, session string) any {
	at := provenance.Stamp(h.at)
	switch name {
	case provenance.ActivationsFile:
		return Activations{TypeActivations, 1, at, nil}
	case provenance.ResourceReadsFile:
		return ResourceReads{TypeResourceReads, 1, at, nil}
	case provenance.ScriptExecutionsFile:
		return ScriptExecutions{TypeScriptExecutions, 1, at, nil}
	}
	trace := PolicyTrace{
		Type: TypePolicyTrace, Version: 1, GeneratedAt: at, RunID: session, Mode: h.info.Mode,
		PolicySnapshotPath: h.info.PolicySnapshotPath, PolicySnapshotDigest: h.info.PolicySnapshotDigest,
		DecisionCounts: h.counts,
	}
	if h.calls > 0 {
		trace.InvocationContexts = []json.RawMessage{json.RawMessage("null")}
	}
	return trace
}
