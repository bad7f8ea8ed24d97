package policy

import "strings"

// browserSkill is the skill that drives a browser on the host and needs a lease for it.
const browserSkill = "agent-browser"

// cdpFlag is the argument with which a script of browserSkill selects its browser.
const cdpFlag = "--cdp"

// target sets where a run takes place. The operator must enable the host twice: in the entry, and for the
// server or in a profile assigned by the operator.
func (p *Policy) target(r *Request, grant *Grant) *Denial {
	switch grant.Entry.Target {
	case "", TargetSandbox:
		grant.Target = TargetSandbox
		return nil
	case TargetHost:
		grant.Target = TargetHost
	default:
		return r.refuse(targetUnknown)
	}
	on, off := p.cfg.HostTarget, false
	p.eachProfile(r.Principal, r.Profiles, func(profile *Profile, operators bool) {
		switch profile.Target {
		case TargetHost:
			// A profile that a request selects must not open the host for itself.
			on = on || operators
		// A profile without a target leaves the choice to the others.
		case "":
		default:
			off = true
		}
	})
	switch {
	case off:
		return r.refuse(keptInSandbox)
	case !on:
		return r.refuse(hostNotEnabled)
	}
	// The frontmatter name is included: a skill can only subject itself to more rules.
	if r.SkillName == browserSkill || r.Skill == browserSkill ||
		strings.HasSuffix(r.Skill, "/"+browserSkill) {
		return r.lease(grant)
	}
	return nil
}

// lease restricts a run to the browser that its client leased. The arguments that name the browser are
// dropped: the script gets the endpoint only in its environment.
func (r *Request) lease(grant *Grant) *Denial {
	if err := r.Lease.check(r.Now); err != nil {
		return r.refuse(leaseInvalid, "{cause}", err.Error())
	}
	args := make([]string, 0, len(r.Args))
	for i := 0; i < len(r.Args); i++ {
		value, named := strings.CutPrefix(r.Args[i], cdpFlag+"=")
		if r.Args[i] == cdpFlag {
			// The value of the flag is dropped with it.
			i++
			named, value = true, ""
			if i < len(r.Args) {
				value = r.Args[i]
			}
		}
		switch {
		case !named:
			args = append(args, r.Args[i])
		// A script must not reach another browser than the leased one.
		case value != r.Lease.CDPURL:
			return r.refuse(otherBrowser)
		}
	}
	grant.Args, grant.CDP = args, r.Lease.CDPURL
	return nil
}
