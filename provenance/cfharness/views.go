package cfharness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/skillsd/skillsd/provenance"
)

// Views folds events into the JSON views of a session. It keeps every row; [Heads] and [Frame] make
// the same bytes without. The zero Views is ready; it is not safe for concurrent use.
type Views struct {
	heads Heads
	rows  map[string][]viewRow
}

// viewRow is a row with what the view says before its rows when this is the last.
type viewRow struct {
	raw  json.RawMessage
	list int // which of the lists of the view
	head viewHead
}

// viewHead is what a view says before its rows.
type viewHead struct {
	rows   int // in all lists
	at     time.Time
	info   provenance.SessionInfo
	counts DecisionCounts
	calls  int // invocation contexts
}

// Add folds e, whose place in the chain is not looked at. Errors: ErrInvalid when its Row or Decision
// cannot stand in a view.
func (v *Views) Add(e *provenance.Event) error {
	return v.heads.addRows(e, v.keep)
}

func (v *Views) keep(name string, row viewRow) {
	if v.rows == nil {
		v.rows = make(map[string][]viewRow)
	}
	v.rows[name] = append(v.rows[name], row)
}

// viewList is an array of rows in a view.
type viewList struct {
	view, key string
	row       func(*provenance.Event) json.RawMessage
}

// viewLists are the arrays of all views, those of one view in the order they stand in it.
func viewLists() [5]viewList {
	return [...]viewList{
		{provenance.ActivationsFile, "activations", func(e *provenance.Event) json.RawMessage { return rowOf(e, provenance.ActivationsFile) }},
		{provenance.ResourceReadsFile, "reads", func(e *provenance.Event) json.RawMessage { return rowOf(e, provenance.ResourceReadsFile) }},
		{provenance.ScriptExecutionsFile, "executions", func(e *provenance.Event) json.RawMessage { return rowOf(e, provenance.ScriptExecutionsFile) }},
		{provenance.PolicyTraceFile, "decisions", func(e *provenance.Event) json.RawMessage { return e.Decision }},
		{provenance.PolicyTraceFile, invocationsKey, func(e *provenance.Event) json.RawMessage { return e.Invocation }},
	}
}

func rowOf(e *provenance.Event, view string) json.RawMessage {
	if e.Kind.View() != view {
		return nil
	}
	return e.Row
}

const invocationsKey = "cfcInvocationContexts"

// Heads folds events into what the views say besides their rows. Its size does not grow with the number of
// events. The zero Heads is ready; it is not safe for concurrent use.
type Heads struct {
	session string
	info    provenance.SessionInfo
	views   [4]viewHead // in the order of ViewNames
}

// Add folds e, which a Tally has taken; the place of e in the chain is not looked at. Errors: ErrInvalid when
// its Row or Decision cannot stand in a view.
func (t *Heads) Add(e *provenance.Event) error { return t.addRows(e, nil) }

// addRows folds what e adds to the views; each is told of every row.
func (t *Heads) addRows(e *provenance.Event, each func(name string, row viewRow)) error {
	info, err := e.SessionInfo()
	if err != nil {
		return err
	}
	decision, err := e.Decided()
	if err != nil {
		return err
	}
	if info != nil {
		t.info = *info
	}
	t.session = e.Session
	for i, l := range viewLists() {
		raw := l.row(e)
		if len(raw) == 0 {
			continue
		}
		h := t.view(l.view)
		h.rows++
		h.at, h.info = e.Time, t.info
		switch l.key {
		case "decisions":
			h.counts.add(decision.Outcome)
		case invocationsKey:
			h.calls++
		}
		if decision.Mode != "" {
			h.info.Mode = decision.Mode
		}
		if each != nil {
			each(l.view, viewRow{raw: raw, list: i, head: *h})
		}
	}
	return nil
}

func (t *Heads) view(name string) *viewHead {
	return &t.views[slices.Index(provenance.ViewNames(), name)]
}

// Rows returns how many rows a view has; one of none does not exist.
func (t *Heads) Rows(name string) int { return t.view(name).rows }

// Len returns how many rows the view has.
func (v *Views) Len(name string) int { return len(v.rows[name]) }

// Render returns the bytes of the view with its first n rows; that of a whole session has Len
// rows. A view of no rows is nil, for it does not exist. generatedAt is the time of the event that
// made row n.
//
// Errors: ErrNotFound for a name that is no view.
func (v *Views) Render(name string, n int) ([]byte, error) {
	if !provenance.IsView(name) {
		return nil, fmt.Errorf("view %.60q: %w", name, provenance.ErrNotFound)
	}
	if n == 0 {
		return nil, nil
	}
	rows := v.rows[name][:n]
	frame, err := newFrame(name, v.heads.session, &rows[n-1].head)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	for i := range frame.Lists {
		l := &frame.Lists[i]
		buf.Write(l.Before)
		first := true
		for _, r := range rows {
			if r.list != l.id {
				continue
			}
			if err := l.Append(&buf, r.raw, first); err != nil {
				return nil, err
			}
			first = false
		}
		buf.Write(l.After(!first))
	}
	buf.Write(frame.Tail)
	return buf.Bytes(), nil
}
