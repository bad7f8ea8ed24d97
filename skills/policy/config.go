package policy

import (
	"maps"
	"slices"
)

// Config returns the configuration of the policy, with the defaults in place of zero values. The caller
// must not change its lists.
func (p *Policy) Config() Config { return p.cfg }

// Profiles returns the profiles that can be chosen by name, configured and built-in ones, sorted by
// name. The caller must not change their lists.
func (p *Policy) Profiles() []Profile {
	var all []Profile
	for _, name := range slices.Sorted(maps.Keys(p.profiles)) {
		all = append(all, *p.profiles[name])
	}
	return all
}
