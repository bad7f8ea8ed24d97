package session

import (
	"strings"
	"sync"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// maxNarrowed bounds the narrowed snapshots that are kept; the names of profiles that are given with
// calls come from clients.
const maxNarrowed = 64

// narrowed holds the part of a snapshot that each narrowing leaves. It is safe for concurrent use.
type narrowed struct {
	mu     sync.Mutex
	of     *skills.Snapshot // what the parts are of
	byName map[string]*skills.Snapshot
}

// Visible returns what of the current snapshot a principal may see, narrowed further by profiles
// that a call or its session names. It is the same pointer for the same answer, as long as the
// snapshot is current.
func (s *Sessions) Visible(principal policy.Principal, profiles ...string) *skills.Snapshot {
	snapshot := s.cfg.Registry.Snapshot()
	paths, all := s.cfg.Policy.Visible(principal, profiles)
	if all {
		return snapshot
	}
	key := strings.Join(paths, "\x00")
	n := &s.narrow
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of != snapshot || len(n.byName) >= maxNarrowed {
		n.of, n.byName = snapshot, map[string]*skills.Snapshot{}
	}
	if n.byName[key] == nil {
		n.byName[key] = snapshot.Only(paths)
	}
	return n.byName[key]
}

// visible is what a call of the session may see.
func (s *Session) visible(call Call) *skills.Snapshot {
	return s.Visible(call.Principal, s.profile, call.Profile)
}

// narrows reports whether a call sees less than there is.
func (s *Session) narrows(call Call) bool {
	_, all := s.cfg.Policy.Visible(call.Principal, []string{s.profile, call.Profile})
	return !all
}
