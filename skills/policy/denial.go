package policy

import "errors"

// Reason is why an observation is denied, one of the reference's four.
type Reason string

// The reasons.
const (
	NotAuthorized          Reason = "not-authorized"
	NotObservable          Reason = "not-observable"
	NeedsOpaquePassThrough Reason = "needs-opaque-pass-through"
	NeedsSanitizingWorker  Reason = "needs-sanitizing-worker"
)

// Code names a denial. The list is closed.
type Code string

// The codes of denials with the reason not-authorized.
const (
	CodeToolNotAllowed        Code = "tool_not_allowed"
	CodeDirectCommandRequired Code = "direct_command_required"
	CodeSkillNotActivated     Code = "skill_not_activated"
	CodeActivationUnknown     Code = "activation_unknown"
	CodeScriptNotAllowlisted  Code = "script_not_allowlisted"
	CodeAllowedToolsConflict  Code = "allowed_tools_conflict"
	CodeTierDenied            Code = "tier_denied"
	CodeApprovalRequired      Code = "approval_required"
	CodeApprovalDeclined      Code = "approval_declined"
	CodeProfileExcludes       Code = "profile_excludes"
	CodePermissionDenied      Code = "permission_denied"
	CodeLeaseInvalid          Code = "lease_invalid"
)

// The codes of denials with the reason not-observable.
const (
	CodeResourceOutsideRoot    Code = "resource_outside_root"
	CodeScriptOutsideRoot      Code = "script_outside_root"
	CodeScriptSnapshotMismatch Code = "script_snapshot_mismatch"
	CodeOutputNotReleased      Code = "output_not_released"
	CodeResumeDrift            Code = "resume_drift"
)

// Reason is the reason a code stands for.
func (c Code) Reason() Reason {
	switch c {
	case CodeResourceOutsideRoot, CodeScriptOutsideRoot, CodeScriptSnapshotMismatch, CodeOutputNotReleased, CodeResumeDrift:
		return NotObservable
	}
	return NotAuthorized
}

// Denial is a refusal. Its texts are public: they hold no host path, no secret and no value of the
// caller's longer than a name.
type Denial struct {
	Reason Reason
	Code   Code
	Detail string // the tool and the missing authority
	Skill  string
	Path   string
	Remedy string // who can change it and how
	RuleID string
}

// NewDenial returns a denial with the reason of its code and the code as its rule.
func NewDenial(code Code, detail, remedy string) *Denial {
	return &Denial{Reason: code.Reason(), Code: code, Detail: detail, Remedy: remedy, RuleID: string(code)}
}

func (d *Denial) Error() string { return d.Detail }

// ApprovalRequired is a refusal that an approval by the user would lift.
type ApprovalRequired struct {
	Denial   *Denial // what is answered when nobody can be asked
	Remember bool    // whether an approval for the rest of the session would do
	Entry    Entry   // what the run could use
	Target   Target
}

func (a *ApprovalRequired) Error() string { return a.Denial.Detail }

// Unwrap makes the denial reachable for errors.As.
func (a *ApprovalRequired) Unwrap() error { return a.Denial }

// DenialOf returns the denial in an error of Decide.
func DenialOf(err error) *Denial {
	if denial, ok := errors.AsType[*Denial](err); ok {
		return denial
	}
	panic("policy: not an error of Decide: " + err.Error())
}
