package cfharness_test

import (
	"encoding/json"
	"testing"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

func TestPending(t *testing.T) {
	event := func(k provenance.Kind, row, decision string) *provenance.Event {
		return &provenance.Event{Kind: k, Row: json.RawMessage(row), Decision: json.RawMessage(decision)}
	}
	var p cfharness.Pending
	for _, id := range []string{"ran", "refused", "asked", "killed", "failed"} {
		p.Add(event(provenance.KindScriptRequested, `{"outputId":"`+id+`"}`, ""))
	}
	p.Add(event(provenance.KindScriptExecuted, `{"outputId":"ran"}`, ""))
	p.Add(event(provenance.KindScriptExecuted, `{"outputId":"failed","status":"error"}`, ""))
	p.Add(event(provenance.KindScriptExecuted, `{"outputId":"never requested"}`, ""))
	p.Add(event(provenance.KindPolicyDenied, `{}`, `{"decision":"denied","skillsd":{"outputId":"refused"}}`))
	p.Add(event(provenance.KindPolicyDenied, `{}`, `{"decision":"denied"}`))
	p.Add(event(provenance.KindApprovalAsked, `{"outputId":"asked"}`, ""))
	p.Add(event(provenance.KindResourceRead, `{"outputId":"killed"}`, ""))
	if got := p; len(got) != 1 || got[0] != "killed" {
		t.Errorf("without an outcome are %v, want killed", got)
	}
}
