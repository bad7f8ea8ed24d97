package provenance

import "encoding/json"

// TypeScriptRequest is the type of a ScriptRequest.
const TypeScriptRequest = "skillsd.script-request"

// ScriptRequest is the row of a skill.script_requested event, and of an approval.requested event that
// is the answer to one. It stands in no view. The outcome of the request is the [ScriptExecution] or
// the denial of the same output id, or the approval asked for.
type ScriptRequest struct {
	Type     string `json:"type"`
	OutputID string `json:"outputId"`
}

// Pending follows which scripts were requested and have no outcome yet. Its size grows with those
// only. The zero Pending is ready; it is not safe for concurrent use.
type Pending struct {
	order []string
}

// Add follows e.
func (p *Pending) Add(e *Event) {
	var id string
	switch e.Kind {
	case KindScriptRequested, KindScriptExecuted, KindApprovalAsked:
		var row ScriptRequest
		if json.Unmarshal(e.Row, &row) == nil {
			id = row.OutputID
		}
	case KindPolicyDenied:
		var row PolicyDecision
		if json.Unmarshal(e.Decision, &row) == nil && row.Skillsd != nil {
			id = row.Skillsd.OutputID
		}
	}
	if id == "" {
		return
	}
	if e.Kind == KindScriptRequested {
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
