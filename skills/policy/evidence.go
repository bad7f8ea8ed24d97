package policy

import "github.com/skillsd/skillsd/skills"

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
func (p *Policy) missing(r *Request, grant *Grant) Code {
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
	switch p.Mode(r.Mode) {
	case Disabled:
		grant.RuleID = ruleDisabled
	case Observe:
		grant.RuleID = ruleObserveDirect
		if !direct {
			grant.RuleID = ruleObserveRequires
		}
	case EnforceExplicit:
		grant.RuleID = ruleExplicitDirect
	case EnforceStrict:
		grant.RuleID = ruleStrictDirect
	}
	switch {
	// In mode disabled, evidence is missing only for a tier that asks for it.
	case !direct && (p.Mode(r.Mode) != Disabled || needs == consentConfirmation):
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
	release := entry.release(p.cfg.Release)
	if release == ReleaseOpaque {
		grant.Release = ReleaseOpaque
		return false
	}
	grant.Release = ReleaseObserved
	return entry.reveals(grant.Target, r.Workspace) && release != ReleaseObserved
}

// Unreleased reports whether every run of an entry is refused, for any caller and any approval: the
// configured mode enforces, the run could reveal more than the skill's own bytes and the arguments, and
// neither the entry nor the configuration releases its output. workspace is whether runs get a workspace.
func (p *Policy) Unreleased(entry Entry, workspace bool) bool {
	// A client can only raise the mode, so an enforcing mode of the configuration holds for every call.
	return p.cfg.Mode >= EnforceExplicit && entry.reveals(entry.Target, workspace) &&
		entry.release(p.cfg.Release) == ReleaseNone
}
