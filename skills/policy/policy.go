// Package policy decides which requests are allowed. [Policy.Decide] is a pure function of the operator's
// configuration and the facts of a request: no I/O, no clock, no state. Every permission of the server is
// decided here; anything else is denied.
//
// The rules are evaluated in this order. The first that refuses decides. A run is every request whose class
// is not Read.
//
//	rule           applies to refuses when                                          code
//	tool           all        the server does not offer the tool                    tool_not_allowed
//	profile        all        a profile that applies does not exist or does not     profile_excludes
//	                          include the tool, the skill or the script
//	mode           all        the mode is not one of the four                       direct_command_required
//	handle         runs       the activation handle is unknown, expired or foreign  activation_unknown
//	activation     runs       the session has not loaded the skill                  skill_not_activated
//	allowlist      runs       no entry names exactly this skill:path                script_not_allowlisted
//	at start       runs       the skill was not there when the server started       script_snapshot_mismatch
//	pin            runs       no entry has both the script's digest and, where it   script_snapshot_mismatch
//	                          names one, the tree's; or no entry has a digest, and
//	                          the tree, or the script where the entry pins it
//	                          alone, is not the one of server start
//	allowed-tools  runs       the skill's declared tools do not cover this script   allowed_tools_conflict
//	tier, closed   runs       the operator closed the skill's tier to scripts       tier_denied
//	host           runs       the entry's target is the host, and neither the       permission_denied
//	                          server nor a profile of the operator enables it, or a
//	                          profile has target sandbox
//	lease          host runs  of agent-browser: the lease is absent, expired or not lease_invalid
//	                          of a browser on this machine, or --cdp is not its
//	release        runs       enforce-*, the run could reveal more than the skill's output_not_released
//	                          bytes and the arguments, and release is "none"
//	mode, strict   all        enforce-strict without evidence of a direct command   direct_command_required
//	mode, explicit runs       enforce-explicit without evidence of a direct command direct_command_required
//	approval       runs       enforce-*, and the user has not approved what the     approval_required
//	                          tier or the entry asks them to
//
// A run could reveal more if a workspace is mounted, if its entry grants network, environment or secrets, or
// if it is on the host.
//
// The modes as a matrix (reads / runs with evidence / runs without):
//
//	disabled          allowed / allowed / allowed
//	observe           allowed / allowed / allowed, warned
//	enforce-explicit  allowed / allowed / denied
//	enforce-strict    allowed with evidence, else denied / allowed / denied
//
// A run also needs, by its tier and its entry's ask:
//
//	              tier (default)                    always                   never
//	builtin, org  nothing                           an approval of the call  nothing
//	user          any evidence                      an approval of the call  nothing
//	third-party   an approval, may be remembered    an approval of the call  nothing
//	unknown       as third-party                    an approval of the call  nothing
//
// With ask session, a run of any tier needs the same as one of tier third-party.
//
// In disabled and observe none of this stops a run: the grant's Warning is the refusal of an enforcing mode,
// and WouldBe its code. No mode turns off the rules above the rules of modes, and a client can raise its mode
// but not lower it.
//
// Evidence of a direct command is a prompt slot with the role direct-command from a principal that is trusted
// with evidence. If a call has its own slot, the operator's binding for the process is ignored. An approval
// by the user is also evidence and overrides a slot with another role. So does an entry that never asks,
// since it pins the bytes of its script. Arguments are never evidence: a model writes them.
//
// If only an approval is missing, the refusal is an [ApprovalRequired]. The rules that a user can override
// come last.
//
// Profiles only narrow. All that apply are intersected: the operator's for the process, the principal's and
// the request's. A skill, a script or a tool is included by its exact name. A method that is not a tool is
// included if the profile lists it. Methods under resources/ are also included if it lists
// read_skill_resource, and so is load_skill for a file. Other methods are included if it lists load_skill or
// read_skill_resource, which show as much, or for skills/list search_skills. Only a profile assigned by the
// operator can enable the host.
//
// The package does not verify facts: the caller verifies digests, paths, the handle, the evidence of a slot
// and an approval.
package policy

import (
	"slices"

	"github.com/skillsd/skillsd/skills"
)

// Config is the configuration by the operator. The zero value offers no tool.
type Config struct {
	Tools                []string  // tools and methods that the server offers
	Allowlist            Allowlist // scripts that may run
	Mode                 Mode      // zero: EnforceExplicit
	Role                 Role      // evidence for every call of the process; zero: none
	Release              Release   // default of entries; zero: ReleaseNone
	AllowedToolsAdvisory bool      // allowed-tools of skills do not restrict their scripts
	ClosedTiers          []skills.Tier
	Profiles             []Profile // selectable by name, besides the built-in ones
	Profile              string    // applied to every call; may be empty
	HostTarget           bool      // entries with target host may run there
}

// Policy decides by one configuration. It is immutable and safe for concurrent use.
type Policy struct {
	cfg      Config
	profiles map[string]*Profile
}

// New accepts any configuration, even one that [Config.Check] rejects: an unknown profile includes nothing,
// and neither does a name of two profiles.
func New(cfg Config) *Policy {
	if cfg.Mode == 0 {
		cfg.Mode = EnforceExplicit
	}
	if cfg.Release == "" {
		cfg.Release = ReleaseNone
	}
	// A policy is shared by goroutines, so that later changes of the caller's lists must not reach it.
	cfg.Tools, cfg.ClosedTiers = slices.Clone(cfg.Tools), slices.Clone(cfg.ClosedTiers)
	cfg.Profiles = cloneProfiles(cfg.Profiles)
	return &Policy{cfg: cfg, profiles: byName(cfg.Profiles)}
}

// Offers reports whether the server offers a tool.
func (p *Policy) Offers(tool string) bool { return slices.Contains(p.cfg.Tools, tool) }

// Entries returns the entries of the allowlist in the order given.
func (p *Policy) Entries() []Entry { return p.cfg.Allowlist.Entries() }

// Names reports whether an entry names exactly this script, with whatever content.
func (p *Policy) Names(skill, path string) bool { return len(p.cfg.Allowlist.Find(skill, path)) > 0 }

// Mode returns the mode for a request that raises it: the stricter of raised and the configured mode. Zero
// raises nothing.
func (p *Policy) Mode(raised Mode) Mode { return p.cfg.Mode.Stricter(raised) }

// Decide allows or refuses a request.
//
// Errors: *Denial, *ApprovalRequired.
func (p *Policy) Decide(r Request) (Grant, error) {
	if !p.Offers(r.Tool) {
		return Grant{}, r.refuse(toolNotOffered)
	}
	if denial := p.excluded(&r); denial != nil {
		return Grant{}, denial
	}
	// A mode beyond the strictest would pass each comparison with a known one.
	if mode := p.Mode(r.Mode); mode < Disabled || mode > EnforceStrict {
		return Grant{}, r.refuse(modeUnknown)
	}
	if r.Class == Read {
		return p.decideRead(&r)
	}
	return p.decideRun(&r)
}

// decideRead applies the matrix of mode and evidence to a request that only shows bytes of a skill.
func (p *Policy) decideRead(r *Request) (Grant, error) {
	evidence := p.slotEvidence(r)
	// A read shows only bytes of the skill, so its release needs no decision.
	grant := Grant{Decision: Allowed, Release: ReleaseObserved, Evidence: evidence}
	switch mode := p.Mode(r.Mode); {
	case mode == Disabled:
		grant.RuleID = ruleDisabled
	case mode == Observe:
		grant.RuleID = ruleObserveRead
	case mode == EnforceExplicit:
		grant.RuleID = ruleExplicitRead
	case evidence != "":
		grant.RuleID = ruleStrictDirect
	default:
		return Grant{}, r.needsCommand(mode)
	}
	return grant, nil
}

// decideRun evaluates the rules that no approval overrides first, so that the user is not asked in vain.
func (p *Policy) decideRun(r *Request) (Grant, error) {
	grant := Grant{Decision: Allowed, Args: r.Args}
	if denial := p.permitted(r, &grant); denial != nil {
		return Grant{}, denial
	}
	mode, missing := p.Mode(r.Mode), p.missing(r, &grant)
	unreleased := p.release(r, &grant)
	if mode < EnforceExplicit {
		return r.warn(grant, mode, missing, unreleased), nil
	}
	// It comes before the question, since no answer of the user would let it run.
	if unreleased {
		return Grant{}, r.refuse(notReleased)
	}
	if missing != "" {
		return Grant{}, &ApprovalRequired{Denial: r.lacking(missing, mode, &grant.Entry),
			Remember: consentFor(r.Tier, grant.Entry.Ask) != consentOfCall, Entry: grant.Entry,
			Target: grant.Target, Tier: r.Tier}
	}
	return grant, nil
}

// permitted evaluates the rules of a run that neither evidence nor a mode overrides, and fills the grant.
func (p *Policy) permitted(r *Request, grant *Grant) (denial *Denial) {
	if denial := r.activation(); denial != nil {
		return denial
	}
	grant.Entry, denial = p.allowed(r)
	if denial != nil {
		return denial
	}
	if denial := p.narrowed(r); denial != nil {
		return denial
	}
	if slices.Contains(p.cfg.ClosedTiers, r.Tier) {
		return r.refuse(tierClosed)
	}
	return p.target(r, grant)
}
