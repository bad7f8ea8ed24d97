package provenance_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/provenance"
)

func TestTallyRefusesWhatCannotBeViewed(t *testing.T) {
	for _, e := range []provenance.Event{
		{Kind: provenance.KindResourceRead, Row: json.RawMessage(`{"status":1}`)},
		{Kind: provenance.KindSessionStarted, Row: json.RawMessage(`{"server":1}`)},
		{Kind: provenance.KindResourceRead, Decision: json.RawMessage(`{"decision":"x"}`)},
	} {
		var tally provenance.Tally
		e.Seq, e.Prev = tally.Next()
		if err := tally.Add(&e); err == nil || tally.Session.Head.Seq != 0 {
			t.Errorf("Add(%s %s%s) = %v, head %+v", e.Kind, e.Row, e.Decision, err, tally.Session.Head)
		}
	}
}

func TestNames(t *testing.T) {
	id, err := provenance.NewSessionID()
	if err != nil || !strings.HasPrefix(id, "ses_") || !provenance.ValidSessionID(id) || id[18] != '7' {
		t.Errorf("NewSessionID() = %q, %v", id, err)
	}
	for id, want := range map[string]bool{
		"run-1": true, "A.b_C-9": true, "...": true, "": false, ".": false, "..": false, "a/b": false, `a\b`: false,
		"a b": false, "a:b": false, "é": false, "a\n": false, strings.Repeat("a", 128): true, strings.Repeat("a", 129): false,
	} {
		if got := provenance.ValidSessionID(id); got != want {
			t.Errorf("ValidSessionID(%q) = %v, want %v", id, got, want)
		}
	}
	for k, want := range map[provenance.Kind]bool{"skill.activated": true, "install.added": true, "install.": false, "install.A": false, "x": false, "": false} {
		if got := k.Valid(); got != want {
			t.Errorf("Kind(%q).Valid() = %v, want %v", k, got, want)
		}
	}
	if got := provenance.OutputName("run:t:1", "stdout"); got != "outputs/run_t_1.stdout" || provenance.CheckFileName(got) != nil {
		t.Errorf("OutputName = %q", got)
	}
	if !bytes.Equal([]byte(provenance.FirstPrev), bytes.Repeat([]byte("0"), 64)) {
		t.Errorf("FirstPrev = %q", provenance.FirstPrev)
	}
}

// Events around a side effect or a refusal wait for stable storage; the others must not.
func TestDurableKinds(t *testing.T) {
	durable := map[provenance.Kind]bool{
		provenance.KindScriptRequested: true, provenance.KindScriptExecuted: true, provenance.KindPolicyDenied: true,
		provenance.KindApprovalAsked: true, provenance.KindApprovalAnswered: true,
		provenance.KindSessionEnded: true, provenance.KindOutputsRemoved: true,
	}
	for _, k := range []provenance.Kind{
		"session.started", "session.resumed", "session.ended", "registry.snapshot", "skill.discovered",
		"skill.activated", "skill.resource_read", "skill.script_requested", "skill.script_executed",
		"policy.warned", "policy.denied", "approval.requested", "approval.answered", "drift.detected",
		"outputs.removed", "install.added",
	} {
		if !k.Valid() || k.Facts().Durable != durable[k] {
			t.Errorf("%s: valid %t, durable %t, want true, %t", k, k.Valid(), k.Facts().Durable, durable[k])
		}
	}
}
