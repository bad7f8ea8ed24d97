package cfharness

import (
	"encoding/json"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// TypeScriptRequest is the type of a ScriptRequest.
const TypeScriptRequest = "skillsd.script-request"

// The Detail of an approval.answered event for an answer that allowed the script to run.
const (
	ApprovalAccepted   = "accept"
	ApprovalRemembered = ApprovalAccepted + " for the rest of the session"
)

// ScriptRequest is the row of a skill.script_requested event, of an approval.requested event that
// answers one, and of the approval.answered event that came with one. It is in no view. The outcome of
// the request is the [ScriptExecution] or the denial of the same output id, or the approval requested
// for it.
type ScriptRequest struct {
	Type     string `json:"type"`
	OutputID string `json:"outputId"`

	// An approval.requested event has what a user was asked about. Declared secrets are redacted, also in
	// the standard input that Stdin describes.
	Args   []string      `json:"args,omitzero"`
	CWD    string        `json:"cwd,omitempty"`
	Stdin  *TextSummary  `json:"stdin,omitempty"`
	Target string        `json:"target,omitempty"` // sandbox or host
	Digest digest.Digest `json:"digest,omitempty"` // of the script
}

// Pending has the output ids of the scripts that were requested and have no outcome yet, in the order they
// were
// requested.
type Pending []string

// Add adds e, the next event of the session.
func (p *Pending) Add(e *provenance.Event) {
	var id string
	switch e.Kind {
	case provenance.KindScriptRequested, provenance.KindScriptExecuted, provenance.KindApprovalAsked:
		var row ScriptRequest
		if json.Unmarshal(e.Row, &row) == nil {
			id = row.OutputID
		}
	case provenance.KindPolicyDenied:
		var row PolicyDecision
		if json.Unmarshal(e.Decision, &row) == nil && row.Skillsd != nil {
			id = row.Skillsd.OutputID
		}
	}
	if id == "" {
		return
	}
	if e.Kind == provenance.KindScriptRequested {
		*p = append(*p, id)
	} else if i := slices.Index(*p, id); i >= 0 {
		*p = slices.Delete(*p, i, i+1)
	}
}
