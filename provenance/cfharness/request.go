package cfharness

import (
	"encoding/json"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// TypeScriptRequest is the type of a ScriptRequest.
const TypeScriptRequest = "skillsd.script-request"

// What the Detail of an approval.answered event says of an answer that let the script run.
const (
	ApprovalAccepted   = "accept"
	ApprovalRemembered = ApprovalAccepted + " for the rest of the session"
)

// ScriptRequest is the row of a skill.script_requested event, of an approval.requested event that is
// the answer to one, and of the approval.answered event that came with one. It stands in no view. The outcome of the request is the [ScriptExecution] or
// the denial of the same output id, or the approval asked for.
type ScriptRequest struct {
	Type     string `json:"type"`
	OutputID string `json:"outputId"`

	// What a user was asked about; declared secrets are redacted, and the digest of the standard input
	// is of what that leaves. Of an approval.requested event only.
	Args   []string      `json:"args,omitzero"`
	CWD    string        `json:"cwd,omitempty"`
	Stdin  *TextSummary  `json:"stdin,omitempty"`
	Target string        `json:"target,omitempty"` // sandbox or host
	Digest digest.Digest `json:"digest,omitempty"` // of the script
}

// Pending follows which scripts were requested and have no outcome yet. Its size grows with those
// only. The zero Pending is ready; it is not safe for concurrent use.
type Pending struct {
	order []string
}

// Add follows e.
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
		p.order = append(p.order, id)
		return
	}
	for i, open := range p.order {
		if open == id {
			p.order = append(p.order[:i], p.order[i+1:]...)
			return
		}
	}
}

// IDs returns the output ids of the scripts without an outcome, in the order they were requested.
func (p *Pending) IDs() []string { return append([]string(nil), p.order...) }
