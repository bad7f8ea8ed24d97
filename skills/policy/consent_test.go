package policy

import (
	"errors"
	"fmt"
	"testing"

	"github.com/skillsd/skillsd/skills"
)

// A call's own slot decides alone against the operator's binding, but only when its principal is
// believed; an approval lifts both.
func TestEvidence(t *testing.T) {
	for _, test := range []struct {
		name     string
		operator Role
		slot     *PromptSlot
		believed bool
		approved Approval
		want     Evidence
	}{
		{"none", "", nil, true, 0, ""},
		{"operator", DirectCommand, nil, false, 0, EvidenceOperator},
		{"slot", "", &PromptSlot{Role: DirectCommand}, true, 0, EvidenceSlot},
		{"slot before operator", DirectCommand, &PromptSlot{Role: DirectCommand}, true, 0, EvidenceSlot},
		{"slot of a stranger", "", &PromptSlot{Role: DirectCommand}, false, 0, ""},
		{"context does not lift", DirectCommand, &PromptSlot{Role: Context}, true, 0, ""},
		{"quote does not lift", DirectCommand, &PromptSlot{Role: Quote}, true, 0, ""},
		{"a stranger's slot does not count at all", DirectCommand, &PromptSlot{Role: Quote}, false, 0, EvidenceOperator},
		{"operator says context", Context, &PromptSlot{Role: DirectCommand}, true, 0, EvidenceSlot},
		{"slot without role", DirectCommand, &PromptSlot{}, true, 0, ""},
		{"approval", "", nil, false, ApprovalOfCall, EvidenceApproval},
		{"approval before", "", nil, false, ApprovalRemembered, EvidenceApproval},
		{"approval lifts context", DirectCommand, &PromptSlot{Role: Context}, true, ApprovalRemembered, EvidenceApproval},
		{"approval that was not needed", DirectCommand, nil, true, ApprovalOfCall, EvidenceOperator},
		{"no such approval", "", nil, true, 3, ""},
		{"negative approval", "", nil, true, -1, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg, request := config(t), run()
			cfg.Role, request.Slot, request.Principal.Evidence, request.Approved = test.operator, test.slot, test.believed, test.approved
			grant, err := New(cfg).Decide(request)
			if (err == nil) != (test.want != "") || grant.Evidence != test.want {
				t.Errorf("Decide = %q, %v, want %q", grant.Evidence, err, test.want)
			}
			if err == nil {
				return
			}
			asked, ok := errors.AsType[*ApprovalRequired](err)
			if !ok || asked.Denial.Code != CodeDirectCommandRequired || !asked.Remember || asked.Target != TargetSandbox || asked.Entry.Path != script {
				t.Errorf("Decide = %+v, want an approval to ask for", err)
			}
		})
	}
}

// An approval is of a run: it shows nothing more to whoever reads.
func TestApprovalIsNoEvidenceOfReads(t *testing.T) {
	cfg := config(t)
	cfg.Role, cfg.Mode = "", EnforceStrict
	request := Request{Tool: "load_skill", Class: Read, Skill: "pdf", Approved: ApprovalOfCall}
	_, err := New(cfg).Decide(request)
	if _, asks := errors.AsType[*ApprovalRequired](err); err == nil || asks || DenialOf(err).Code != CodeDirectCommandRequired {
		t.Errorf("Decide = %v, want a denial nobody is asked about", err)
	}
	cfg.Role = DirectCommand
	if grant, err := New(cfg).Decide(request); err != nil || grant.Evidence != EvidenceOperator {
		t.Errorf("Decide = %+v, %v", grant, err)
	}
}

// What each tier and each ask demands for, under enforcement: with the operator's evidence, then with
// an approval for the session, then with one of the call. The letters say: r runs, a asks for an
// approval that may be remembered, c for one of the call.
func TestTiers(t *testing.T) {
	for tier, rows := range map[skills.Tier]map[Ask]string{
		skills.TierBuiltin:    {"": "rrr", AskTier: "rrr", AskAlways: "ccr", AskNever: "rrr", "often": "ccr"},
		skills.TierOrg:        {"": "rrr", AskTier: "rrr", AskAlways: "ccr", AskNever: "rrr"},
		skills.TierUser:       {"": "rrr", AskTier: "rrr", AskSession: "arr", AskAlways: "ccr", AskNever: "rrr"},
		skills.TierThirdParty: {"": "arr", AskTier: "arr", AskSession: "arr", AskAlways: "ccr", AskNever: "rrr"},
		9:                     {"": "arr", AskTier: "arr", AskAlways: "ccr", AskNever: "rrr"},
		-1:                    {"": "arr", AskTier: "arr", AskAlways: "ccr", AskNever: "rrr"},
	} {
		for ask, row := range rows {
			for approval, want := range row {
				cfg, request := config(t), run()
				cfg.Allowlist.index[scriptKey{"pdf", script}][0].Ask = ask
				request.Tier, request.Approved = tier, Approval(approval)
				where := fmt.Sprintf("%s, ask %q, approval %d", tier, ask, approval)
				_, err := New(cfg).Decide(request)
				if got := letter(err, CodeApprovalRequired); got != want {
					t.Errorf("%s: Decide = %v, want %c", where, err, want)
				}
				for _, mode := range []Mode{Disabled, Observe} {
					cfg.Mode = mode
					grant, err := New(cfg).Decide(request)
					if err != nil || (grant.Decision == Warned) != (want != 'r') || (grant.WouldBe == CodeApprovalRequired) != (want != 'r') || (grant.Warning == "") != (want == 'r') {
						t.Errorf("%s: %s: Decide = %+v, %v, want a run, %c", where, mode, grant, err, want)
					}
				}
				cfg.Mode, cfg.Role = EnforceStrict, ""
				_, err = New(cfg).Decide(request)
				if approval == 0 {
					if letter(err, CodeDirectCommandRequired) == 'r' {
						t.Errorf("%s: runs without evidence", where)
					}
				} else if got := letter(err, CodeApprovalRequired); got != want {
					t.Errorf("%s, without other evidence: Decide = %v, want %c", where, err, want)
				}
			}
		}
	}
}

// An entry that never asks is the operator's word for its bytes, whoever calls and whatever the slots are; it is
// no word for other bytes, for what they may show, or for a tier that is closed.
func TestEntryNeverAsks(t *testing.T) {
	for name, tt := range map[string]struct {
		do       func(*Config, *Request)
		evidence Evidence
		code     Code
	}{
		"no evidence":            {func(c *Config, _ *Request) { c.Role = "" }, EvidenceEntry, ""},
		"strict":                 {func(c *Config, _ *Request) { c.Role, c.Mode = "", EnforceStrict }, EvidenceEntry, ""},
		"context":                {func(c *Config, _ *Request) { c.Role = Context }, EvidenceEntry, ""},
		"a quoting slot":         {func(_ *Config, r *Request) { r.Slot = &PromptSlot{Role: Quote} }, EvidenceEntry, ""},
		"third-party":            {func(c *Config, r *Request) { c.Role, r.Tier = "", skills.TierThirdParty }, EvidenceEntry, ""},
		"the operator's binding": {func(*Config, *Request) {}, EvidenceOperator, ""},
		"other bytes":            {func(_ *Config, r *Request) { r.FileDigest = other }, "", CodeScriptSnapshotMismatch},
		"a workspace":            {func(c *Config, r *Request) { c.Role, r.Workspace = "", true }, "", CodeOutputNotReleased},
		"closed":                 {func(c *Config, _ *Request) { c.Role, c.ClosedTiers = "", []skills.Tier{skills.TierUser} }, "", CodeTierDenied},
		"a read, strict": {func(c *Config, r *Request) {
			c.Role, c.Mode, *r = "", EnforceStrict, Request{Tool: "load_skill", Class: Read, Skill: "pdf"}
		}, "", CodeDirectCommandRequired},
	} {
		cfg, request := config(t), run()
		entry, err := ParseEntry("pdf:" + script + "@" + file.String())
		if err == nil {
			entry.Ask = AskNever
			cfg.Allowlist, err = NewAllowlist([]Entry{entry})
		}
		if err != nil {
			t.Fatal(err)
		}
		tt.do(&cfg, &request)
		grant, err := New(cfg).Decide(request)
		switch {
		case tt.code == "" && (err != nil || grant.Evidence != tt.evidence):
			t.Errorf("%s: Decide = %+v, %v, want evidence %s", name, grant, err, tt.evidence)
		case tt.code != "" && (err == nil || DenialOf(err).Code != tt.code):
			t.Errorf("%s: Decide = %v, want %s", name, err, tt.code)
		}
	}
}

// letter is what an answer of Decide is in the tables; 0 for anything else.
func letter(err error, code Code) rune {
	asks, ok := errors.AsType[*ApprovalRequired](err)
	switch {
	case err == nil:
		return 'r'
	case !ok || asks.Denial.Code != code:
		return 0
	case asks.Remember:
		return 'a'
	}
	return 'c'
}

// A closed tier is closed in every mode, whatever was approved.
func TestClosedTier(t *testing.T) {
	for _, mode := range []Mode{Disabled, Observe, EnforceExplicit, EnforceStrict} {
		for _, tier := range []skills.Tier{skills.TierBuiltin, skills.TierOrg, skills.TierUser, skills.TierThirdParty, 9} {
			cfg, request := config(t), run()
			cfg.Mode, cfg.ClosedTiers = mode, []skills.Tier{skills.TierUser, 9}
			cfg.Allowlist.index[scriptKey{"pdf", script}][0].Ask = AskNever
			request.Tier, request.Approved = tier, ApprovalOfCall
			_, err := New(cfg).Decide(request)
			closed := tier == skills.TierUser || tier == 9
			if closed != (err != nil) || closed && DenialOf(err).Code != CodeTierDenied {
				t.Errorf("%s, %s: Decide = %v, want closed %v", mode, tier, err, closed)
			}
		}
	}
}

// What modes that do not enforce note beside the reference's decision.
func TestWarnings(t *testing.T) {
	for _, test := range []struct {
		name     string
		mode     Mode
		do       func(*Config, *Request)
		decision Decision
		want     Code
	}{
		{"observe, nothing missing", Observe, func(*Config, *Request) {}, Allowed, ""},
		{"observe, no evidence", Observe, func(c *Config, _ *Request) { c.Role = "" }, Warned, CodeDirectCommandRequired},
		{"observe, no evidence and more", Observe, func(c *Config, r *Request) { c.Role, r.Tier, r.Workspace = "", skills.TierThirdParty, true }, Warned, CodeOutputNotReleased},
		{"observe, no approval and more", Observe, func(_ *Config, r *Request) { r.Tier, r.Workspace = skills.TierThirdParty, true }, Warned, CodeOutputNotReleased},
		{"observe, not released", Observe, mount, Allowed, CodeOutputNotReleased},
		{"observe, opaque", Observe, func(c *Config, r *Request) { c.Release, r.Workspace = ReleaseOpaque, true }, Allowed, ""},
		{"disabled, no evidence, org", Disabled, func(c *Config, r *Request) { c.Role, r.Tier = "", skills.TierOrg }, Allowed, ""},
		{"disabled, no confirmation", Disabled, func(c *Config, _ *Request) { c.Role = "" }, Allowed, CodeDirectCommandRequired},
		{"disabled, confirmation waived", Disabled, func(c *Config, _ *Request) {
			c.Role, c.Allowlist.index[scriptKey{"pdf", script}][0].Ask = "", AskNever
		}, Allowed, ""},
		{"disabled, no approval", Disabled, func(_ *Config, r *Request) { r.Tier = skills.TierThirdParty }, Warned, CodeApprovalRequired},
		{"disabled, not released", Disabled, mount, Allowed, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg, request := config(t), run()
			cfg.Mode = test.mode
			test.do(&cfg, &request)
			grant, err := New(cfg).Decide(request)
			if err != nil || grant.Decision != test.decision || grant.WouldBe != test.want || (grant.Warning == "") != (test.want == "") {
				t.Errorf("Decide = %+v, %v, want %s with %q", grant, err, test.decision, test.want)
			}
		})
	}
}
