package cfharness

import (
	"encoding/json"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// PolicyEvent is a warning or a refusal. Those made after execution have neither PromptSlot nor
// ToolInputSummary.
type PolicyEvent struct {
	Type              string               `json:"type"`
	Severity          string               `json:"severity"` // SeverityWarning or SeverityDenied
	Mode              string               `json:"mode"`
	ToolID            string               `json:"toolId"`
	Detail            string               `json:"detail"`
	At                provenance.Timestamp `json:"at"`
	ToolCallID        string               `json:"toolCallId,omitempty"`
	PromptSlot        json.RawMessage      `json:"promptSlot,omitempty"`
	ToolInputSummary  *ToolInputSummary    `json:"toolInputSummary,omitempty"`
	ObservationDenied *ObservationDenied   `json:"observationDenied,omitempty"`
}

// The severities of a PolicyEvent.
const (
	SeverityWarning = "warning"
	SeverityDenied  = "denied"
)

// PolicyDecision is the Decision of an event: what was decided about one call before it ran.
// Sequence counts the decisions of a run from 1; who appends the events numbers them. One that could not
// be recorded leaves a gap.
//
// The server leaves PolicyEventIndexes out: they point into a list of policy events that no file of a
// session holds. Policy events are the rows of policy.denied and policy.warned events.
type PolicyDecision struct {
	Type                 string                  `json:"type"`
	Sequence             int                     `json:"sequence"`
	RunID                string                  `json:"runId"`
	At                   provenance.Timestamp    `json:"at"`
	ToolActivitySequence int                     `json:"toolActivitySequence"`
	ToolCallID           string                  `json:"toolCallId"`
	ToolID               string                  `json:"toolId"`
	EffectClass          string                  `json:"effectClass,omitempty"` // read, write or side-effect
	Mode                 string                  `json:"cfcEnforcementMode"`
	Decision             string                  `json:"decision"` // one of the Decision constants
	ReasonCodes          provenance.List[string] `json:"reasonCodes"`
	Detail               string                  `json:"detail,omitempty"`
	PromptSlot           json.RawMessage         `json:"promptSlot,omitempty"`
	ToolInputSummary     *ToolInputSummary       `json:"toolInputSummary,omitempty"`
	PolicyEventIndexes   []int                   `json:"policyEventIndexes,omitempty"`
	SubagentProfile      string                  `json:"subagentProfile,omitempty"`
	Skillsd              *DecisionExtension      `json:"skillsd,omitempty"`
}

// DecisionExtension is the skillsd key of a PolicyDecision.
type DecisionExtension struct {
	Code   string `json:"code,omitempty"`   // of the denial
	Reason string `json:"reason,omitempty"` // of the denial
	RuleID string `json:"ruleId,omitempty"`
	Skill  string `json:"skill,omitempty"`
	Path   string `json:"path,omitempty"`
	TaskID string `json:"taskId,omitempty"`

	OutputID string `json:"outputId,omitempty"` // of a run that was refused
	// Evidence is what showed that a user wants the call: prompt-slot, approval or operator; empty when
	// nothing did. WouldBe is the code that enforcement would have refused a call with that it allowed.
	Evidence string `json:"evidence,omitempty"`
	WouldBe  string `json:"wouldBe,omitempty"`
}

// PolicyTrace is the content of policy-trace.json; Decisions are [PolicyDecision].
type PolicyTrace struct {
	Type                 string                           `json:"type"`
	Version              int                              `json:"version"`
	GeneratedAt          provenance.Timestamp             `json:"generatedAt"`
	RunID                string                           `json:"runId"`
	Mode                 string                           `json:"cfcEnforcementMode"`
	PolicySnapshotPath   string                           `json:"cfcPolicySnapshotPath,omitempty"`
	PolicySnapshotDigest digest.Digest                    `json:"cfcPolicySnapshotDigest,omitempty"` // of its compact JSON
	DecisionCounts       DecisionCounts                   `json:"decisionCounts"`
	Decisions            provenance.List[json.RawMessage] `json:"decisions"`
	InvocationContexts   []json.RawMessage                `json:"cfcInvocationContexts,omitempty"`
}

// DecisionCounts counts the decisions of a trace.
type DecisionCounts struct {
	Total   int `json:"total"`
	Allowed int `json:"allowed"`
	Warned  int `json:"warned"`
	Denied  int `json:"denied"`
}

func (c *DecisionCounts) add(outcome string) {
	c.Total++
	switch outcome {
	case provenance.DecisionAllowed:
		c.Allowed++
	case provenance.DecisionWarned:
		c.Warned++
	case provenance.DecisionDenied:
		c.Denied++
	}
}

// ToolInputSummary holds the inert selectors of a call. A selector of the wrong type is absent;
// pointers are nil where a key is.
type ToolInputSummary struct {
	Type      string  `json:"type"`
	ToolID    string  `json:"toolId"`
	Skill     *string `json:"skill,omitempty"`
	Path      *string `json:"path,omitempty"`
	MaxBytes  *int64  `json:"maxBytes,omitempty"` // of a read
	ArgsCount *int    `json:"argsCount,omitempty"`
	CWD       *string `json:"cwd,omitempty"`
	TimeoutMS *int64  `json:"timeoutMs,omitempty"`
}

// ObservationDenied is the answer to a refused call. Its text never holds a host path or a secret.
type ObservationDenied struct {
	Type    string        `json:"type"`
	Reason  string        `json:"reason"` // not-authorized, not-observable, needs-opaque-pass-through or needs-sanitizing-worker
	Detail  string        `json:"detail"` // the tool and the missing authority
	Handle  *OpaqueHandle `json:"handle,omitempty"`
	Code    string        `json:"code"`
	Skill   string        `json:"skill,omitempty"`
	Path    string        `json:"path,omitempty"`
	Remedy  string        `json:"remedy"` // who can change it and how
	RuleID  string        `json:"ruleId"`
	EventID string        `json:"eventId,omitempty"` // see Event.ID; the event that records the denial leaves it out
}

// OpaqueHandle stands for output that was withheld.
type OpaqueHandle struct {
	Type        string               `json:"type"`
	HandleID    string               `json:"handleId"` // "<outputId>:stdout" or "<outputId>:stderr"
	Scope       string               `json:"scope"`    // run
	CreatedAt   provenance.Timestamp `json:"createdAt"`
	PassThrough bool                 `json:"passThrough"`
}
