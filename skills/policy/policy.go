// Package policy decides. [Policy.Decide] is one pure function of the operator's configuration and
// the facts of a request: no I/O, no clock, no state. Every permission of the server is decided
// here, and what is not decided is denied.
//
// The rules, in the order in which they are asked. The first that refuses decides.
//
//	rule             applies to  refuses when                                              code
//	tool             all         the session is not offered the tool                       tool_not_allowed
//	handle           runs        the activation handle is unknown, expired or foreign      activation_unknown
//	activation       runs        the session has not loaded the skill                      skill_not_activated
//	allowlist        runs        no entry names exactly this skill:path                    script_not_allowlisted
//	absent at start  runs        the skill was not there when the server started           script_snapshot_mismatch
//	pin              runs        the script has none of its entries' digests or, when no   script_snapshot_mismatch
//	                             entry has one, the tree is not the one of server start
//	allowed-tools    runs        the skill declares tools that do not cover this script    allowed_tools_conflict
//	tier, closed     runs        the operator closed the skill's tier to scripts           tier_denied
//	tier, approval   runs        the tier is third-party or unknown, or the entry says     approval_required
//	                             always, in every mode: there is nobody to ask
//	mode, strict     all         enforce-strict without evidence of a direct command       direct_command_required
//	mode, explicit   runs        enforce-explicit without evidence of a direct command     direct_command_required
//	release          runs        enforce-*, the run could reveal more than the skill's     output_not_released
//	                             bytes and the arguments, and release is none
//
// A run is every request whose class is not Read. A run could reveal more when a workspace is
// mounted or its entry grants network, environment or secrets.
//
// The modes as a matrix (reads / runs with evidence / runs without):
//
//	disabled          allowed / allowed / allowed
//	observe           allowed / allowed / allowed, warned
//	enforce-explicit  allowed / allowed / denied
//	enforce-strict    allowed with evidence, else denied / allowed / denied
//
// Evidence of a direct command is a prompt slot with the role direct-command that the transport
// authenticated; a call's own slot decides alone, else the operator's binding for the process
// counts. Arguments are never evidence: a model writes them. No mode turns off the allowlist, the
// pins or the tier rules, and a client can raise its mode but not lower it.
package policy

import (
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
)

// Config is what an operator configured. The zero value offers no tool.
type Config struct {
	Tools                []string  // tools and methods the server offers
	Allowlist            Allowlist // scripts that may run
	Mode                 Mode      // zero: EnforceExplicit
	Role                 Role      // evidence for every call of the process; zero: none
	Release              Release   // of entries that do not say; zero: ReleaseNone
	AllowedToolsAdvisory bool      // a skill's allowed-tools does not narrow its scripts
	ClosedTiers          []skills.Tier
	Profiles             []Profile // that can be chosen by name
	Profile              string    // of every call; empty narrows nothing
	HostTarget           bool      // entries whose target is the host may run there
}

// Policy decides after one configuration. It is immutable and safe for concurrent use.
type Policy struct{ cfg Config }

// New returns the policy of a configuration.
func New(cfg Config) *Policy {
	if cfg.Mode == 0 {
		cfg.Mode = EnforceExplicit
	}
	if cfg.Release == "" {
		cfg.Release = ReleaseNone
	}
	cfg.Tools, cfg.ClosedTiers = slices.Clone(cfg.Tools), slices.Clone(cfg.ClosedTiers)
	return &Policy{cfg: cfg}
}

// Offers reports whether a tool is offered at all.
func (p *Policy) Offers(tool string) bool { return slices.Contains(p.cfg.Tools, tool) }

// Allowlists reports whether the run tool is offered and an entry names exactly this script. It says
// nothing of pins, tiers or modes: only Decide permits.
func (p *Policy) Allowlists(skill, path string) bool {
	return p.Offers(runTool) && len(p.cfg.Allowlist.Find(skill, path)) > 0
}

// Entries are the allowlist's entries in the order given.
func (p *Policy) Entries() []Entry { return p.cfg.Allowlist.Entries() }

// Mode is the mode in effect for a request that asks for raised: the stricter of it and the
// configured one. The zero value asks for nothing.
func (p *Policy) Mode(raised Mode) Mode { return p.cfg.Mode.Stricter(raised) }

// Principal is who makes a request.
type Principal struct {
	Name     string // "local" on stdio
	Evidence bool   // whether what it says about prompt slots is believed
	Profile  string // that the operator gave it; empty narrows nothing
}

// Request holds the facts of one request. Paths are canonical.
type Request struct {
	Tool      string // tool name, or JSON-RPC method
	Class     Class
	Mode      Mode // what the client raises its mode to
	Principal Principal
	Slot      *PromptSlot // the call's own evidence, nil when it has none
	Profiles  []string    // that the session or the call narrows itself to, beside the operator's

	Skill                string // skill path; empty when the request is of no skill
	Tier                 skills.Tier
	AllowedTools         []string // as the skill declares them
	AllowedToolsDeclared bool

	// Of a run.
	ActivationUnknown bool          // the call names a session that does not exist
	Activated         bool          // the session has loaded the skill
	Path              string        // of the script, below scripts/
	FileDigest        digest.Digest // of the script in the activated tree; empty when it is not in it
	TreeDigest        digest.Digest // of the activated tree
	StartTree         digest.Digest // of the skill's tree at server start; empty when it was absent
	Workspace         bool          // a workspace is mounted
	Approved          bool          // the user approved this script of this tree, and was asked by this server
	Args              []string      // of the script
	Lease             *Lease        // of a browser, nil when the call has none
	Now               time.Time     // what leases are held to
}

// Decision is how a request was allowed.
type Decision string

// The decisions of a Grant.
const (
	Allowed Decision = "allowed"
	Warned  Decision = "warned" // enforcement would have refused
)

// Grant is what an allowed request may use.
type Grant struct {
	Decision Decision
	RuleID   string // the reason code, a word of the reference's
	Warning  string // what enforcement would have said, when Warned
	Entry    Entry  // of a run
	Release  Release
	Target   Target   // of a run
	Args     []string // of a run: those to pass on
	CDP      string   // of a run that holds a lease: the endpoint
}

// Decide allows or refuses a request.
//
// Errors: *Denial, *ApprovalRequired.
func (p *Policy) Decide(r Request) (Grant, error) {
	if !p.Offers(r.Tool) {
		return Grant{}, r.refuse(CodeToolNotAllowed, "tool_not_allowed", clip(r.Tool)+" is not allowed in this run",
			"the operator can offer it with --allow-tool "+clip(r.Tool))
	}
	if r.Class == Read {
		return p.decideMode(&r)
	}
	if denial := r.activation(); denial != nil {
		return Grant{}, denial
	}
	entry, denial := p.allowed(&r)
	if denial != nil {
		return Grant{}, denial
	}
	if denial := p.narrowed(&r); denial != nil {
		return Grant{}, denial
	}
	if err := p.tier(&r, entry); err != nil {
		return Grant{}, err
	}
	grant, err := p.decideMode(&r)
	if err != nil {
		return Grant{}, err
	}
	grant.Entry, grant.Release = entry, entry.release(p.cfg.Release)
	return p.release(&r, grant)
}

// activation holds a run to the skills its session has loaded.
func (r *Request) activation() *Denial {
	switch {
	case r.ActivationUnknown:
		return r.refuse(CodeActivationUnknown, "activation_unknown", r.Tool+": the activation handle is unknown or has expired",
			"call load_skill again and use the handle it returns")
	case !r.Activated:
		return r.refuse(CodeSkillNotActivated, "skill_not_activated", r.Tool+": skill is not activated for this run: "+clip(r.Skill),
			"call load_skill with this skill, then run the script again")
	}
	return nil
}

// allowed finds the entry that names exactly this script and holds the script to it: to the digests
// the operator gave, else to the tree that was there when the operator started the server.
func (p *Policy) allowed(r *Request) (Entry, *Denial) {
	entries := p.cfg.Allowlist.Find(r.Skill, r.Path)
	if len(entries) == 0 {
		return Entry{}, r.refuse(CodeScriptNotAllowlisted, "script_not_allowlisted", r.Tool+": skill script is not exactly allowlisted: "+clip(r.Skill+":"+r.Path),
			"the operator can allow it with --allow-skill-script "+clip(r.Skill+":"+r.Path))
	}
	if r.StartTree == "" {
		return Entry{}, r.mismatch("the skill was not there when the server started, so its entry allows nothing",
			"the operator can review the skill and restart the server")
	}
	pinned := false
	for _, entry := range entries {
		if entry.Pin != "" && entry.Pin == r.FileDigest {
			return entry, nil
		}
		pinned = pinned || entry.Pin != ""
	}
	switch {
	case pinned:
		return Entry{}, r.mismatch("the script's digest is not the one the operator allowed",
			"the operator can review the script and restart the server with its digest in the entry")
	case r.StartTree != r.TreeDigest:
		return Entry{}, r.mismatch("the skill's files differ from those that were there when the server started",
			"the operator can review the change and restart the server")
	}
	return entries[0], nil
}

func (r *Request) mismatch(detail, remedy string) *Denial {
	return r.refuse(CodeScriptSnapshotMismatch, "script_snapshot_mismatch", r.Tool+": "+detail, remedy)
}

// narrowed holds a skill to the tools it declares itself.
func (p *Policy) narrowed(r *Request) *Denial {
	if !r.AllowedToolsDeclared || p.cfg.AllowedToolsAdvisory || covers(r.AllowedTools, r.Path) {
		return nil
	}
	return r.refuse(CodeAllowedToolsConflict, "allowed_tools_conflict", r.Tool+": the skill's own allowed-tools does not cover this script",
		"the skill's author can add run_skill_script to allowed-tools, or the operator can serve with --allowed-tools advisory")
}

// tier holds a skill to what its origin is trusted with.
func (p *Policy) tier(r *Request, entry Entry) error {
	if slices.Contains(p.cfg.ClosedTiers, r.Tier) {
		return r.refuse(CodeTierDenied, "tier_denied", r.Tool+": scripts of tier "+r.Tier.String()+" are not run here",
			"the operator can serve without --tier-scripts "+r.Tier.String()+"=deny")
	}
	trusted := r.Tier == skills.TierBuiltin || r.Tier == skills.TierOrg || r.Tier == skills.TierUser
	switch {
	case !trusted:
		return &ApprovalRequired{Denial: r.refuse(CodeApprovalRequired, "approval_required",
			r.Tool+": scripts of tier "+r.Tier.String()+" need an approval for each run, which this server cannot ask for",
			"the operator can review the skill and serve its root with a higher tier: --skills-root user=DIR")}
	case entry.Approve != "" && entry.Approve != ApproveTier:
		return &ApprovalRequired{Denial: r.refuse(CodeApprovalRequired, "approval_required",
			r.Tool+": this script needs an approval for each run, which this server cannot ask for",
			"the operator can change the entry's approve")}
	}
	return nil
}

// Reason codes of the mode rules, the reference's words.
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
)

// decideMode is the matrix of mode, evidence and class.
func (p *Policy) decideMode(r *Request) (Grant, error) {
	direct := p.role(r) == DirectCommand
	switch p.Mode(r.Mode) {
	case Disabled:
		return allow(ruleDisabled)
	case Observe:
		switch {
		case r.Class == Read:
			return allow(ruleObserveRead)
		case direct:
			return allow(ruleObserveDirect)
		}
		return Grant{Decision: Warned, RuleID: ruleObserveRequires, Release: ReleaseObserved,
			Warning: r.Tool + " would require direct-command authorization in enforce modes"}, nil
	case EnforceExplicit:
		switch {
		case r.Class == Read:
			return allow(ruleExplicitRead)
		case direct:
			return allow(ruleExplicitDirect)
		}
		return Grant{}, r.needsCommand(ruleExplicitNeeds, EnforceExplicit)
	case EnforceStrict:
		if direct {
			return allow(ruleStrictDirect)
		}
		return Grant{}, r.needsCommand(ruleStrictNeeds, EnforceStrict)
	}
	return Grant{}, r.refuse(CodeDirectCommandRequired, "mode_unknown", r.Tool+": the enforcement mode is unknown", "the operator can set --cfc-enforcement-mode")
}

// role is the evidence that counts: the call's own slot alone, when its principal is believed,
// else the operator's binding.
func (p *Policy) role(r *Request) Role {
	if r.Slot != nil && r.Principal.Evidence {
		return r.Slot.Role
	}
	return p.cfg.Role
}

// release decides before the run whether its output may be shown, because refusing after the side
// effect helps nobody. Without a workspace a run can only reveal the skill's own bytes and the
// caller's arguments.
func (p *Policy) release(r *Request, grant Grant) (Grant, error) {
	if grant.Release == ReleaseOpaque {
		return grant, nil
	}
	revealing := r.Workspace || grant.Entry.Revealing()
	enforced := p.Mode(r.Mode) >= EnforceExplicit
	if revealing && enforced && grant.Release != ReleaseObserved {
		return Grant{}, r.refuse(CodeOutputNotReleased, "output_not_released", r.Tool+": the run could show the model more than the skill's own files, and its output is not released",
			"the operator can release it with --release observed, or --release opaque to run it without showing its output")
	}
	grant.Release = ReleaseObserved
	return grant, nil
}

func allow(rule string) (Grant, error) {
	return Grant{Decision: Allowed, RuleID: rule, Release: ReleaseObserved}, nil
}

// needsCommand refuses for want of evidence. For a run an approval by the user would be one.
func (r *Request) needsCommand(rule string, mode Mode) error {
	denial := r.refuse(CodeDirectCommandRequired, rule, r.Tool+" requires direct-command authorization in "+mode.String(),
		"the operator can start the server with --prompt-slot-role direct-command, or the client can send a prompt slot with that role")
	if r.Class == Read {
		return denial
	}
	return &ApprovalRequired{Denial: denial}
}

func (r *Request) refuse(code Code, rule, detail, remedy string) *Denial {
	d := NewDenial(code, detail, remedy)
	d.Skill, d.Path, d.RuleID = clip(r.Skill), clip(r.Path), rule
	return d
}
