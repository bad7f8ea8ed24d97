package policy

import (
	"fmt"
	"slices"
)

// Check rejects a configuration with unknown or ambiguous names. [New] accepts it nevertheless; its policy
// denies where a name is ambiguous.
func (c Config) Check() error {
	switch {
	case c.Mode != 0 && (c.Mode < Disabled || c.Mode > EnforceStrict):
		return fmt.Errorf("unknown mode %s", c.Mode)
	case c.Role != "" && !slices.Contains([]Role{DirectCommand, Context, Quote}, c.Role):
		return fmt.Errorf("unknown role %q", Clip(string(c.Role)))
	case c.Release != "" && !slices.Contains([]Release{ReleaseNone, ReleaseObserved, ReleaseOpaque},
		c.Release):
		return fmt.Errorf("unknown release %q", Clip(string(c.Release)))
	}
	for _, tier := range c.ClosedTiers {
		if !tier.Valid() {
			return fmt.Errorf("unknown tier %s", tier)
		}
	}
	for _, entry := range c.Allowlist.entries {
		if err := entry.check(); err != nil {
			return fmt.Errorf("entry %s: %w", Clip(entry.Spec()), err)
		}
	}
	names := map[string]bool{browserProfile().Name: true}
	// Names are added one by one, so that a second profile with the same name is found.
	for i := range c.Profiles {
		if err := c.Profiles[i].check(names); err != nil {
			return err
		}
		names[c.Profiles[i].Name] = true
	}
	if c.Profile != "" && !names[c.Profile] {
		return fmt.Errorf("there is no profile %q", Clip(c.Profile))
	}
	return nil
}

// check rejects a profile that could not be selected, or that contains invalid names.
func (p *Profile) check(taken map[string]bool) error {
	name := Clip(p.Name)
	switch {
	case p.Name == "":
		return fmt.Errorf("a profile has no name")
	case p.Name == browserProfile().Name:
		return fmt.Errorf("profile %s: the name is that of a built-in profile", name)
	case taken[p.Name]:
		return fmt.Errorf("two profiles are named %s", name)
	case !slices.Contains([]Target{"", TargetSandbox, TargetHost}, p.Target):
		return fmt.Errorf("profile %s: target %q is neither sandbox nor host", name, Clip(string(p.Target)))
	}
	for _, skill := range p.Activate {
		// Such a skill would never be active, and the session would start without it for no visible reason.
		if !p.includesSkill(skill) {
			return fmt.Errorf("profile %s: it activates %q, which its skills do not include", name,
				Clip(skill))
		}
	}
	// A path that no skill can have would silently include nothing.
	for _, skill := range slices.Concat(p.Skills, p.Activate) {
		if !isSkillPath(skill) {
			return fmt.Errorf("profile %s: %q is not a path of a skill; there are no patterns", name,
				Clip(skill))
		}
	}
	for _, script := range p.Scripts {
		entry, err := ParseEntry(script)
		if err != nil {
			return fmt.Errorf("profile %s: %w", name, err)
		}
		// includesScript compares texts, so another spelling of the script would include nothing.
		if entry.Pin != "" || entry.Spec() != script {
			return fmt.Errorf("profile %s: a script is written %s:%s", name, entry.Skill, entry.Path)
		}
	}
	if slices.Contains(p.Tools, "") {
		return fmt.Errorf("profile %s: a tool has no name", name)
	}
	return nil
}
