package cfharness

import (
	"cmp"
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
	Child         bool   // it belonged to Parent
	ParentSession string // Parent as the client named it
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
	OutputIDs                       []string // of the rows, in order
	// Unfinished are the events of the scripts that were requested and have no outcome, in order.
	Unfinished []*provenance.Event
}

// Recall folds the events of a session.
//
// Errors: the errors of Events, ErrCorrupt for a row that does not have its form.
func Recall(ctx context.Context, records provenance.Reader, id string) (*Recollection, error) {
	r := Recollection{Sent: make(map[string]bool)}
	type key struct{ path, handle string }
	at := make(map[key]int)
	var pending Pending
	requests := make(map[string]*provenance.Event)
	for e, err := range records.Events(ctx, provenance.Query{Session: id}) {
		if err != nil {
			return nil, err
		}
		if err := r.add(e); err != nil {
			return nil, fmt.Errorf("%w: event %s: %v", provenance.ErrCorrupt, e.ID(), err)
		}
		if pending.Add(e); e.Kind == provenance.KindScriptRequested && len(pending) > 0 {
			requests[pending[len(pending)-1]] = e
		}
		if e.Kind != provenance.KindSkillActivated || len(e.Row) == 0 {
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
	for _, id := range pending {
		r.Unfinished = append(r.Unfinished, requests[id])
	}
	return &r, nil
}

// add adds what every event says: whose it is, its mode and its numbers.
func (r *Recollection) add(e *provenance.Event) error {
	info, err := e.SessionInfo()
	if err != nil {
		return err
	}
	decision, err := e.Decided()
	if err != nil {
		return err
	}
	mode := decision.Mode
	if info != nil {
		r.ClientSession, r.Profile, mode = info.ClientSession, info.Profile, info.Mode
		r.Child, r.ParentSession = info.Child, info.ParentSession
	}
	r.Principal, r.Parent = e.Principal, cmp.Or(e.Parent, r.Parent)
	// A client can raise the mode with any call.
	if mode != "" && !slices.Contains(r.Modes, mode) {
		r.Modes = append(r.Modes, mode)
	}
	type numbered struct {
		Sequence uint64 `json:"sequence"`
		OutputID string `json:"outputId"`
	}
	var row, decided, invoked numbered
	// An object without a number is not an error: the rows of some kinds can be any object.
	_ = json.Unmarshal(e.Decision, &decided)
	_ = json.Unmarshal(e.Invocation, &invoked)
	r.Decisions = max(r.Decisions, decided.Sequence)
	r.Invocations = max(r.Invocations, invoked.Sequence)
	if len(e.Row) == 0 || json.Unmarshal(e.Row, &row) != nil {
		return nil
	}
	// Calls without a row have numbers too, of which there are at most as many as events.
	r.Outputs = max(r.Outputs, e.Seq)
	if row.OutputID != "" {
		r.OutputIDs = append(r.OutputIDs, row.OutputID)
	}
	last := row.OutputID[strings.LastIndexByte(row.OutputID, ':')+1:]
	if n, err := strconv.ParseUint(last, 10, 64); err == nil {
		r.Outputs = max(r.Outputs, n)
	}
	return nil
}
