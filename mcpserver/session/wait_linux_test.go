package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skillsd/skillsd/mcpserver/admit"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/skills/policy"
)

// turnBench is a bench whose scripts run in real sandboxes, in one slot that something else holds.
type turnBench struct {
	*cacheBench
	held   *admit.Claim
	secret string // of the script; "" is gone
}

func newTurnBench(t *testing.T) *turnBench {
	t.Helper()
	b := &turnBench{cacheBench: newCacheBench(t, native.New(nil), "sh", []string{"go.sh"}, map[string]string{"go.sh": "#!/bin/sh\necho ran\n"}), secret: "Zq7#Kw9!Xv5&Jh3?mN"}
	list, err := policy.NewAllowlist([]policy.Entry{{Skill: "demo", Path: "scripts/go.sh", Secrets: []string{"TOKEN"}, Release: policy.ReleaseObserved}})
	if err != nil {
		t.Fatal(err)
	}
	b.setPolicy(policy.New(policy.Config{Role: policy.DirectCommand, Allowlist: list, Tools: []string{"load_skill", "run_skill_script"}}))
	b.rules.Load().Secret = func(string) (string, error) {
		if b.secret == "" {
			return "", errors.New("gone")
		}
		return b.secret, nil
	}
	b.queue = admit.NewQueue(1, nil)
	b.hold()
	return b
}

// mustJoin has one run of each principal join, in this order.
func mustJoin(t testing.TB, q *admit.Queue, principals string) []*admit.Claim {
	t.Helper()
	var held []*admit.Claim
	for p := range strings.FieldsSeq(principals) {
		slot, err := q.Join(p)
		if err != nil {
			t.Fatalf("join(%s) = %v", p, err)
		}
		held = append(held, slot)
	}
	return held
}

func (b *turnBench) hold() { b.held = mustJoin(b.t, b.queue, "holder")[0] }

// runAfter runs the script, which has its turn after something is done while it waits.
func (b *turnBench) runAfter(ctx context.Context, in RunRequest, while func()) (*RunResult, error) {
	ses, call := b.call("run_skill_script")
	call.Progress = func(message string) {
		if strings.HasPrefix(message, "waiting") {
			while()
			b.held.Release()
		}
	}
	in.Call, in.Skill, in.Path, in.Timeout = call, "demo", "scripts/go.sh", time.Minute
	return ses.RunScript(ctx, in)
}

// kind is how a bench writes a kind of event.
func kind(k provenance.Kind) string { return strings.TrimPrefix(string(k), "skill.") }

// What allowed a run when it came must still be so when its turn comes.
func TestWaitedRunIsCheckedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		while func(t *testing.T, b *turnBench, script string)
		want  string
		last  provenance.Kind
	}{
		"unchanged": {func(*testing.T, *turnBench, string) {}, "", provenance.KindScriptExecuted},
		"changed script": {func(t *testing.T, b *turnBench, script string) {
			b.write(map[string]string{"go.sh": "#!/bin/sh\necho another\n"})
		}, string(policy.CodeScriptSnapshotMismatch), provenance.KindPolicyDenied},
		"removed skill": {func(t *testing.T, b *turnBench, script string) {
			if err := os.RemoveAll(filepath.Dir(filepath.Dir(script))); err != nil {
				t.Error(err)
			}
		}, string(policy.CodeScriptSnapshotMismatch), provenance.KindPolicyDenied},
		"loaded anew": {func(t *testing.T, b *turnBench, script string) {
			b.write(map[string]string{"go.sh": "#!/bin/sh\necho another\n"})
			clear(b.rules.Load().trees)
			clear(b.rules.Load().pins)
			if _, err := b.cfg.Registry.Rescan(t.Context()); err != nil {
				t.Error(err)
			}
			if err := b.Start(t.Context(), nil); err != nil {
				t.Error(err)
			}
			b.load("demo")
		}, string(policy.CodeScriptSnapshotMismatch), provenance.KindPolicyDenied},
		"secret gone": {func(_ *testing.T, b *turnBench, _ string) { b.secret = "" }, string(fault.CodeEnvDenied), provenance.KindScriptExecuted},
		"policy": {func(_ *testing.T, b *turnBench, _ string) {
			b.setPolicy(policy.New(policy.Config{Tools: []string{"load_skill", "run_skill_script"}}))
		}, string(policy.CodeScriptNotAllowlisted), provenance.KindPolicyDenied},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTurnBench(t)
			result, err := b.runAfter(t.Context(), RunRequest{}, func() { test.while(t, b, filepath.Join(b.root, "demo/scripts/go.sh")) })
			if code(err) != test.want {
				t.Errorf("RunScript = %+v, %v, want %q", result, err, test.want)
			}
			if test.want == "" && (result == nil || result.Stdout.Head != "ran\n") {
				t.Errorf("RunScript = %+v", result)
			}
			events := strings.Fields(b.events())
			if last := events[len(events)-1]; last != kind(test.last) || strings.Count(b.events(), kind(provenance.KindScriptRequested)) != 1 {
				t.Errorf("events = %s", events)
			}
			if b.queue.State().Free != 1 || b.queue.State().Principals != 0 {
				t.Errorf("%d slots are free, shares %v", b.queue.State().Free, b.queue.State())
			}
		})
	}
}

// A call that a user has approved runs after its wait without another question, and is recorded with one
// decision.
func TestWaitedRunKeepsItsApproval(t *testing.T) {
	b := newTurnBench(t)
	cfg := b.Policy().Config()
	cfg.Role = ""
	b.setPolicy(policy.New(cfg))
	ses, call := b.call("run_skill_script")
	request := RunRequest{Call: call, Skill: "demo", Path: "scripts/go.sh", Timeout: time.Minute, CanAsk: true}
	_, err := ses.RunScript(t.Context(), request)
	question, ok := errors.AsType[*Question](err)
	if !ok {
		t.Fatalf("RunScript = %v, want a question", err)
	}
	decisions := func() int {
		return strings.Count(b.artifact(provenance.PolicyTraceFile), `"`+cfharness.TypePolicyDecision+`"`)
	}
	before := decisions()
	result, err := b.runAfter(t.Context(), RunRequest{CanAsk: true, Answer: &Answer{State: question.State, Action: "accept", Chosen: true}}, func() {})
	if err != nil || result.Stdout.Head != "ran\n" {
		t.Errorf("RunScript = %+v, %v", result, err)
	}
	events := b.events()
	if strings.Count(events, kind(provenance.KindApprovalAsked)) != 1 || strings.Count(events, kind(provenance.KindApprovalAnswered)) != 1 {
		t.Errorf("events = %s", events)
	}
	if got := decisions() - before; got != 1 {
		t.Errorf("%d decisions are recorded of the run", got)
	}
}

// A lease that ended while the run waited opens no browser.
func TestWaitedRunNeedsItsLease(t *testing.T) {
	b := hostBench(t, "echo ran\n", onHost(), policy.Entry{Release: policy.ReleaseObserved})
	b.Current().background.Wait()
	b.queue = admit.NewQueue(1, nil)
	held := mustJoin(t, b.queue, "holder")[0]
	b.progress = func(message string) {
		if strings.HasPrefix(message, "waiting") {
			b.cfg.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
			held.Release()
		}
	}
	if r, err := b.runHost(RunRequest{}); code(err) != string(policy.CodeLeaseInvalid) {
		t.Errorf("RunScript = %+v, %v", r, err)
	}
}

// Runs that wait hold no files open.
func TestWaitHoldsNoDescriptors(t *testing.T) {
	b := newTurnBench(t)
	b.Current().background.Wait()
	open := func() map[string]int {
		dir := "/proc/self/fd"
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		files := map[string]int{}
		for _, entry := range entries {
			// What belongs to the test's own runtime begins otherwise.
			if target, err := os.Readlink(filepath.Join(dir, entry.Name())); err == nil && strings.HasPrefix(target, "/") {
				files[target]++
			}
		}
		return files
	}
	var waiting map[string]int
	before := open()
	if _, err := b.runAfter(t.Context(), RunRequest{}, func() { waiting = open() }); err != nil {
		t.Fatal(err)
	}
	for target, n := range waiting {
		if n > before[target] {
			t.Errorf("%s is open %d times, %d times while a run waits", target, before[target], n)
		}
	}
}

// As many runs wait as there are descriptors for.
func TestWaitsAreBoundedByDescriptors(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	lower := before
	lower.Cur = 400
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lower); err != nil {
		t.Fatal(err)
	}
	q := admit.NewQueue(1, nil)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	mustJoin(t, q, "holder"+strings.Repeat(" a", 50)+strings.Repeat(" b", 50))
	if _, err := q.Join("a"); err != admit.ErrCrowded {
		t.Errorf("join of one too many = %v, want admit.ErrCrowded", err)
	}
	if q.State().Waiting != 100 {
		t.Errorf("%d wait", q.State().Waiting)
	}
}

// A run that finds no slot ends the making of a cache, which is made after a later run.
func TestCacheYieldsItsSlot(t *testing.T) {
	b := newCacheBench(t, native.New(nil), "python3", []string{"main.py"}, map[string]string{"main.py": "import m\n", "m.py": large})
	b.queue = admit.NewQueue(2, nil)
	started, ended := make(chan struct{}), make(chan bool, 1)
	b.watched.before = func(ctx context.Context, _ *sandbox.Cmd) {
		close(started)
		select {
		case <-ctx.Done():
			ended <- true
		case <-time.After(time.Minute):
			ended <- false
		}
	}
	ses, call := b.call("run_skill_script")
	request := RunRequest{Call: call, Skill: "demo", Path: "scripts/main.py", Timeout: time.Minute}
	if _, err := ses.RunScript(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	<-started
	b.watched.before = nil
	other := mustJoin(t, b.queue, "other")[0]
	if other.Queued() {
		t.Fatal("no slot is left beside the cache")
	}
	if _, err := ses.RunScript(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if !<-ended {
		t.Error("the run waited for the cache")
	}
	b.caches.work.Wait()
	other.Release()
	b.script("main.py")
	if _, cache := b.script("main.py"); cache == "" {
		t.Error("the cache was never made")
	}
}
