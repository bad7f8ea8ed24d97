package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/skills/policy"
)

// Rules that replace others count for the next request. What a script was at the start stays what its entry
// approves, and what the user approved goes with its entry.
func TestReplace(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	b.load("demo")
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
		t.Fatal(err)
	}
	ses := b.Current()
	key := approval.Key{Skill: "demo", Path: "scripts/ok.sh", Tree: ses.activated("demo").index.TreeDigest}
	remember := func() {
		ses.mu.Lock()
		defer ses.mu.Unlock()
		ses.approved[key] = true
	}
	remembers := func() bool {
		ses.mu.Lock()
		defer ses.mu.Unlock()
		return ses.approved[key]
	}
	replace := func(change func(*policy.Config)) {
		t.Helper()
		cfg := b.cfg.Policy.Config()
		change(&cfg)
		rules := b.cfg.rules()
		rules.Policy = policy.New(cfg)
		if err := b.Replace(t.Context(), rules, "allow"); err != nil {
			t.Fatal(err)
		}
	}
	remember()
	replace(func(*policy.Config) {})
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil || !remembers() {
		t.Errorf("with the same entries: %v, remembered %v", err, remembers())
	}
	replace(func(cfg *policy.Config) { cfg.Allowlist = policy.Allowlist{} })
	if _, err := b.run("demo", "scripts/ok.sh"); code(err) != "script_not_allowlisted" || remembers() {
		t.Errorf("without the entry: %v, remembered %v", err, remembers())
	}
	replace(func(*policy.Config) {})
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil || remembers() {
		t.Errorf("with the entry again: %v, remembered %v", err, remembers())
	}
	// An entry without a digest, which did not change, does not take up other bytes.
	script := filepath.Join(b.root, "demo", "scripts", "ok.sh")
	if err := os.WriteFile(script, []byte("#!/bin/bash\necho other\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := b.cfg.Registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	replace(func(cfg *policy.Config) { cfg.Release = policy.ReleaseObserved })
	b.load("demo")
	if _, err := b.run("demo", "scripts/ok.sh"); code(err) != "script_snapshot_mismatch" {
		t.Errorf("after a change of the script: %v", err)
	}
	b.Unheeded(true)
	_, err := b.run("demo", "scripts/ok.sh")
	if denied, ok := err.(*Denied); !ok || !strings.Contains(denied.Object.Remedy, "has a fault") {
		t.Errorf("with a faulty configuration: %v", err)
	}
}
