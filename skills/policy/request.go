package policy

import (
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
)

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
	Profiles  []string    // that the session or the call narrows itself to, besides the operator's

	Skill                string // skill path; empty when the request is of no skill
	SkillName            string // as its frontmatter has it; it can ask for more rules, never for fewer
	Tier                 skills.Tier
	AllowedTools         []string // as the skill declares them
	AllowedToolsDeclared bool
	File                 bool // a read shows the bytes of a file by its path

	// Of a run.
	ActivationUnknown bool          // the call names a session that does not exist
	Activated         bool          // the session has loaded the skill
	Unnamed           bool          // only a handle connects the call with the one that loaded it
	Path              string        // of the script, below scripts/
	FileDigest        digest.Digest // of the script in the activated tree; empty when it is not in it
	Instead           string        // of a script that is not in it: which ones there are, in words
	TreeDigest        digest.Digest // of the activated tree
	StartTree         digest.Digest // of the skill's tree at server start; empty when it was absent
	StartFile         digest.Digest // of the script in that tree; empty when it was not in it
	Workspace         bool          // a workspace is mounted for entries that do not say none
	Approved          Approval      // by the user, whom this server asked
	Args              []string      // of the script
	Lease             *Lease        // of a browser, nil when the call has none
	Now               time.Time     // leases must not have expired by then
}

// Approval says what the user approved. Values other than the constants are ApprovalNone.
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
	Warned  Decision = "warned" // enforcement would have asked for evidence or an approval
)

// Evidence names what showed that a user wants a request. The zero value is nothing.
type Evidence = string

// The kinds of evidence.
const (
	EvidenceSlot     Evidence = "prompt-slot" // of the call itself
	EvidenceApproval Evidence = "approval"
	EvidenceOperator Evidence = "operator" // the binding for the whole process
	EvidenceEntry    Evidence = "entry"    // that never asks about its bytes
)

// Grant is what an allowed request may use.
type Grant struct {
	Decision Decision
	RuleID   string   // the reason code, a word of the reference's
	Evidence Evidence // of a direct command; empty when there was none
	// Warning is the refusal that enforcement would have made; also with Allowed, when only the release of
	// the output or, in mode disabled, the confirmation of tier user is missing.
	Warning string
	WouldBe Code  // the code of that refusal; empty when Warning is
	Entry   Entry // of a run
	Release Release
	Target  Target   // of a run
	Args    []string // of a run: those to pass on
	CDP     string   // of a run that holds a lease: the endpoint
}
