package policy

import "strings"

// The skill that drives a browser on the host and needs a lease of it.
const browserSkill = "agent-browser"

// cdpFlag is the argument with which a script of that skill names its browser.
const cdpFlag = "--cdp"

// target settles where a run takes place. The host needs two words of the operator's: the entry's, and
// the server's or that of a profile that the operator chose.
func (p *Policy) target(r *Request, grant *Grant) *Denial {
	switch grant.Entry.Target {
	case "", TargetSandbox:
		grant.Target = TargetSandbox
		return nil
	case TargetHost:
		grant.Target = TargetHost
	default:
		return r.refuse(CodePermissionDenied, "permission_denied", r.Tool+": the entry's target is unknown", "the operator can set it to sandbox or host")
	}
	on, off := p.cfg.HostTarget, false
	p.eachProfile(r.Principal, r.Profiles, func(profile *Profile, operators bool) {
		switch profile.Target {
		case TargetHost:
			on = on || operators
		case "":
		default:
			off = true
		}
	})
	switch {
	case off:
		return r.refuse(CodePermissionDenied, "permission_denied", r.Tool+": a profile of this session keeps scripts in the sandbox, and this one runs on the host",
			"the operator can choose another profile, or set the entry's target to sandbox")
	case !on:
		return r.refuse(CodePermissionDenied, "permission_denied", r.Tool+": this script runs on the host, which is not enabled",
			"the operator can start the server with --skill-script-execution-target host, or with a profile whose target is host")
	}
	if r.SkillName == browserSkill || r.Skill == browserSkill || strings.HasSuffix(r.Skill, "/"+browserSkill) {
		return r.lease(grant)
	}
	return nil
}

// lease holds a run to the browser that its client leased. The arguments that name it are dropped: the
// endpoint reaches the script in its environment alone.
func (r *Request) lease(grant *Grant) *Denial {
	invalid := func(detail, remedy string) *Denial {
		return r.refuse(CodeLeaseInvalid, "lease_invalid", r.Tool+": "+detail, remedy)
	}
	if err := r.Lease.check(r.Now); err != nil {
		return invalid(err.Error(), "the client can lease a browser on this machine and send it with the call as _meta skillsd/browser-lease")
	}
	args := make([]string, 0, len(r.Args))
	for i := 0; i < len(r.Args); i++ {
		value, named := strings.CutPrefix(r.Args[i], cdpFlag+"=")
		if r.Args[i] == cdpFlag {
			i++
			named, value = true, ""
			if i < len(r.Args) {
				value = r.Args[i]
			}
		}
		switch {
		case !named:
			args = append(args, r.Args[i])
		case value != r.Lease.CDPURL:
			return invalid(cdpFlag+" names another browser than the lease", "leave "+cdpFlag+" out: the script is given the leased browser")
		}
	}
	grant.Args, grant.CDP = args, r.Lease.CDPURL
	return nil
}
