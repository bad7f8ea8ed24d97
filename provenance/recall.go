package provenance

import (
	"context"
	"encoding/json"
	"fmt"
)

// Recollection is what a server needs of a recorded session to know its client again.
type Recollection struct {
	Principal     string
	ClientSession string // the client's own id of its session, as last started or resumed
	Profile       string // what the session was narrowed to, as last started or resumed
	Parent        string
	// Activations are the skills that were shown, in order, each as it was last: one row for each
	// pair of skill and handle.
	Activations []Activation
}

// Recall reads what session id of st was, from its events.
//
// Errors: those of Store.Events, ErrCorrupt for a row that is none.
func Recall(ctx context.Context, st Store, id string) (*Recollection, error) {
	var r Recollection
	type key struct{ path, handle string }
	at := make(map[key]int)
	kinds := []Kind{KindSessionStarted, KindSessionResumed, KindSkillActivated}
	for e, err := range st.Events(ctx, Query{Session: id, Kinds: kinds}) {
		if err != nil {
			return nil, err
		}
		r.Principal = e.Principal
		if e.Parent != "" {
			r.Parent = e.Parent
		}
		if len(e.Row) == 0 {
			continue
		}
		if e.Kind != KindSkillActivated {
			var info SessionInfo
			if err := json.Unmarshal(e.Row, &info); err != nil {
				return nil, fmt.Errorf("%w: row of event %s: %v", ErrCorrupt, e.ID(), err)
			}
			r.ClientSession, r.Profile = info.ClientSession, info.Profile
			continue
		}
		var row Activation
		if err := json.Unmarshal(e.Row, &row); err != nil {
			return nil, fmt.Errorf("%w: row of event %s: %v", ErrCorrupt, e.ID(), err)
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
