package provenance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Views folds events into the JSON views of a session. It keeps every row; [Tally] and [Frame] make
// the same bytes without. The zero Views is ready; it is not safe for concurrent use.
type Views struct {
	tally Tally
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
	info   SessionInfo
	counts DecisionCounts
	calls  int // invocation contexts
}

// Add folds e, whose place in the chain is not looked at. Errors: ErrInvalid when its Row or Decision
// cannot stand in a view.
func (v *Views) Add(e *Event) error {
	if err := v.tally.addRows(e, v.keep); err != nil {
		return err
	}
	v.tally.Session.ID = e.Session
	return nil
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
	row       func(*Event) json.RawMessage
}

// viewLists are the arrays of all views, those of one view in the order they stand in it.
func viewLists() [5]viewList {
	return [...]viewList{
		{ActivationsFile, "activations", func(e *Event) json.RawMessage { return e.rowOf(ActivationsFile) }},
		{ResourceReadsFile, "reads", func(e *Event) json.RawMessage { return e.rowOf(ResourceReadsFile) }},
		{ScriptExecutionsFile, "executions", func(e *Event) json.RawMessage { return e.rowOf(ScriptExecutionsFile) }},
		{PolicyTraceFile, "decisions", func(e *Event) json.RawMessage { return e.Decision }},
		{PolicyTraceFile, invocationsKey, func(e *Event) json.RawMessage { return e.Invocation }},
	}
}

func (e *Event) rowOf(view string) json.RawMessage {
	if e.Kind.View() != view {
		return nil
	}
	return e.Row
}

// View returns the name of the view that the Row of an event of kind k is a row of, or "" when that
// stands in none. Decision and Invocation stand in policy-trace.json whatever the kind is.
func (k Kind) View() string {
	switch k {
	case KindSkillActivated:
		return ActivationsFile
	case KindResourceRead:
		return ResourceReadsFile
	case KindScriptExecuted:
		return ScriptExecutionsFile
	}
	return ""
}

const invocationsKey = "cfcInvocationContexts"

// addRows folds what e adds to the views; each is told of every row.
func (t *Tally) addRows(e *Event, each func(name string, row viewRow)) error {
	info := t.info
	if (e.Kind == KindSessionStarted || e.Kind == KindSessionResumed) && len(e.Row) > 0 {
		if err := json.Unmarshal(e.Row, &info); err != nil {
			return fmt.Errorf("%w: row of %s: %v", ErrInvalid, e.Kind, err)
		}
	}
	var outcome, mode string
	if len(e.Decision) > 0 {
		var err error
		if outcome, mode, err = readDecision(e.Decision); err != nil {
			return err
		}
	}
	t.info = info
	for i, l := range viewLists() {
		raw := l.row(e)
		if len(raw) == 0 {
			continue
		}
		h := t.view(l.view)
		h.rows++
		h.at, h.info = e.Time, info
		switch l.key {
		case "decisions":
			h.counts.add(outcome)
		case invocationsKey:
			h.calls++
		}
		if mode != "" {
			h.info.Mode = mode
		}
		if each != nil {
			each(l.view, viewRow{raw: raw, list: i, head: *h})
		}
	}
	return nil
}

func (t *Tally) view(name string) *viewHead {
	return &t.views[slices.Index(ViewNames(), name)]
}

// Rows returns how many rows a view has; one of none does not exist.
func (t *Tally) Rows(name string) int { return t.view(name).rows }

func readDecision(raw json.RawMessage) (outcome, mode string, err error) {
	var d struct {
		Decision string `json:"decision"`
		Mode     string `json:"cfcEnforcementMode"`
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return "", "", fmt.Errorf("%w: decision: %v", ErrInvalid, err)
	}
	switch d.Decision {
	case DecisionAllowed, DecisionWarned, DecisionDenied:
		return d.Decision, d.Mode, nil
	}
	return "", "", fmt.Errorf("%w: decision %.20q", ErrInvalid, d.Decision)
}

// Len returns how many rows the view has.
func (v *Views) Len(name string) int { return len(v.rows[name]) }

// Render returns the bytes of the view with its first n rows; that of a whole session has Len
// rows. A view of no rows is nil, for it does not exist. generatedAt is the time of the event that
// made row n.
//
// Errors: ErrNotFound for a name that is no view.
func (v *Views) Render(name string, n int) ([]byte, error) {
	if !IsView(name) {
		return nil, fmt.Errorf("view %.60q: %w", name, ErrNotFound)
	}
	if n == 0 {
		return nil, nil
	}
	rows := v.rows[name][:n]
	frame, err := newFrame(name, v.tally.Session.ID, &rows[n-1].head)
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
