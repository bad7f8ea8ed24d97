package provenance

import (
	"encoding/json"
	"fmt"
	"time"
)

// Views folds events into the JSON views of a session. It keeps every row, so it is made when a
// view is needed and dropped afterwards. The zero Views is ready; it is not safe for concurrent
// use.
type Views struct {
	session string
	info    SessionInfo
	rows    map[string][]viewRow
}

type viewRow struct {
	raw      json.RawMessage
	seq      uint64
	at       time.Time
	info     SessionInfo
	decision string // policy-trace.json only
}

// Add folds e. Errors: ErrInvalid when its Row or Decision cannot stand in a view.
func (v *Views) Add(e *Event) error {
	v.session = e.Session
	if e.Kind == KindSessionStarted || e.Kind == KindSessionResumed {
		if len(e.Row) > 0 {
			if err := json.Unmarshal(e.Row, &v.info); err != nil {
				return fmt.Errorf("%w: row of %s: %v", ErrInvalid, e.Kind, err)
			}
		}
	}
	row := viewRow{seq: e.Seq, at: e.Time, info: v.info}
	if name := rowView(e.Kind); name != "" && len(e.Row) > 0 {
		row.raw = e.Row
		v.add(name, row)
	}
	if len(e.Decision) == 0 {
		return nil
	}
	outcome, mode, err := readDecision(e.Decision)
	if err != nil {
		return err
	}
	if mode != "" {
		row.info.Mode = mode
	}
	row.raw, row.decision = e.Decision, outcome
	v.add(PolicyTraceFile, row)
	return nil
}

func (v *Views) add(name string, row viewRow) {
	if v.rows == nil {
		v.rows = make(map[string][]viewRow)
	}
	v.rows[name] = append(v.rows[name], row)
}

func rowView(k Kind) string {
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

// Touched returns the names of the views that e adds a row to.
func (e *Event) Touched() []string {
	var names []string
	if name := rowView(e.Kind); name != "" && len(e.Row) > 0 {
		names = append(names, name)
	}
	if len(e.Decision) > 0 {
		names = append(names, PolicyTraceFile)
	}
	return names
}

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

// RowSeq returns the sequence number of the event that made row i (from 0) of the view.
func (v *Views) RowSeq(name string, i int) uint64 { return v.rows[name][i].seq }

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
	raws := make(List[json.RawMessage], 0, n)
	for _, r := range rows {
		raws = append(raws, r.raw)
	}
	last := rows[n-1]
	at := Stamp(last.at)
	switch name {
	case ActivationsFile:
		return EncodePretty(Activations{TypeActivations, 1, at, raws})
	case ResourceReadsFile:
		return EncodePretty(ResourceReads{TypeResourceReads, 1, at, raws})
	case ScriptExecutionsFile:
		return EncodePretty(ScriptExecutions{TypeScriptExecutions, 1, at, raws})
	}
	trace := PolicyTrace{
		Type: TypePolicyTrace, Version: 1, GeneratedAt: at, RunID: v.session, Mode: last.info.Mode,
		PolicySnapshotPath: last.info.PolicySnapshotPath, PolicySnapshotDigest: last.info.PolicySnapshotDigest,
		Decisions: raws,
	}
	for _, r := range rows {
		trace.DecisionCounts.add(r.decision)
	}
	return EncodePretty(trace)
}
