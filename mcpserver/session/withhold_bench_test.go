package session

import (
	"context"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/policy"
)

// discardingStore appends nothing.
type discardingStore struct{ provenance.Store }

func (discardingStore) Append(context.Context, *provenance.Event) error { return nil }

// BenchmarkSecretsOfEvents is what one event costs with a secret declared: as it usually is, and made to
// cost as much as it can.
func BenchmarkSecretsOfEvents(b *testing.B) {
	values := map[string]string{"TOKEN": "Zq7#Kw9!Xv5&Jh3?mN", "KEY": strings.Repeat("line of a key 0123456789\n", 60)}
	allowed, err := policy.NewAllowlist([]policy.Entry{{Skill: "demo", Path: "scripts/ok.sh", Secrets: []string{"TOKEN", "KEY"}}})
	if err != nil {
		b.Fatal(err)
	}
	s := &Session{Sessions: New(Config{Policy: policy.New(policy.Config{Allowlist: allowed}), Records: discardingStore{},
		Secret: func(name string) (string, error) { return values[name], nil }})}
	for name, arg := range map[string]string{"usual": "--verbose", "worst": strings.Repeat(strings.Repeat("Zq7", 680)+"…", 50)} {
		row := encode(cfharness.ScriptExecution{Type: cfharness.TypeScriptExecution, Args: []string{arg}, Path: "scripts/ok.sh", CWD: "/workspace"})
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(row)))
			for b.Loop() {
				_ = s.write(b.Context(), &provenance.Event{Kind: provenance.KindScriptExecuted, Skill: "demo", Path: "scripts/ok.sh", Row: row, Decision: row})
			}
		})
	}
}
