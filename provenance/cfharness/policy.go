package cfharness

import (
	"encoding/json"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// PolicyEvent is a warning or a refusal. After an execution, it has neither PromptSlot nor ToolInputSummary.
type PolicyEvent struct {
	Type              string             `json:"type"`
	Severity          string             `json:"severity"` // SeverityWarning or SeverityDenied
	Mode              string             `json:"mode"`
	ToolID            string             `json:"toolId"`
	ToolCallID        string             `json:"toolCallId,omitempty"`
	PromptSlot        json.RawMessage    `json:"promptSlot,omitempty"`
	ToolInputSummary  *ToolInputSummary  `json:"toolInputSummary,omitempty"`
	Detail            string             `json:"detail"`
	ObservationDenied *ObservationDenied `json:"observationDenied,omitempty"`
	At                Timestamp          `json:"at"`
}

// The severities of a PolicyEvent.
const (
	SeverityWarning = "warning"
	SeverityDenied  = "denied"
)

// PolicyDecision is the Decision of an event: the decision about one call before it ran. Sequence numbers the
// decisions of a run from 1; the caller of Append assigns it. A decision that could not be recorded leaves a
// gap.
//
// The server omits PolicyEventIndexes, which refer to a list of policy events that is in no file of a
// session. Policy events are the rows of policy.denied and policy.warned events.
type PolicyDecision struct {
	Type                 string             `json:"type"`
	Sequence             int                `json:"sequence"`
	RunID                string             `json:"runId"`
	At                   Timestamp          `json:"at"`
	ToolActivitySequence int                `json:"toolActivitySequence"`
	ToolCallID           string             `json:"toolCallId"`
	ToolID               string             `json:"toolId"`
	EffectClass          string             `json:"effectClass,omitempty"` // read, write or side-effect
	Mode                 string             `json:"cfcEnforcementMode"`
	Decision             string             `json:"decision"` // one of the Decision constants
	ReasonCodes          List[string]       `json:"reasonCodes"`
	Detail               string             `json:"detail,omitempty"`
	PromptSlot           json.RawMessage    `json:"promptSlot,omitempty"`
	ToolInputSummary     *ToolInputSummary  `json:"toolInputSummary,omitempty"`
	PolicyEventIndexes   []int              `json:"policyEventIndexes,omitempty"`
	SubagentProfile      string             `json:"subagentProfile,omitempty"`
	Skillsd              *DecisionExtension `json:"skillsd,omitempty"`
}

// DecisionExtension is the skillsd key of a PolicyDecision.
type DecisionExtension struct {
	Code   string `json:"code,omitempty"`   // of the denial
	Reason string `json:"reason,omitempty"` // of the denial
	RuleID string `json:"ruleId,omitempty"`
	Skill  string `json:"skill,omitempty"`
	Path   string `json:"path,omitempty"`
	TaskID string `json:"taskId,omitempty"`

	OutputID string `json:"outputId,omitempty"` // of a refused run

	// Runtime and FileFacts describe the script of a run that was refused because the script had changed.
	Runtime string `json:"runtime,omitempty"`
	FileFacts

	// Evidence is the evidence that a user wants the call: prompt-slot, approval, operator or entry; empty if
	// no evidence exists. WouldBe is the code with which enforcement would have refused an allowed call.
	Evidence string `json:"evidence,omitempty"`
	WouldBe  string `json:"wouldBe,omitempty"`

	// Operator is how the operator can change a denial, with flags and commands. Clients get it neither in
	// answers nor in their records, because a model would follow it.
	Operator string `json:"operator,omitempty"`
}

// PolicyTrace is the content of policy-trace.json; Decisions are rows of type [PolicyDecision].
type PolicyTrace struct {
	Type                 string                `json:"type"`
	Version              int                   `json:"version"`
	GeneratedAt          Timestamp             `json:"generatedAt"`
	RunID                string                `json:"runId"`
	Mode                 string                `json:"cfcEnforcementMode"`
	PolicySnapshotPath   string                `json:"cfcPolicySnapshotPath,omitempty"`
	PolicySnapshotDigest digest.Digest         `json:"cfcPolicySnapshotDigest,omitempty"` // of compact JSON
	DecisionCounts       DecisionCounts        `json:"decisionCounts"`
	Decisions            List[json.RawMessage] `json:"decisions"`
	InvocationContexts   []json.RawMessage     `json:"cfcInvocationContexts,omitempty"`
}

// DecisionCounts are the numbers of decisions in a trace.
type DecisionCounts struct {
	Total   int `json:"total"`
	Allowed int `json:"allowed"`
	Warned  int `json:"warned"`
	Denied  int `json:"denied"`
}

// ToolInputSummary holds the harmless arguments of a call. An argument of the wrong type is omitted; pointers
// are nil if the key is absent.
type ToolInputSummary struct {
	Type      string  `json:"type"`
	ToolID    string  `json:"toolId"`
	Skill     *string `json:"skill,omitempty"`
	Path      *string `json:"path,omitempty"`
	MaxBytes  *int64  `json:"maxBytes,omitempty"` // for reads
	ArgsCount *int    `json:"argsCount,omitempty"`
	CWD       *string `json:"cwd,omitempty"`
	TimeoutMS *int64  `json:"timeoutMs,omitempty"`
}

// ObservationDenied is the answer to a refused call. Its text never contains a host path or a secret. Reason
// is not-authorized, not-observable, needs-opaque-pass-through or needs-sanitizing-worker. EventID is a
// [provenance.Event.ID]; it is omitted in the event that records the denial.
type ObservationDenied struct {
	Type    string        `json:"type"`
	Reason  string        `json:"reason"`
	Detail  string        `json:"detail"` // the tool and the missing authority
	Handle  *OpaqueHandle `json:"handle,omitempty"`
	Code    string        `json:"code"`
	Skill   string        `json:"skill,omitempty"`
	Path    string        `json:"path,omitempty"`
	Remedy  string        `json:"remedy"` // advice for the model: what to do, or whom to ask
	RuleID  string        `json:"ruleId"`
	EventID string        `json:"eventId,omitempty"`

	// ApprovalCode identifies the call for a user, who can approve it with `skillsd approve CODE`.
	ApprovalCode string `json:"approvalCode,omitempty"`

	// For a withheld stream: its length, and a digest that commits to it. See [StreamSummary.Salt].
	ByteLength *int64        `json:"byteLength,omitempty"`
	Digest     digest.Digest `json:"digest,omitempty"`
}

// OpaqueHandle identifies withheld output. With PassThrough it may be passed to another tool.
type OpaqueHandle struct {
	Type        string    `json:"type"`
	HandleID    string    `json:"handleId"` // "<outputId>:stdout" or "<outputId>:stderr"
	Scope       string    `json:"scope"`    // run
	CreatedAt   Timestamp `json:"createdAt"`
	PassThrough bool      `json:"passThrough,omitempty"`
}

// TypeScriptRequest is the type of a ScriptRequest.
const TypeScriptRequest = "skillsd.script-request"

// The Detail of an approval.answered event, if the answer allowed the script to run.
const (
	ApprovalAccepted   = "accept"
	ApprovalRemembered = ApprovalAccepted + " for the rest of the session"

	// ApprovalBy is the prefix of the user that allowed the call outside of the client, and of the place.
	ApprovalBy = ApprovalAccepted + " by "

	// ApprovalNotAsked is the prefix of the action of a client that answered faster than a user could.
	ApprovalNotAsked = "by the client itself: "
)

// ScriptRequest is the row of a skill.script_requested event, of an approval.requested event that answers it,
// and of the approval.answered event that follows. It is in no view. The outcome of the request is the
// [ScriptExecution] or the denial with the same output id, or the approval requested for it.
type ScriptRequest struct {
	Type     string `json:"type"`
	OutputID string `json:"outputId"`

	// An approval.requested event has the facts that the user was asked about. Declared secrets are redacted,
	// also in the standard input that Stdin describes.
	Args   []string      `json:"args,omitzero"`
	CWD    string        `json:"cwd,omitempty"`
	Stdin  *TextSummary  `json:"stdin,omitempty"`
	Target string        `json:"target,omitempty"` // sandbox or host
	Digest digest.Digest `json:"digest,omitempty"` // of the script
}

// OutputID returns the output id of the run that an event is about, or "". Requests, questions, answers,
// outcomes and refusals have one.
func OutputID(e *provenance.Event) string {
	form := e.Kind.Facts().Form
	switch {
	case form == provenance.FormRequest, form == provenance.FormQuestion, form == provenance.FormRun:
		var row ScriptRequest
		if json.Unmarshal(e.Row, &row) == nil {
			return row.OutputID
		}
	case e.Kind == provenance.KindPolicyDenied:
		var row PolicyDecision
		if json.Unmarshal(e.Decision, &row) == nil && row.Skillsd != nil {
			return row.Skillsd.OutputID
		}
	}
	return ""
}

// Pending holds the output ids of scripts that were requested and have no outcome yet, in order of the
// requests.
type Pending []string

// Add adds e, which must be the next event of the session.
func (p *Pending) Add(e *provenance.Event) {
	// An answer has the id of the call that came with it, and that call has no outcome yet.
	if e.Kind == provenance.KindApprovalAnswered {
		return
	}
	id := OutputID(e)
	if id == "" {
		return
	}
	if e.Kind == provenance.KindScriptRequested {
		*p = append(*p, id)
	} else if i := slices.Index(*p, id); i >= 0 {
		*p = slices.Delete(*p, i, i+1)
	}
}
