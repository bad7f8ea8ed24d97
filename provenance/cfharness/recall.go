package cfharness

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/skillsd/skillsd/provenance"
)

// Recollection is what a server needs to know about a recorded session to continue it.
type Recollection struct {
	Principal     string
	ClientSession string // the client's own id of its session, as last started or resumed
	Profile       string // that the session was narrowed to, as last started or resumed
	Parent        string
	// Modes are the enforcement modes that the session was in, by the events and the decisions.
	Modes []string
	// Activations are the activations of the session, in order, with the last row for each pair of skill
	// and handle.
	Activations []Activation
	// Sent has the path of each skill whose instructions were sent with its last activation.
	Sent map[string]bool
	// Outputs, Decisions and Invocations are at least the last numbers that were assigned. The number of an
	// event that could not be recorded is missing from the record.
	Outputs, Decisions, Invocations uint64
}

// Recall folds the events of a session.
//
// Errors: the errors of Events, ErrCorrupt for a row that does not have its form.
func Recall(ctx context.Context, records provenance.Reader, id string) (*Recollection, error) {
	r := Recollection{Sent: make(map[string]bool)}
	type key struct{ path, handle string }
	at := make(map[key]int)
	for e, err := range records.Events(ctx, provenance.Query{Session: id}) {
		if err != nil {
			return nil, err
		}
		if err := r.addMode(e); err != nil {
			return nil, err
		}
		r.count(e)
		switch e.Kind {
		case provenance.KindSessionStarted, provenance.KindSessionResumed, provenance.KindSkillActivated:
		default:
			continue
		}
		r.Principal = e.Principal
		if e.Parent != "" {
			r.Parent = e.Parent
		}
		if len(e.Row) == 0 {
			continue
		}
		if e.Kind != provenance.KindSkillActivated {
			var info provenance.SessionInfo
			if err := json.Unmarshal(e.Row, &info); err != nil {
				return nil, fmt.Errorf("%w: row of event %s: %v", provenance.ErrCorrupt, e.ID(), err)
			}
			r.ClientSession, r.Profile = info.ClientSession, info.Profile
			continue
		}
		var row Activation
		if err := json.Unmarshal(e.Row, &row); err != nil {
			return nil, fmt.Errorf("%w: row of event %s: %v", provenance.ErrCorrupt, e.ID(), err)
		}
		k := key{path: e.Skill}
		if x := row.Skillsd; x != nil {
			k.handle = x.HandleDigest.String()
			if !x.Repeated {
				r.Sent[x.Path] = row.SentBy(e)
			}
		}
		if i, known := at[k]; known {
			r.Activations[i] = row
			continue
		}
		at[k] = len(r.Activations)
		r.Activations = append(r.Activations, row)
	}
	return &r, nil
}

// addMode adds the mode of an event. A client can raise the mode with any call.
func (r *Recollection) addMode(e *provenance.Event) error {
	raw := e.Decision
	if e.Kind == provenance.KindSessionStarted || e.Kind == provenance.KindSessionResumed {
		raw = e.Row
	}
	if len(raw) == 0 {
		return nil
	}
	var row struct {
		Mode string `json:"cfcEnforcementMode"`
	}
	if err := json.Unmarshal(raw, &row); err != nil {
		return fmt.Errorf("%w: row of event %s: %v", provenance.ErrCorrupt, e.ID(), err)
	}
	if row.Mode != "" && !slices.Contains(r.Modes, row.Mode) {
		r.Modes = append(r.Modes, row.Mode)
	}
	return nil
}

// count notes the numbers of an event.
func (r *Recollection) count(e *provenance.Event) {
	r.Decisions = max(r.Decisions, sequenceOf(e.Decision))
	r.Invocations = max(r.Invocations, sequenceOf(e.Invocation))
	var row struct {
		OutputID string `json:"outputId"`
	}
	if len(e.Row) == 0 || json.Unmarshal(e.Row, &row) != nil {
		return
	}
	last := row.OutputID[strings.LastIndexByte(row.OutputID, ':')+1:]
	if n, err := strconv.ParseUint(last, 10, 64); err == nil {
		r.Outputs = max(r.Outputs, n)
	}
	// Calls without a row have numbers too, of which there are at most as many as events.
	r.Outputs = max(r.Outputs, e.Seq)
}

// sequenceOf returns the number of a row, 0 if it has none.
func sequenceOf(raw json.RawMessage) uint64 {
	var row struct {
		Sequence uint64 `json:"sequence"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &row) != nil {
		return 0
	}
	return row.Sequence
}
