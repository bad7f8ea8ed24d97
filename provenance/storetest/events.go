package storetest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

var epoch = time.Date(2026, 11, 21, 8, 0, 0, 123456789, time.UTC)

// Event returns an event of kind k of a session, with the row and the decision a server would
// give it; n distinguishes events.
func Event(session string, k provenance.Kind, n int) *provenance.Event {
	e := &provenance.Event{
		Time: epoch.Add(time.Duration(n) * time.Second), Kind: k, Session: session,
		Principal: "local", Detail: fmt.Sprintf("number %d <&>", n),
	}
	at := provenance.Stamp(e.Time)
	output := fmt.Sprintf("%s:tool:%d", session, n)
	switch k {
	case provenance.KindSessionStarted:
		e.Row = encode(provenance.SessionInfo{
			Server: provenance.Server{Version: "v1", Protocol: "2025-11-25"}, Mode: "enforce-explicit",
		})
	case provenance.KindSkillActivated:
		e.Row = encode(cfharness.Activation{Name: "pdf", Source: cfharness.SourceModel, RunID: session,
			ActivatedAt: at, CFCPromptRole: cfharness.PromptRoleContext})
	case provenance.KindResourceRead:
		e.Row = encode(cfharness.ResourceRead{Type: cfharness.TypeResourceRead, OutputID: output,
			RunID: session, Status: cfharness.StatusRead, ReadAt: at})
		e.Decision = decision(session, at, n, provenance.DecisionAllowed)
	case provenance.KindScriptExecuted:
		e.Row = encode(cfharness.ScriptExecution{Type: cfharness.TypeScriptExecution, OutputID: output,
			RunID: session, Status: cfharness.StatusExecuted, ExecutedAt: at, Args: []string{"<a>"}})
	case provenance.KindPolicyDenied:
		e.Decision = decision(session, at, n, provenance.DecisionDenied)
	}
	return e
}

func decision(session string, at provenance.Timestamp, n int, outcome string) json.RawMessage {
	return encode(cfharness.PolicyDecision{
		Type: cfharness.TypePolicyDecision, Sequence: n, RunID: session, At: at, ToolID: "run_skill_script",
		Mode: "enforce-explicit", Decision: outcome, ReasonCodes: []string{"tool_not_allowed"},
	})
}

func encode(v any) json.RawMessage {
	raw, err := provenance.Encode(v)
	if err != nil {
		panic("storetest: " + err.Error())
	}
	return raw
}
