package session

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skillsd/skillsd/mcpserver/admit"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// slowRunner holds each run until it is told to end one.
type slowRunner struct {
	began chan struct{}
	end   chan struct{}
}

func (*slowRunner) Name() string { return "slow" }

func (r *slowRunner) Run(ctx context.Context, cmd *sandbox.Cmd) (*sandbox.Result, error) {
	r.began <- struct{}{}
	select {
	case <-r.end:
		return &sandbox.Result{Outcome: sandbox.Exited, Backend: "slow", Limits: cmd.Limits}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// queueBench has one slot, which a run of its own holds until free is called.
type queueBench struct {
	*bench
	runner *slowRunner
	runs   sync.WaitGroup
}

func newQueueBench(t *testing.T) *queueBench {
	b := &queueBench{bench: newBench(t, benchOptions{policy: direct}), runner: &slowRunner{began: make(chan struct{}, 8), end: make(chan struct{})}}
	b.queue = admit.NewQueue(1, nil)
	b.cfg.Runner = func(context.Context) (sandbox.Runner, error) { return b.runner, nil }
	b.load("demo")
	b.runs.Go(func() { b.start(t.Context(), nil) })
	<-b.runner.began
	t.Cleanup(b.free)
	return b
}

// free ends the run that holds the slot.
func (b *queueBench) free() {
	select {
	case <-b.runner.end:
	default:
		close(b.runner.end)
	}
	b.runs.Wait()
}

// start runs a script; told gets what it is told.
func (b *queueBench) start(ctx context.Context, told func(string)) (*RunResult, error) {
	ses, call := b.call("run_skill_script")
	call.Progress = told
	return ses.RunScript(ctx, RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh"})
}

// A run that waits is told so, and runs when it is its turn.
func TestRunWaits(t *testing.T) {
	b := newQueueBench(t)
	var told []string
	result, err := b.start(t.Context(), func(message string) {
		told = append(told, message)
		if strings.HasPrefix(message, "waiting") {
			b.runner.end <- struct{}{}
			close(b.runner.end)
		}
	})
	if err != nil || result.Outcome != "exited" {
		t.Errorf("RunScript = %+v, %v", result, err)
	}
	if got, want := strings.Join(told, "; "), "waiting for a run slot, 0 before this one; running"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}

// What a caller holds for a call is given up before the call waits.
func TestRunStandsAside(t *testing.T) {
	b := newQueueBench(t)
	var told []string
	ses, call := b.call("run_skill_script")
	call.YieldSlot = func() bool { told = append(told, "aside"); return true }
	call.Progress = func(message string) {
		told = append(told, message)
		if strings.HasPrefix(message, "waiting") {
			close(b.runner.end)
		}
	}
	if _, err := ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh"}); err != nil {
		t.Errorf("RunScript = %v", err)
	}
	if got, want := strings.Join(told, "; "), "aside; waiting for a run slot, 0 before this one; running"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}

// A call that may not wait is told to come again.
func TestRunFindsNoRoom(t *testing.T) {
	b := newQueueBench(t)
	ses, call := b.call("run_skill_script")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call.YieldSlot, call.Progress = func() bool { return false }, func(string) { cancel() }
	if _, err := ses.RunScript(ctx, RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh"}); code(err) != string(fault.CodeServerBusy) {
		t.Errorf("RunScript = %v", err)
	}
	if b.queue.State().Waiting != 0 {
		t.Error("the run waits")
	}
}

// A run that waits when its call is cancelled or the server ends never starts, and is recorded as that.
func TestWaitEnds(t *testing.T) {
	for name, end := range map[string]func(b *queueBench, cancel func()){
		"canceled": func(_ *queueBench, cancel func()) { cancel() },
		"ended":    func(b *queueBench, _ func()) { b.queue.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newQueueBench(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			result, err := b.start(ctx, func(string) { end(b, cancel) })
			if err != nil || result.Outcome != string(sandbox.Canceled) {
				t.Errorf("RunScript = %+v, %v", result, err)
			}
			if rows := b.artifact(provenance.ScriptExecutionsFile); strings.Count(rows, `"outcome": "canceled"`) != 1 {
				t.Errorf("executions:\n%s", rows)
			}
			if raw, err := json.Marshal(result.Output); err != nil || strings.Contains(string(raw), "observedDigest") ||
				result.Output.ExecutionTarget != "sandbox" || !strings.HasSuffix(strings.Join(result.Output.Argv, " "), "/skill/scripts/ok.sh") {
				t.Errorf("output object %s, %v", raw, err)
			}
			b.free()
			if len(b.runner.began) != 0 {
				t.Error("the run was started")
			}
			if b.queue.State().Free != 1 || b.queue.State().Principals != 0 {
				t.Errorf("%d slots are free, shares %v", b.queue.State().Free, b.queue.State())
			}
		})
	}
}

// What enforcement would have refused is warned of, although the run was cancelled while it waited.
func TestCanceledWaitIsWarnedOf(t *testing.T) {
	b := newQueueBench(t)
	b.Current().background.Wait()
	cfg := b.Policy().Config()
	cfg.Mode, cfg.Role = policy.Observe, ""
	b.setPolicy(policy.New(cfg))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if result, err := b.start(ctx, func(string) { cancel() }); err != nil || result.Outcome != string(sandbox.Canceled) {
		t.Errorf("RunScript = %+v, %v", result, err)
	}
	if got, want := b.events(), "session.started activated script_requested script_requested policy.warned script_executed"; got != want {
		t.Errorf("events = %s, want %s", got, want)
	}
}

// The end of the server does not wait for runs that wait.
func TestEndEndsWaits(t *testing.T) {
	b := newQueueBench(t)
	waits := make(chan struct{})
	b.runs.Go(func() {
		b.start(t.Context(), func(message string) {
			if strings.HasPrefix(message, "waiting") {
				close(waits)
			}
		})
	})
	<-waits
	ended := make(chan error)
	go func() { ended <- b.End(t.Context()) }()
	// The run that holds the slot ends only when no other can have it.
	for _, err := b.queue.Join("probe"); !errors.Is(err, admit.ErrClosed); _, err = b.queue.Join("probe") {
		runtime.Gosched()
	}
	b.runner.end <- struct{}{}
	if err := <-ended; err != nil {
		t.Errorf("End = %v", err)
	}
	if rows := b.artifact(provenance.ScriptExecutionsFile); strings.Count(rows, `"outcome": "canceled"`) != 1 || strings.Count(rows, `"outcome": "exited"`) != 1 {
		t.Errorf("executions:\n%s", rows)
	}
}

// A principal with too many runs waiting is told to come again, and that is recorded.
func TestRunIsCrowdedOut(t *testing.T) {
	b := newQueueBench(t)
	ses, call := b.call("run_skill_script")
	for range b.queue.State().MostEach {
		if _, err := b.queue.Join(call.Principal.Name); err != nil {
			t.Fatal(err)
		}
	}
	_, err := ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh"})
	failure, ok := errors.AsType[*Error](err)
	if !ok || failure.Code != fault.CodeServerBusy || !strings.Contains(failure.Remedy, "call again") || failure.Output == nil {
		t.Errorf("RunScript = %v", err)
	}
	if rows := b.artifact(provenance.ScriptExecutionsFile); !strings.Contains(rows, string(fault.CodeServerBusy)) {
		t.Errorf("executions:\n%s", rows)
	}
	call.Principal = policy.Principal{Name: "other"}
	if turn, err := b.queue.Join("other"); err != nil || !turn.Queued() {
		t.Errorf("another principal's run = %v", err)
	}
}

// A run that gets no slot in time is refused with how long it waited and how many come before it, and that is recorded.
func TestRunIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newQueueBench(t)
		if _, err := b.queue.Join(local.Name); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		_, err := b.start(t.Context(), nil)
		failure, ok := errors.AsType[*Error](err)
		want := "no run slot was free for 2 minutes; runs that come before this one: 1"
		if !ok || failure.Code != fault.CodeServerBusy || failure.Message != want || time.Since(begun) != 2*time.Minute {
			t.Errorf("RunScript = %v after %v, want %s", err, time.Since(begun), want)
		}
		if rows := b.artifact(provenance.ScriptExecutionsFile); !strings.Contains(rows, want) {
			t.Errorf("executions:\n%s", rows)
		}
		if b.queue.State().Waiting != 1 {
			t.Errorf("waiting: %+v", b.queue.State())
		}
	})
}
