package session

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/e2e/testtree"
	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/sandbox"
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
		rules := b.rules.Load().Rules
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
	remember()
	replace(func(cfg *policy.Config) { cfg.Role = policy.Context })
	if remembers() {
		t.Error("an approval outlives the rest of the policy")
	}
	b.Unheeded(true)
	_, err := b.run("demo", "scripts/ok.sh")
	if denied, ok := err.(*Denied); !ok || !strings.Contains(denied.Object.Remedy, "has a fault") {
		t.Errorf("with a faulty configuration: %v", err)
	}
}

// replaced puts rules in force that have one entry for scripts/ok.sh of demo.
func (b *bench) replaced(entry policy.Entry) {
	b.t.Helper()
	entry.Skill, entry.Path = "demo", "scripts/ok.sh"
	allowlist, err := policy.NewAllowlist([]policy.Entry{entry})
	if err != nil {
		b.t.Fatal(err)
	}
	cfg, rules := b.Policy().Config(), b.rules.Load().Rules
	cfg.Allowlist = allowlist
	rules.Policy = policy.New(cfg)
	rules.Secret = func(string) (string, error) { return "Zq7#Kw9!Xv5&Jh3?mN", nil }
	if err := b.Replace(b.t.Context(), rules, "allow"); err != nil {
		b.t.Fatal(err)
	}
}

// wider are entries that let a script use more than the user was asked about.
var wider = map[string]policy.Entry{
	"on the host": {Target: policy.TargetHost},
	"network":     {Network: []string{"a.example"}},
	"secret":      {Secrets: []string{"TOKEN"}},
	"variable":    {Env: []string{"TOKEN"}},
}

// An approval does not cover what the configuration grants only since the question.
func TestReplaceWhileAsked(t *testing.T) {
	for name, entry := range wider {
		b := newBench(t, benchOptions{policy: policy.Config{HostTarget: true, Release: policy.ReleaseObserved}})
		b.load("demo")
		q, _, err := b.askRun([]string{"a"}, nil)
		if q == nil {
			t.Fatalf("not asked: %v", err)
		}
		b.replaced(entry)
		_, result, err := b.askRun([]string{"a"}, &Answer{State: q.State, Action: "accept", Chosen: true})
		if result != nil || err == nil {
			t.Errorf("%s: an approval of less lets it run: %v", name, err)
		}
		if cmd := b.runner.cmd.Load(); cmd != nil {
			t.Errorf("%s: it ran: %+v", name, cmd)
		}
	}
}

// Nor does one that was given before the run waited for its slot.
func TestReplaceWhileWaiting(t *testing.T) {
	for name, entry := range wider {
		b := newQueueBench(t)
		cfg, rules := b.Policy().Config(), b.rules.Load().Rules
		cfg.Role, cfg.HostTarget, cfg.Release = policy.Context, true, policy.ReleaseObserved
		rules.Policy = policy.New(cfg)
		if err := b.Replace(t.Context(), rules, "policy"); err != nil {
			t.Fatal(err)
		}
		q, _, err := b.askRun([]string{"a"}, nil)
		if q == nil {
			t.Fatalf("not asked: %v", err)
		}
		ses, call := b.call("run_skill_script")
		call.Progress = func(message string) {
			if strings.HasPrefix(message, "waiting") {
				b.replaced(entry)
				close(b.runner.end)
			}
		}
		result, err := ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh",
			Args: []string{"a"}, Timeout: time.Minute, CanAsk: true,
			Answer: &Answer{State: q.State, Action: "accept", Chosen: true}})
		if result != nil || err == nil {
			t.Errorf("%s: an approval of less lets it run: %+v, %v", name, result, err)
		}
	}
}

// The record has the new policy before the next event of a session, also in the middle of a run.
func TestReplaceWhileRunning(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	b.load("demo")
	b.Current().background.Wait()
	b.runner.before = func() { b.replaced(policy.Entry{}) }
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
		t.Fatal(err)
	}
	if got, want := b.events(), "session.started activated script_requested session.resumed script_executed"; got != want {
		t.Errorf("events = %s, want %s", got, want)
	}
}

// An entry without a digest approves nothing that came after it was read, whatever else is replaced.
func TestReplacePinsNothingLate(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct, allow: []string{"demo:scripts/ok.sh", "late:scripts/a.sh"}})
	testtree.Write(t, filepath.Join(b.root, "late"), map[string]string{"SKILL.md": "---\nname: late\ndescription: Late.\n---\n", "scripts/a.sh": "#!/bin/sh\n"})
	if _, err := b.cfg.Registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg, rules := b.Policy().Config(), b.rules.Load().Rules
	cfg.Release = policy.ReleaseObserved
	rules.Policy = policy.New(cfg)
	if err := b.Replace(t.Context(), rules, "release"); err != nil {
		t.Fatal(err)
	}
	b.load("late")
	if result, err := b.run("late", "scripts/a.sh"); result != nil || err == nil {
		t.Errorf("bytes that were not there run: %v", err)
	}
}

// Nor if another entry of its skill, which has a digest, is why the skill is known by then.
func TestPinAddedApprovesNoOthers(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct, allow: []string{"late:scripts/b.sh",
		"late:scripts/a.sh@sha256:" + strings.Repeat("0", 64)}})
	testtree.Write(t, filepath.Join(b.root, "late"), map[string]string{"SKILL.md": "---\nname: late\ndescription: Late.\n---\n", "scripts/b.sh": "#!/bin/sh\n"})
	if _, err := b.cfg.Registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.PinAdded(t.Context())
	b.load("late")
	if result, err := b.run("late", "scripts/b.sh"); result != nil || code(err) != "script_snapshot_mismatch" {
		t.Errorf("bytes that were not there run: %v", err)
	}
}

// A session that loaded a skill before a change that was allowed since need only load it again.
func TestAllowedSince(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Role: policy.DirectCommand, Release: policy.ReleaseObserved}})
	script := filepath.Join(b.root, "demo/scripts/ok.sh")
	b.replaced(policy.Entry{Pin: digest.FromString("#!/bin/sh\necho ok\n"), PinScript: true})
	b.load("demo")
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
		t.Fatal(err)
	}
	const other = "#!/bin/sh\necho other\n"
	if err := os.WriteFile(script, []byte(other), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.run("demo", "scripts/ok.sh"); code(err) != "script_snapshot_mismatch" || strings.Contains(remedyOf(err), "call load_skill again, then") {
		t.Errorf("before the change is allowed: %v: %s", err, remedyOf(err))
	}
	b.replaced(policy.Entry{Pin: digest.FromString(other), PinScript: true})
	if _, err := b.run("demo", "scripts/ok.sh"); code(err) != "script_snapshot_mismatch" || remedyOf(err) != "call load_skill again, then run the script again" {
		t.Errorf("after the change was allowed: %v: %s", err, remedyOf(err))
	}
	b.load("demo")
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
		t.Errorf("loaded again: %v", err)
	}
}

func remedyOf(err error) string {
	if denied, ok := errors.AsType[*Denied](err); ok {
		return denied.Object.Remedy
	}
	return ""
}

// An approval holds for the directory that the question named and for the access that it named.
func TestApprovalOfProject(t *testing.T) {
	dirs := map[string]string{"harmless": t.TempDir(), "precious": t.TempDir()}
	mode := sandbox.WorkspaceRO
	b := newBench(t, benchOptions{policy: policy.Config{Release: policy.ReleaseObserved}})
	at := "harmless"
	b.rules.Load().ClientWorkspace = func(ClientDir) (sandbox.Workspace, error) {
		dir, err := os.Open(dirs[at])
		return sandbox.Workspace{Mode: mode, Dir: dir}, err
	}
	b.load("demo")
	ses, call := b.call("run_skill_script")
	call.Workspace = ClientDir{Path: "/project"}
	run := func(answer *Answer) (*Question, error) {
		_, err := ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Timeout: time.Minute, CanAsk: true, Answer: answer})
		q, _ := errors.AsType[*Question](err)
		return q, err
	}
	for name, change := range map[string]func(){
		"other access": func() { mode = sandbox.WorkspaceRW }, "another directory": func() { at = "precious" },
	} {
		mode, at = sandbox.WorkspaceRO, "harmless"
		q, err := run(nil)
		if q == nil {
			t.Fatalf("not asked: %v", err)
		}
		change()
		if _, err := run(&Answer{State: q.State, Action: "accept", Chosen: true}); code(err) != "approval_declined" {
			t.Errorf("%s: %v", name, err)
		}
	}
	mode, at = sandbox.WorkspaceRO, "harmless"
	q, _ := run(nil)
	if _, err := run(&Answer{State: q.State, Action: "accept", Chosen: true, Remember: true}); err != nil {
		t.Fatal(err)
	}
	if q, err := run(nil); q != nil || err != nil {
		t.Errorf("asked again: %v", err)
	}
	mode = sandbox.WorkspaceRW
	if q, err := run(nil); q == nil {
		t.Errorf("what was remembered for reading lets it write: %v", err)
	}
}
