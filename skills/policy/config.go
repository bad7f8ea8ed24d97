package policy

import (
	"maps"
	"slices"
)

// Config returns the configuration of the policy with defaults filled in. The caller must not change its
// lists.
func (p *Policy) Config() Config { return p.cfg }

// Profiles returns all profiles, configured and built-in, sorted by name. The caller must not change their
// lists.
func (p *Policy) Profiles() []Profile {
	var all []Profile
	for _, name := range slices.Sorted(maps.Keys(p.profiles)) {
		all = append(all, *p.profiles[name])
	}
	return all
}
