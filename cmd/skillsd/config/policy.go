package config

import (
	"maps"
	"slices"

	"github.com/skillsd/skillsd/skills/policy"
)

// PolicyProfiles are those of the file, sorted by name.
func (k *Keys) PolicyProfiles() []policy.Profile {
	var profiles []policy.Profile
	for _, name := range slices.Sorted(maps.Keys(k.Profiles)) {
		p := k.Profiles[name]
		profiles = append(profiles, policy.Profile{Name: name, Skills: p.Skills, Scripts: p.Scripts, Tools: p.Tools, Target: policy.Target(p.Target)})
	}
	return profiles
}

// Principals are those of the configuration. Whose word is believed is told apart, because the
// command line can say it too.
func (c *Configuration) Principals(evidence []string) map[string]policy.Principal {
	principals := map[string]policy.Principal{}
	for name, p := range c.Keys.Principals {
		principals[name] = policy.Principal{Name: name, Profile: p.Profile}
	}
	for _, name := range evidence {
		p := principals[name]
		p.Name, p.Evidence = name, true
		principals[name] = p
	}
	return principals
}
