package session

import (
	"context"
	"strings"

	"github.com/skillsd/skillsd/provenance"
)

// latest is what commands call the newest session.
const latest = "latest"

// runID returns the id of a session that a call opens: the caller's run id when no session has it and it
// holds no secret, which the name of a directory would show, else a fresh one. Sessions.mu is held.
//
// Errors: that of the system's random source.
func (s *Sessions) runID(call Call) (string, error) {
	// Some systems do not tell the case of names.
	key := strings.ToLower(call.RunID)
	if isRunID(call.RunID) && s.Secrets().Text(call.RunID) == call.RunID && !s.claimed[key] && s.cfg.Records.Claim(context.Background(), call.RunID) == nil {
		if s.claimed == nil {
			s.claimed = make(map[string]bool)
		}
		s.claimed[key] = true
		return call.RunID, nil
	}
	return provenance.NewSessionID()
}

// isRunID reports whether an id may name a session. One that starts with a hyphen or a dot would be an
// option or a hidden file to those who name it.
func isRunID(id string) bool {
	return provenance.ValidSessionID(id) && !strings.ContainsRune("-._", rune(id[0])) && strings.ToLower(id) != latest
}

// unclaim lets the records alone say that a run id is taken, once its session has ended.
func (s *Sessions) unclaim(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claimed, strings.ToLower(id))
}
