package story_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/story"
)

func TestSummary(t *testing.T) {
	for _, tc := range []struct {
		kind          provenance.Kind
		detail, got   string
		row, decision string
		want          string
	}{
		{kind: provenance.KindScriptExecuted, row: `{"status":"executed","exitCode":3}`, want: "exited 3"},
		{kind: provenance.KindScriptExecuted, row: `{"status":"executed","skillsd":{"outcome":"signaled","signal":"SIGKILL"}}`, want: "ended by SIGKILL"},
		{kind: provenance.KindScriptExecuted, row: `{"status":"executed","exitCode":1,"skillsd":{"outcome":"memory_limit"}}`, want: "memory limit"},
		{kind: provenance.KindScriptExecuted, row: `{"status":"error","error":{"code":"script_not_found"}}`, want: "did not run: script not found"},
		{kind: provenance.KindScriptExecuted, row: `{"status":"executed","exitCode":0,"skillsd":{"late":true}}`, want: "exited 0, after its call had ended"},
		{kind: provenance.KindResourceRead, row: `{"status":"read","digestMatchesRegistry":false,"truncated":true}`, want: "read, changed since the load, shortened"},
		{kind: provenance.KindResourceRead, row: `{"status":"error","error":{"code":"unknown"}}`, want: "not read: unknown"},
		{kind: provenance.KindResourceRead, detail: "asked", want: "asked"},
		{kind: provenance.KindSkillActivated, row: `{"source":"cli-preload"}`, want: "loaded at the start"},
		{kind: provenance.KindSkillActivated, detail: "model-tool", row: `{"source":"model-tool"}`, want: "shown to the model"},
		{kind: provenance.KindPolicyDenied, decision: `{"reasonCodes":["tool_not_allowed"],"skillsd":{"code":"tier_denied"}}`, want: "skills of this trust run no scripts"},
		{kind: provenance.KindPolicyDenied, decision: `{"reasonCodes":["tool_not_allowed"]}`, want: "running scripts is not offered"},
		{kind: provenance.KindPolicyDenied, decision: `{"skillsd":{"code":"approval_declined"}}`,
			row: `{"toolId":"run_skill_script","detail":"run_skill_script: the user declined"}`, want: "the user declined"},
		{kind: provenance.KindPolicyDenied, decision: `{"skillsd":{"code":"a_new_code"}}`, want: "a new code"},
		{kind: provenance.KindApprovalAsked, detail: "direct_command_required; call sha256:00", row: `{}`, want: "asked the user"},
		{kind: provenance.KindDriftDetected, detail: "resume-skill-digest-drift", got: "sha256:0123456789abcdef", want: "skill digest changed:  -> sha256:0123456789ab"},
		{kind: provenance.KindSessionStarted, detail: "started", row: `{"cfcEnforcementMode":"observe"}`, want: "mode observe, started"},
		{kind: provenance.KindSessionStarted, detail: "mode observe", row: `{"cfcEnforcementMode":"observe"}`, want: "mode observe"},
		{kind: provenance.KindSessionStarted, detail: "mode enforce-explicit, session of the client: \"x\"",
			row: `{"cfcEnforcementMode":"enforce-explicit","server":{"version":"v1.2.3"}}`, want: `skillsd v1.2.3, session of the client: "x"`},
		{kind: provenance.KindSessionResumed, detail: "mode enforce-explicit", row: `{"cfcEnforcementMode":"enforce-explicit"}`, want: "skillsd"},
		{kind: provenance.KindSkillDiscovered, detail: strings.Repeat("é", 500), want: strings.Repeat("é", 200) + "…"},
	} {
		e := &provenance.Event{Kind: tc.kind, Detail: tc.detail, Got: tc.got, Row: json.RawMessage(tc.row), Decision: json.RawMessage(tc.decision)}
		if got := story.StepOf(e).Summary(); got != tc.want {
			t.Errorf("Summary(%s %s%s) = %q, want %q", tc.kind, tc.row, tc.decision, got, tc.want)
		}
	}
}

// Every kind has a step, a row of the type of its form is decoded, and a malformed one is reported.
func TestOf(t *testing.T) {
	rows := map[provenance.Kind]bool{}
	for _, row := range cfharness.EventRows() {
		rows[row.Kind] = true
	}
	for _, kind := range provenance.Kinds() {
		good := story.StepOf(&provenance.Event{Kind: kind, Row: json.RawMessage(`{}`)})
		decoded := 0
		for _, row := range []any{good.Session, good.Activation, good.Resource, good.Request, good.Run, good.Policy, good.Undone} {
			if !reflect.ValueOf(row).IsNil() {
				decoded++
			}
		}
		// The files of a removal are for the store.
		if want := rows[kind] || good.Action == story.Asked || good.Action == story.Answered; good.Action == "" ||
			good.Malformed != nil || decoded == 1 != (want && kind != provenance.KindOutputsRemoved) {
			t.Errorf("%s: %q with %d rows, %v", kind, good.Action, decoded, good.Malformed)
		}
		bad := story.StepOf(&provenance.Event{Kind: kind, Seq: 3, Row: json.RawMessage(`{`)})
		if decoded > 0 != (bad.Malformed != nil) || bad.Action != good.Action || bad.Summary() != "" {
			t.Errorf("%s: malformed: %q %q, %v", kind, bad.Action, bad.Summary(), bad.Malformed)
		}
	}
	if s := story.StepOf(&provenance.Event{Kind: "install.added"}); s.Action != story.Other || s.Kind.Facts().Word != "install.added" {
		t.Errorf("install.added is %q", s.Action)
	}
}

// The steps of a call have the same First, also while its end is not recorded yet.
func TestCalls(t *testing.T) {
	request := func(id string) json.RawMessage {
		row, err := provenance.Encode(cfharness.ScriptRequest{OutputID: id})
		if err != nil {
			t.Fatal(err)
		}
		return row
	}
	type event struct {
		kind         provenance.Kind
		call, output string
		first, joins uint64
		questions    []uint64
	}
	for name, events := range map[string][]event{
		"with calls": {
			{kind: provenance.KindScriptRequested, call: "a", first: 1},
			{kind: provenance.KindScriptRequested, call: "b", first: 2},
			{kind: provenance.KindApprovalAsked, call: "a", first: 1},
			{kind: provenance.KindApprovalAnswered, call: "a", first: 1},
			{kind: provenance.KindScriptExecuted, call: "b", first: 2},
			{kind: provenance.KindScriptExecuted, call: "a", first: 1},
		},
		"by the output": {
			{kind: provenance.KindScriptRequested, output: "s:1", first: 1},
			{kind: provenance.KindSkillActivated, first: 2},
			{kind: provenance.KindSkillActivated, first: 3},
			{kind: provenance.KindScriptExecuted, output: "s:1", first: 1},
		},
		"called again": {
			{kind: provenance.KindScriptRequested, output: "s:1", first: 1},
			{kind: provenance.KindApprovalAsked, output: "s:1", first: 1},
			{kind: provenance.KindScriptRequested, output: "s:2", first: 3},
			{kind: provenance.KindApprovalAnswered, output: "s:2", first: 1, joins: 3},
			{kind: provenance.KindScriptExecuted, output: "s:2", first: 1},
		},
		"two questions": {
			{kind: provenance.KindApprovalAsked, output: "s:1", first: 1},
			{kind: provenance.KindApprovalAsked, output: "s:2", first: 2},
			{kind: provenance.KindApprovalAnswered, output: "s:3", first: 3, questions: []uint64{1, 2}},
			{kind: provenance.KindScriptExecuted, output: "s:3", first: 3},
		},
		"an answer without an output": {
			{kind: provenance.KindApprovalAsked, output: "s:1", first: 1},
			{kind: provenance.KindApprovalAnswered, first: 1, joins: 0},
			{kind: provenance.KindSkillActivated, first: 3},
		},
	} {
		var calls story.Calls
		for i, want := range events {
			e := &provenance.Event{Kind: want.kind, Seq: uint64(i + 1), Call: want.call}
			if want.output != "" {
				e.Row = request(want.output)
			}
			s := story.StepOf(e)
			calls.Add(s)
			if s.First != want.first || s.Joins != want.joins || !slices.Equal(s.Questions, want.questions) {
				t.Errorf("%s: event %d: %d, %d, %d; want %d, %d, %d", name, s.Seq, s.First, s.Joins, s.Questions,
					want.first, want.joins, want.questions)
			}
		}
	}
}
