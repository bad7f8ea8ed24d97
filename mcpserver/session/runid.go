package session

import (
	"context"
	"errors"
	"strings"

	"github.com/skillsd/skillsd/provenance"
)

// latest is what commands call the newest session.
const latest = "latest"

// runID returns the id of a session that a call opens: the caller's run id when no session has it, else
// a fresh one. Sessions.mu is held.
//
// Errors: that of the system's random source.
func (s *Sessions) runID(call Call) (string, error) {
	// Some systems do not tell the case of names.
	key := strings.ToLower(call.RunID)
	if provenance.ValidSessionID(call.RunID) && key != latest && !s.claimed[key] && s.isFree(call.RunID) {
		if s.claimed == nil {
			s.claimed = make(map[string]bool)
		}
		s.claimed[key] = true
		return call.RunID, nil
	}
	return provenance.NewSessionID()
}

// isFree reports whether the records know no session of that id.
func (s *Sessions) isFree(id string) bool {
	for _, err := range s.cfg.Records.Events(context.Background(), provenance.Query{Session: id}) {
		return errors.Is(err, provenance.ErrNotFound)
	}
	return false
}

// unclaim lets the records alone say that a run id is taken, once its session has ended.
func (s *Sessions) unclaim(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claimed, strings.ToLower(id))
}
