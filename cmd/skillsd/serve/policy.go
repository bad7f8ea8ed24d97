package serve

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"github.com/skillsd/skillsd/skills/policy"
)

// Allowlist builds the allowlist from the place that counts: entries of the file have options, those
// of the command line and the environment do not.
func (o *Options) Allowlist() (policy.Allowlist, error) {
	cfg := &o.Process.Cfg
	if cfg.Origins["allow"].Kind != config.FromFile {
		list, err := policy.ParseAllowlist(o.AllowScripts)
		if err != nil {
			return list, exit.Flag("allow-skill-script", err)
		}
		return list, nil
	}
	var entries []policy.Entry
	for i := range cfg.Keys.Allow {
		entry, err := cfg.Keys.Allow[i].Entry()
		if err != nil {
			return policy.Allowlist{}, err
		}
		entries = append(entries, entry)
	}
	return policy.NewAllowlist(entries)
}

// checkProfiles refuses names of profiles that there are not: a typo would leave nothing, or all.
func (o *Options) checkProfiles(pol *policy.Policy) error {
	names := append(slices.Sorted(maps.Keys(o.Process.Cfg.Keys.Profiles)), "browser")
	if o.Profile != "" && !pol.HasProfile(o.Profile) {
		return exit.Flag("profile", fmt.Errorf("no profile %q; %s", config.Clip(o.Profile),
			cmp.Or(strings.TrimPrefix(config.DidYouMean(o.Profile, names), "; "),
				"there are "+strings.Join(names, ", "))))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Process.Cfg.Keys.Principals)) {
		if profile := o.Process.Cfg.Keys.Principals[name].Profile; profile != "" && !pol.HasProfile(profile) {
			return o.Process.Cfg.Problem("principals."+name+".profile", "no profile %q%s",
				config.Clip(profile), config.DidYouMean(profile, names))
		}
	}
	return nil
}
