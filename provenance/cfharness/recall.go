package cfharness

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/skillsd/skillsd/provenance"
)

// Recollection is what a server needs of a recorded session to know its client again.
type Recollection struct {
	Principal     string
	ClientSession string // the client's own id of its session, as last started or resumed
	Profile       string // what the session was narrowed to, as last started or resumed
	Parent        string
	// Modes are the enforcement modes that the session was in, by the events and the decisions.
	Modes []string
	// Activations are the skills that were shown, in order, each as it was last: one row for each
	// pair of skill and handle.
	Activations []Activation
}

// Recall reads what session id of st was, from its events.
//
// Errors: those of Store.Events, ErrCorrupt for a row that is none.
func Recall(ctx context.Context, st provenance.Store, id string) (*Recollection, error) {
	var r Recollection
	type key struct{ path, handle string }
	at := make(map[key]int)
	for e, err := range st.Events(ctx, provenance.Query{Session: id}) {
		if err != nil {
			return nil, err
		}
		if err := r.addMode(e); err != nil {
			return nil, err
		}
		if e.Kind != provenance.KindSessionStarted && e.Kind != provenance.KindSessionResumed && e.Kind != provenance.KindSkillActivated {
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
		if row.Skillsd != nil {
			k.handle = row.Skillsd.HandleDigest.String()
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

// addMode notes the mode that an event tells of. A client raises it with any call.
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
