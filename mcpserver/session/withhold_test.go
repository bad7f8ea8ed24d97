package session

import (
	"errors"
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
	b.cfg.Policy = policy.New(policy.Config{Allowlist: allowed, Tools: []string{"load_skill", "run_skill_script"}})
	b.cfg.Secret = func(string) (string, error) { return secret, nil }
	for id, taken := range map[string]bool{"run-1": true, "run-" + secret: false, "Run-" + strings.ToUpper(secret): false} {
		got, err := b.runID(Call{RunID: id})
		if err != nil || (got == id) != taken || !provenance.ValidSessionID(got) {
			t.Errorf("runID(%s) = %s, %v", id, got, err)
		}
	}
}

// A secret whose file cannot be read for a while is still one.
func TestSecretThatIsGone(t *testing.T) {
	const secret = "Zq7#Kw9!Xv5&Jh3?mN"
	b := newBench(t, benchOptions{})
	allowed, err := policy.NewAllowlist([]policy.Entry{{Skill: "demo", Path: "scripts/ok.sh", Secrets: []string{"TOKEN"}}})
	if err != nil {
		t.Fatal(err)
	}
	b.cfg.Policy = policy.New(policy.Config{Allowlist: allowed})
	value, failure := "", errors.New("too many open files")
	b.cfg.Secret = func(string) (string, error) { return value, failure }
	for _, step := range []struct {
		value   string
		failure error
		want    string
	}{
		{"", failure, secret}, {secret, nil, "[secret TOKEN]"}, {"", failure, "[secret TOKEN]"}, {"another-secret", nil, secret}, {"", failure, secret},
	} {
		value, failure = step.value, step.failure
		if got := b.Secrets().Text(secret); got != step.want {
			t.Errorf("with %q, %v: %s, want %s", step.value, step.failure, got, step.want)
		}
	}
}
