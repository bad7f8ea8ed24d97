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
	"cmp"
	"slices"
	"strings"

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

// Config returns the configuration of the policy with defaults filled in. The caller must not change its
// lists.
func (p *Policy) Config() Config { return p.cfg }

// Offers reports whether the server offers a tool.
func (p *Policy) Offers(tool string) bool { return slices.Contains(p.cfg.Tools, tool) }

// Entries returns the entries of the allowlist in the order given.
func (p *Policy) Entries() []Entry { return p.cfg.Allowlist.Entries() }

// Names reports whether an entry names exactly this script, with whatever content.
func (p *Policy) Names(skill, path string) bool { return len(p.cfg.Allowlist.Find(skill, path)) > 0 }

// Mode returns the mode for a request that raises it: the stricter of raised and the configured mode. Zero
// raises nothing.
func (p *Policy) Mode(raised Mode) Mode { return max(p.cfg.Mode, raised) }

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
	mode := p.Mode(r.Mode)
	if mode < Disabled || mode > EnforceStrict {
		return Grant{}, r.refuse(modeUnknown)
	}
	if r.Class == Read {
		return p.decideRead(&r, mode)
	}
	return p.decideRun(&r, mode)
}

// decideRead applies the matrix of mode and evidence to a request that only shows bytes of a skill.
func (p *Policy) decideRead(r *Request, mode Mode) (Grant, error) {
	evidence := p.slotEvidence(r)
	// A read shows only bytes of the skill, so its release needs no decision.
	grant := Grant{Decision: Allowed, Release: ReleaseObserved, Evidence: evidence}
	switch {
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
func (p *Policy) decideRun(r *Request, mode Mode) (Grant, error) {
	switch {
	case r.ActivationUnknown:
		return Grant{}, r.refuse(handleUnknown)
	case !r.Activated && r.Unnamed:
		return Grant{}, r.refuse(notActivatedUnnamed)
	case !r.Activated:
		return Grant{}, r.refuse(notActivated)
	}
	entry, denial := p.allowed(r)
	if denial != nil {
		return Grant{}, denial
	}
	if denial := p.narrowed(r); denial != nil {
		return Grant{}, denial
	}
	if slices.Contains(p.cfg.ClosedTiers, r.Tier) {
		return Grant{}, r.refuse(tierClosed)
	}
	grant := Grant{Decision: Allowed, Entry: entry, Args: r.Args}
	if denial := p.target(r, &grant); denial != nil {
		return Grant{}, denial
	}

	missing, unreleased := p.missing(r, mode, &grant), p.release(r, &grant)
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

// allowed returns the entry for exactly this script if the content matches: the digests of the entry for the
// script and the skill's tree, or else the tree at server start, or for an entry that pins the script alone,
// the script at server start.
func (p *Policy) allowed(r *Request) (Entry, *Denial) {
	entries := p.cfg.Allowlist.index[scriptKey{r.Skill, r.Path}]
	if len(entries) == 0 {
		// A script that the skill lacks has the code of the reference, but another text: allowing it would
		// not help.
		if r.FileDigest == "" {
			return Entry{}, r.refuse(noSuchScript, "{instead}", r.Instead)
		}
		if !isSkillPath(r.Skill) {
			return Entry{}, r.refuse(notNameable)
		}
		return Entry{}, r.refuse(notAllowlisted)
	}
	// Nothing was pinned for a skill that came later.
	if r.StartTree == "" {
		return Entry{}, r.refuse(absentAtStart)
	}
	// pinned: some entry has a digest of the script. around: its script matches, but not the tree.
	pinned, around := false, false
	for i := range entries {
		if entries[i].Pin == "" {
			continue
		}
		switch entries[i].Changed(r.FileDigest, r.TreeDigest) {
		case Unchanged:
			return entries[i], nil
		case TreeChanged:
			around = true
		}
		// The loop goes on, since another entry may allow this content.
		pinned = true
	}
	switch {
	case around:
		return Entry{}, r.refuse(pinnedTreeChanged)
	case pinned:
		return Entry{}, r.refuse(pinnedScriptChanged)
	// Without a pin all entries of a script are one entry, because NewAllowlist accepts one for each pin.
	case entries[0].PinScript && (r.StartFile == "" || r.StartFile != r.FileDigest):
		return Entry{}, r.refuse(scriptChanged)
	case !entries[0].PinScript && r.StartTree != r.TreeDigest:
		return Entry{}, r.refuse(treeChanged)
	}
	return entries[0], nil
}

// Covers reports whether the allowed-tools of a script's skill let it run. If not, every run of it is
// refused.
func (p *Policy) Covers(r Request) bool { return p.narrowed(&r) == nil }

// narrowed refuses a script that the allowed-tools of its own skill do not cover.
func (p *Policy) narrowed(r *Request) *Denial {
	if !r.AllowedToolsDeclared || p.cfg.AllowedToolsAdvisory || covers(r.AllowedTools, r.Path, r.Runtime) {
		return nil
	}
	return r.refuse(toolsConflict)
}

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

// Reason codes of the mode rules, as in the reference implementation.
const (
	ruleDisabled        = "cfc_disabled"
	ruleObserveRead     = "cfc_observe_read"
	ruleObserveDirect   = "cfc_observe_direct_command"
	ruleObserveRequires = "cfc_observe_requires_direct_command"
	ruleExplicitRead    = "cfc_enforce_explicit_read"
	ruleExplicitDirect  = "cfc_enforce_explicit_direct_command"
	ruleExplicitNeeds   = "cfc_enforce_explicit_requires_direct_command"
	ruleStrictDirect    = "cfc_enforce_strict_direct_command"
	ruleStrictNeeds     = "cfc_enforce_strict_requires_direct_command"
	ruleProfile         = "subagent_profile_not_allowed"
)

// directRules are the rules of runs with evidence of a direct command. A grant without any has the same rule,
// except in mode observe.
var directRules = [...]string{Disabled: ruleDisabled, Observe: ruleObserveDirect,
	EnforceExplicit: ruleExplicitDirect, EnforceStrict: ruleStrictDirect}

// slotEvidence returns the evidence of prompt slots: of the call's own slot if it has one and its principal
// is trusted with evidence, else of the operator's binding.
func (p *Policy) slotEvidence(r *Request) Evidence {
	switch {
	// A slot with another role is not evidence, even if the operator binds the process: it is about this very
	// call.
	case r.Slot != nil && r.Principal.Evidence:
		if r.Slot.Role == DirectCommand {
			return EvidenceSlot
		}
	case p.cfg.Role == DirectCommand:
		return EvidenceOperator
	}
	return ""
}

// consent is what a run needs from the user besides the evidence for the mode, in ascending order.
type consent int

const (
	consentNone         consent = iota
	consentConfirmation         // any evidence
	consentApproval             // an approval, which may be remembered
	consentOfCall               // an approval of exactly this call
)

func consentFor(tier skills.Tier, ask Ask) consent {
	switch ask {
	case AskNever:
		return consentNone
	case AskSession:
		return consentApproval
	// The tier decides below. Any unknown value asks for the strictest consent.
	case "", AskTier:
	default:
		return consentOfCall
	}
	switch tier.Scripts() {
	case skills.ConsentNone:
		return consentNone
	case skills.ConsentWish:
		return consentConfirmation
	}
	return consentApproval
}

// missing sets the evidence and the rule of a run's grant. It returns the code of what enforcement would
// lack: evidence of a direct command, else an approval; empty if neither is missing.
func (p *Policy) missing(r *Request, mode Mode, grant *Grant) Code {
	// Values other than the two constants, such as one of a later version, approve nothing.
	approved := r.Approved == ApprovalRemembered || r.Approved == ApprovalOfCall
	needs := consentFor(r.Tier, grant.Entry.Ask)
	grant.Evidence = p.slotEvidence(r)
	if approved && (grant.Evidence == "" || needs >= consentApproval) {
		grant.Evidence = EvidenceApproval
	}
	// The pin is checked again, although Check refuses such an entry: New accepts any configuration.
	if grant.Evidence == "" && grant.Entry.Ask == AskNever && grant.Entry.Pin != "" {
		grant.Evidence = EvidenceEntry
	}
	// From here on, any evidence is as good as a direct command.
	direct := grant.Evidence != ""
	grant.RuleID = directRules[mode]
	if mode == Observe && !direct {
		grant.RuleID = ruleObserveRequires
	}
	switch {
	// In mode disabled, evidence is missing only for a tier that asks for it.
	case !direct && (mode != Disabled || needs == consentConfirmation):
		return CodeDirectCommandRequired
	case needs == consentApproval && !approved, needs == consentOfCall && r.Approved != ApprovalOfCall:
		return CodeApprovalRequired
	}
	return ""
}

// lacking returns the denial of a run that an approval by the user would allow.
func (r *Request) lacking(missing Code, mode Mode, entry *Entry) *Denial {
	if missing == CodeDirectCommandRequired {
		return r.needsCommand(mode)
	}
	switch entry.Ask {
	case "", AskTier:
	case AskSession:
		return r.refuse(entryNeedsSession)
	default:
		return r.refuse(entryNeedsApproval)
	}
	return r.refuse(tierNeedsApproval)
}

// needsCommand returns the denial for missing evidence of a direct command.
func (r *Request) needsCommand(mode Mode) *Denial {
	why := strictNeedsCommand
	if mode == EnforceExplicit {
		why = explicitNeedsCommand
	}
	switch r.Class {
	case Read:
		// An approval covers a call of a script; none exists for reads.
		why.remedy = "ask the user to have the server take their requests for commands of theirs"
	default:
		why.operator = operatorNever
	}
	return r.refuse(why, "{mode}", mode.String())
}

// warn adds to a grant in a mode that does not enforce the first refusal that an enforcing mode would return.
func (r *Request) warn(grant Grant, mode Mode, missing Code, unreleased bool) Grant {
	switch {
	case unreleased && mode == Observe:
		grant.WouldBe, grant.Warning = CodeOutputNotReleased,
			r.Tool+" would require that its output is released in enforce modes"
	case missing == CodeDirectCommandRequired:
		grant.WouldBe, grant.Warning = missing,
			r.Tool+" would require direct-command authorization in enforce modes"
	case missing == CodeApprovalRequired:
		grant.WouldBe, grant.Warning = missing,
			r.Tool+" would require an approval by the user in enforce modes"
	}
	// In mode disabled the reference allows a run without evidence, so that the decision is not a warning.
	if missing == CodeApprovalRequired || missing == CodeDirectCommandRequired && mode == Observe {
		grant.Decision = Warned
	}
	return grant
}

// release sets what happens to the output and reports whether enforcement refuses the run because of it. The
// refusal comes before the run, since its side effects could not be undone. Without a workspace, a run in the
// sandbox can reveal only the skill's own bytes and the caller's arguments.
func (p *Policy) release(r *Request, grant *Grant) (unreleased bool) {
	entry := &grant.Entry
	release := cmp.Or(entry.Release, p.cfg.Release)
	if release == ReleaseOpaque {
		grant.Release = ReleaseOpaque
		return false
	}
	grant.Release = ReleaseObserved
	return entry.reveals(grant.Target, r.Workspace) && release != ReleaseObserved
}

// reveals reports whether a run of this entry on a target, with or without a workspace, could reveal more
// than the skill's own bytes and the caller's arguments.
func (e *Entry) reveals(target Target, workspace bool) bool {
	return target == TargetHost || workspace && e.Workspace != "none" ||
		len(e.Network)+len(e.Env)+len(e.Secrets) > 0
}

// Unreleased reports whether every run of an entry is refused, for any caller and any approval: the
// configured mode enforces, the run could reveal more than the skill's own bytes and the arguments, and
// neither the entry nor the configuration releases its output. workspace is whether runs get a workspace.
func (p *Policy) Unreleased(entry Entry, workspace bool) bool {
	// A client can only raise the mode, so an enforcing mode of the configuration holds for every call.
	return p.cfg.Mode >= EnforceExplicit && entry.reveals(entry.Target, workspace) &&
		cmp.Or(entry.Release, p.cfg.Release) == ReleaseNone
}
