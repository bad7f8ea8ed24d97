package policy

import (
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	sh "github.com/skillsd/skillsd/skills/script"
)

// Principal is the authenticated caller of a request.
type Principal struct {
	Name     string // "local" on stdio
	Evidence bool   // its prompt slots are accepted as evidence
	Profile  string // assigned by the operator; may be empty
}

// Request holds the facts of one request. Paths are canonical.
type Request struct {
	Tool      string // tool name, or JSON-RPC method
	Class     Class
	Mode      Mode // requested by the client; can only raise the mode
	Principal Principal
	Slot      *PromptSlot // the call's own evidence, or nil
	Profiles  []string    // selected by the session or the call, besides the operator's

	Skill                string // skill path; empty if the request is about no skill
	SkillName            string // from its frontmatter; can only add rules
	Tier                 skills.Tier
	AllowedTools         []string // as declared by the skill
	AllowedToolsDeclared bool
	File                 bool // the read shows a file by its path

	// For runs only.
	ActivationUnknown bool   // the call names a session that does not exist
	Activated         bool   // the session has loaded the skill
	Unnamed           bool   // only a handle connects the call with the session
	Path              string // of the script
	// Runtime is the interpreter of the script, which allowed-tools may name; may be empty.
	Runtime    sh.Runtime
	FileDigest digest.Digest // of the script in the activated tree; empty if missing there
	Instead    string        // for a missing script: the existing ones, as a phrase
	TreeDigest digest.Digest // of the activated tree
	StartTree  digest.Digest // of the skill's tree at server start; empty if absent then
	StartFile  digest.Digest // of the script in that tree; empty if missing there
	Workspace  bool          // a workspace is mounted, unless the entry has none
	Approved   Approval      // given by the user to this server
	Args       []string      // arguments of the script
	Lease      *Lease        // browser lease, or nil
	Now        time.Time     // current time, for the expiry of leases
}

// Approval is what the user approved. Values other than the constants are ApprovalNone.
type Approval int

// The approvals.
const (
	ApprovalNone       Approval = iota
	ApprovalRemembered          // this script of this tree, for the rest of the session
	ApprovalOfCall              // exactly this call
)

// Decision is how a request was allowed.
type Decision string

// The decisions of a Grant.
const (
	Allowed Decision = "allowed"
	Warned  Decision = "warned" // enforcement would require evidence or an approval
)

// Evidence is the kind of evidence that a user wants a request. The zero value is no evidence.
type Evidence = string

// The kinds of evidence.
const (
	EvidenceSlot     Evidence = "prompt-slot" // a slot of the call itself
	EvidenceApproval Evidence = "approval"
	EvidenceOperator Evidence = "operator" // the binding for the whole process
	EvidenceEntry    Evidence = "entry"    // an entry that never asks and pins the bytes
)

// Grant describes what an allowed request may use.
type Grant struct {
	Decision Decision
	RuleID   string   // the reason code, as in the reference implementation
	Evidence Evidence // of a direct command, or empty
	// Warning is the refusal of an enforcing mode. It may be set with Allowed, if only the release of the
	// output or, in mode disabled, the confirmation for tier user is missing.
	Warning string
	WouldBe Code  // the code of that refusal, or empty
	Entry   Entry // for runs
	Release Release
	Target  Target   // for runs
	Args    []string // for runs: the arguments to pass on
	CDP     string   // for runs with a lease: the endpoint
}

// Mode is the CFC enforcement mode. Larger is stricter; the zero value is not a mode.
type Mode int

// The modes, from the most permissive to the strictest.
const (
	Disabled Mode = iota + 1
	Observe
	EnforceExplicit
	EnforceStrict
)

var modeNames = []string{"", "disabled", "observe", "enforce-explicit", "enforce-strict"}

func (m Mode) String() string {
	if m < 0 || int(m) >= len(modeNames) {
		return fmt.Sprintf("Mode(%d)", int(m))
	}
	return modeNames[m]
}

// ParseMode parses the name of a mode.
func ParseMode(name string) (Mode, error) {
	if i := slices.Index(modeNames, name); i > 0 {
		return Mode(i), nil
	}
	return 0, fmt.Errorf("unknown mode %q; use disabled, observe, enforce-explicit or enforce-strict",
		Clip(name))
}

// Stricter returns the stricter of two modes.
func (m Mode) Stricter(other Mode) Mode { return max(m, other) }

// Class is the kind of a request. Any value but Read is subject to the rules for side effects.
type Class int

// The classes.
const (
	Read       Class = iota + 1 // shows bytes of a skill
	SideEffect                  // runs something
)

func (c Class) String() string {
	if c == Read {
		return "read"
	}
	return "side-effect"
}

// Role is the origin of the words behind a call. The zero value means that there is no binding.
type Role string

// The roles of a prompt slot.
const (
	DirectCommand Role = "direct-command"
	Context       Role = "context"
	Quote         Role = "quote"
)

// parseRole parses the name of a role.
func parseRole(name string) (Role, error) {
	if role := Role(name); slices.Contains([]Role{DirectCommand, Context, Quote}, role) {
		return role, nil
	}
	return "", fmt.Errorf("unknown role %q; use direct-command, context or quote", Clip(name))
}

// Release decides about the output of a run that could reveal more than the skill's own bytes and the
// caller's arguments.
type Release string

// The releases.
const (
	ReleaseNone     Release = "none"     // such a run is refused under enforcement
	ReleaseObserved Release = "observed" // its output is shown
	ReleaseOpaque   Release = "opaque"   // it runs, and returns a handle instead of its output
)

// Clip truncates an untrusted value to 128 characters and "…", before it is repeated or recorded.
func Clip(s string) string {
	const most = 128
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
