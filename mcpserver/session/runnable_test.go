package session

import (
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// What is said of a script when its skill is loaded is what a run is then answered.
func TestRunnable(t *testing.T) {
	const script = "scripts/ok.sh"
	pin := func(digit string) []string {
		return []string{"demo:" + script + "@sha256:" + strings.Repeat(digit, 64)}
	}
	closed := direct
	closed.ClosedTiers = []skills.Tier{skills.TierBuiltin}
	strict := policy.Config{Mode: policy.EnforceStrict, Role: policy.DirectCommand}
	narrow := direct
	narrow.Profiles = []policy.Profile{{Name: "other", Scripts: []string{"demo:scripts/x.rb"}}, {Name: "same", Scripts: []string{"demo:" + script}}}
	for _, test := range []struct {
		name    string
		options benchOptions
		profile string
		canAsk  bool
		code    string // empty when it runs
	}{
		{"allowed", benchOptions{policy: direct}, "", false, ""},
		{"allowed, strict", benchOptions{policy: strict}, "", false, ""},
		{"wrong pin", benchOptions{policy: direct, allow: pin("0")}, "", false, "script_snapshot_mismatch"},
		{"not allowed", benchOptions{policy: direct, allow: []string{"demo:scripts/x.rb"}}, "", false, "script_not_allowlisted"},
		{"closed tier", benchOptions{policy: closed}, "", false, "tier_denied"},
		{"profile of the call", benchOptions{policy: narrow}, "other", false, "profile_excludes"},
		{"profile that includes it", benchOptions{policy: narrow}, "same", false, ""},
		{"no evidence", benchOptions{}, "", false, "direct_command_required"},
		{"disabled", benchOptions{policy: policy.Config{Mode: policy.Disabled}}, "", false, ""},
		{"third party", benchOptions{policy: direct, tier: skills.TierThirdParty}, "", false, "approval_required"},
		{"third party, who can be asked", benchOptions{policy: direct, tier: skills.TierThirdParty}, "", true, ""},
		{"workspace without release", benchOptions{policy: direct, workspace: sandbox.WorkspaceRO}, "", true, "output_not_released"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, test.options)
			loaded := b.load("demo")
			ses, call := b.call("run_skill_script")
			call.Profile = test.profile
			before := b.events()
			r := RunRequest{Call: call, Skill: "demo", Path: script, Timeout: time.Minute, CanAsk: test.canAsk}
			got := ""
			if denial := ses.Runnable(t.Context(), loaded.Skill, r); denial != nil {
				got = string(denial.Code)
			}
			if got != test.code {
				t.Errorf("Runnable = %s, want %s", got, test.code)
			}
			if after := b.events(); after != before {
				t.Errorf("events = %s, want %s", after, before)
			}
			if _, err := ses.RunScript(t.Context(), r); code(err) != test.code {
				t.Errorf("RunScript = %v, want %s", err, test.code)
			}
		})
	}
}
