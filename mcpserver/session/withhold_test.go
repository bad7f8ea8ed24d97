package session

import (
	"strings"
	"testing"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/policy"
)

// An id that holds a secret is not what a session is called: its directory would show it.
func TestRunIDsHoldNoSecret(t *testing.T) {
	const secret = "Zq7-Kw9_Xv5.Jh3"
	b := newBench(t, benchOptions{})
	allowed, err := policy.NewAllowlist([]policy.Entry{{Skill: "demo", Path: "scripts/ok.sh", Secrets: []string{"TOKEN"}}})
	if err != nil {
		t.Fatal(err)
	}
	b.setPolicy(policy.New(policy.Config{Allowlist: allowed, Tools: []string{"load_skill", "run_skill_script"}}))
	b.rules.Load().Secret = func(string) (string, error) { return secret, nil }
	for id, taken := range map[string]bool{"run-1": true, "run-" + secret: false, "Run-" + strings.ToUpper(secret): false} {
		got, err := b.runID(Call{RunID: id})
		if err != nil || (got == id) != taken || !provenance.ValidSessionID(got) {
			t.Errorf("runID(%s) = %s, %v", id, got, err)
		}
	}
}
