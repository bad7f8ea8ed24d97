package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/policy"
)

// allowlist builds the allowlist from the place that counts: entries of the file have options, those
// of the command line and the environment do not.
func (o *serveOptions) allowlist() (policy.Allowlist, error) {
	cfg := &o.app.cfg
	if cfg.origins["allow"].Kind != fromFile {
		list, err := policy.ParseAllowlist(o.AllowScripts)
		if err != nil {
			return list, flagError("allow-skill-script", err)
		}
		return list, nil
	}
	var entries []policy.Entry
	for i := range cfg.Keys.Allow {
		entry, err := cfg.Keys.Allow[i].entry()
		if err != nil {
			return policy.Allowlist{}, err
		}
		entries = append(entries, entry)
	}
	return policy.NewAllowlist(entries)
}

// profiles are those of the file, sorted by name.
func (k *configKeys) profiles() []policy.Profile {
	var profiles []policy.Profile
	for _, name := range slices.Sorted(maps.Keys(k.Profiles)) {
		p := k.Profiles[name]
		profiles = append(profiles, policy.Profile{Name: name, Skills: p.Skills, Scripts: p.Scripts, Tools: p.Tools, Target: policy.Target(p.Target)})
	}
	return profiles
}

// principals are those of the configuration. Whose word is believed is told apart, because the
// command line can say it too.
func (c *configuration) principals(evidence []string) map[string]policy.Principal {
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

// checkProfiles refuses names of profiles that there are not: a typo would leave nothing, or all.
func (o *serveOptions) checkProfiles(pol *policy.Policy) error {
	names := append(slices.Sorted(maps.Keys(o.app.cfg.Keys.Profiles)), "browser")
	if o.Profile != "" && !pol.HasProfile(o.Profile) {
		return flagError("profile", fmt.Errorf("no profile %q; %s", clipValue(o.Profile), cmp.Or(strings.TrimPrefix(didYouMean(o.Profile, names), "; "), "there are "+strings.Join(names, ", "))))
	}
	for _, name := range slices.Sorted(maps.Keys(o.app.cfg.Keys.Principals)) {
		if profile := o.app.cfg.Keys.Principals[name].Profile; profile != "" && !pol.HasProfile(profile) {
			return o.app.cfg.problem("principals."+name+".profile", "no profile %q%s", clipValue(profile), didYouMean(profile, names))
		}
	}
	return nil
}
