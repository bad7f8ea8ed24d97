package session

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/mcpserver/session/elsewhere"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
	"github.com/skillsd/skillsd/skills/policy"
)

// near is a pool of one worker, in the process of the test.
type near struct {
	worker    *Sessions
	change    func(*elsewhere.Job) // what a server would not say; may be nil
	silent    bool                 // its answers come when they are asked for
	taken     int                  // slots
	waits     func()               // what happens while a run waits for its slot; nil if it does not
	job, done []byte               // the last
}

func (n *near) Acquire(_ context.Context, _, _ string, meant func() error, _ func(int)) (elsewhere.Slot, error) {
	if err := meant(); err != nil {
		return nil, err
	}
	n.taken++
	if n.waits != nil {
		n.waits()
	}
	return n, nil
}

func (n *near) Queued() bool { return n.waits != nil }
func (n *near) Release()     {}

func (n *near) Run(ctx context.Context, job []byte) ([]byte, error) {
	if n.change != nil {
		var j elsewhere.Job
		if err := json.Unmarshal(job, &j); err != nil {
			return nil, err
		}
		n.change(&j)
		job = elsewhere.Encode(j)
	}
	n.job, n.done = job, n.worker.Work(ctx, elsewhere.Worker{Name: "w1"}, job, func() error { return nil })
	if n.silent {
		return nil, elsewhere.ErrUnknown
	}
	return n.done, nil
}

func (n *near) Late(_ context.Context, _ string, lost func()) (job, done []byte, err error) {
	lost()
	return n.job, n.done, nil
}

// away is a server without a sandbox whose script runs at a worker that grants what entry does.
func away(t *testing.T, entry policy.Entry, body string) (*bench, *near) {
	t.Helper()
	sandboxtest.Need(t, "userns")
	front, worker := granting(t, policy.Entry{}, body), granting(t, entry, body)
	front.rules.Load().Secret = nil
	front.cfg.Runner = func(context.Context) (sandbox.Runner, error) { return nil, errors.New("no sandbox here") }
	front.cfg.Interpreter = func(context.Context, string) (*sandbox.Interpreter, error) { return nil, nil }
	// The worker has nothing that would show what a user wants.
	worker.setPolicy(policy.New(policy.Config{Allowlist: worker.Policy().Config().Allowlist, HostTarget: true,
		Release: worker.Policy().Config().Release, Tools: worker.Policy().Config().Tools}))
	pool := &near{worker: worker.Sessions}
	front.cfg.Pool = pool
	return front, pool
}

// A worker gives its own secrets to its script, and nothing of them leaves it.
func TestAwaySecrets(t *testing.T) {
	const body = "#!/bin/sh\necho \"<$TOKEN> $EXTRA\"\necho $TOKEN > /out/file\nprintf '\\0%s' $TOKEN > /out/binary\n"
	b, pool := away(t, policy.Entry{Secrets: []string{"TOKEN"}, Env: []string{"EXTRA"}, Release: policy.ReleaseObserved}, body)
	result, err := b.run("demo", "scripts/ok.sh")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(result.Stdout.Head, "value of EXTRA") || strings.Contains(result.Stdout.Head, "<>") || len(result.Out) != 2 ||
		result.Out[0].Withheld == "" && result.Out[1].Withheld == "" {
		t.Errorf("stdout %q, out %+v", result.Stdout.Head, result.Out)
	}
	all := b.everything(result)
	for _, text := range []string{all, string(pool.done), string(pool.job)} {
		if strings.Contains(text, theSecret) || strings.Contains(text, theSecret[:10]) {
			t.Errorf("the secret is in %q", text)
		}
	}
	if !strings.Contains(all, `"worker":"w1"`) || !strings.Contains(all, `"TOKEN"`) {
		t.Errorf("the record does not say where it ran with what: %s", all)
	}
}

// A worker decides by its own rules, with what the server says of its user.
func TestAwayDecides(t *testing.T) {
	for name, tt := range map[string]struct {
		entry   policy.Entry
		change  func(*elsewhere.Job)
		profile string // of the principal, at the worker
		code    string
	}{
		"as the server":       {},
		"nobody wants it":     {change: func(j *elsewhere.Job) { j.Grant.Evidence = "" }, code: string(policy.CodeDirectCommandRequired)},
		"approved, not asked": {entry: policy.Entry{Ask: policy.AskAlways}, code: string(policy.CodeApprovalRequired)},
		"approved": {entry: policy.Entry{Ask: policy.AskAlways},
			change: func(j *elsewhere.Job) { j.Grant.Evidence = policy.EvidenceApproval }},
		"another script": {change: func(j *elsewhere.Job) { j.Path = "scripts/x.rb" }, code: string(policy.CodeScriptNotAllowlisted)},
		"other files":    {change: func(j *elsewhere.Job) { j.Tree = "sha256:0" }, code: string(fault.CodeSandboxUnavailable)},
		"another skill":  {change: func(j *elsewhere.Job) { j.Skill = "none" }, code: string(fault.CodeSandboxUnavailable)},
		"narrowed":       {profile: "browser", code: string(policy.CodeProfileExcludes)},
		"on the host":    {entry: policy.Entry{Target: policy.TargetHost}, code: string(fault.CodeSandboxUnavailable)},
	} {
		t.Run(name, func(t *testing.T) {
			b, pool := away(t, tt.entry, "#!/bin/sh\necho ran\n")
			pool.change, pool.worker.cfg.Host = tt.change, b.runner
			pool.worker.cfg.Principals = map[string]policy.Principal{local.Name: {Profile: tt.profile}}
			result, err := b.run("demo", "scripts/ok.sh")
			if got := code(err); got != tt.code || err == nil && !strings.Contains(result.Stdout.Head, "ran") {
				t.Errorf("%q, %v, want %q", got, err, tt.code)
			}
		})
	}
}

// A worker gives no slot to a run whose files have changed here. Those of a run that waits are compared again.
func TestAwayFiles(t *testing.T) {
	for _, waits := range []bool{false, true} {
		b, pool := away(t, policy.Entry{}, "#!/bin/sh\n")
		b.load("demo")
		change := func() {
			if err := os.WriteFile(filepath.Join(b.root, "demo", "notes.md"), []byte("changed\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if waits {
			pool.waits = change
		} else {
			change()
		}
		_, err := b.run("demo", "scripts/ok.sh")
		if code(err) != string(policy.CodeScriptSnapshotMismatch) || (pool.taken > 0) != waits || pool.job != nil {
			t.Errorf("waits %v: %v, %d slots taken, job %s", waits, err, pool.taken, pool.job)
		}
	}
}

// A worker, which waits for its job for a moment only, gives no slot to a run whose request is not recorded yet.
func TestAwayRecorded(t *testing.T) {
	b, pool := away(t, policy.Entry{}, "#!/bin/sh\n")
	b.load("demo")
	b.Current().background.Wait()
	for _, broken := range []bool{true, false} {
		b.records.broken.Store(broken)
		_, err := b.run("demo", "scripts/ok.sh")
		if (err != nil) != broken || (pool.taken == 0) != broken {
			t.Errorf("broken %v: %v, %d slots taken", broken, err, pool.taken)
		}
	}
}

// The stricter release counts, and the lower limit.
func TestAwayBounds(t *testing.T) {
	b, pool := away(t, policy.Entry{Release: policy.ReleaseOpaque}, "#!/bin/sh\necho ran\nulimit -n\n")
	pool.change = func(j *elsewhere.Job) { j.Limits.Files = 77 }
	result, err := b.run("demo", "scripts/ok.sh")
	if err != nil || result.Stdout.Withheld == nil || strings.Contains(string(encode(result.Output)), "ran") {
		t.Errorf("released: %+v, %v", result, err)
	}
	var done elsewhere.Done
	if err := json.Unmarshal(pool.done, &done); err != nil || !strings.Contains(string(done.Result.Stdout.Head), "77") {
		t.Errorf("limits %+v", done)
	}
}

// The outcome that comes after its call has ended is recorded in the place of the unknown one.
func TestAwayLate(t *testing.T) {
	b, pool := away(t, policy.Entry{}, "#!/bin/sh\necho late >&2\necho made > /out/a.txt\nexit 3\n")
	pool.silent = true
	ses, call := b.call("run_skill_script")
	_, err := ses.RunScript(t.Context(),
		RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Timeout: time.Minute, ShowOut: true})
	if code(err) != string(fault.CodeOutcomeUnknown) {
		t.Fatal(err)
	}
	ses.background.Wait()
	all := events(t, b, ses.ID())
	unknown, late := all[len(all)-2], all[len(all)-1]
	var row cfharness.ScriptExecution
	if err := json.Unmarshal(late.Row, &row); err != nil {
		t.Fatal(err)
	}
	x := row.Skillsd
	if unknown.Detail != string(fault.CodeOutcomeUnknown) || x == nil || !x.Late || x.Supersedes != unknown.ID() || *row.ExitCode != 3 ||
		x.Stderr.Shown != nil || len(x.Out) != 1 || x.Out[0].Shown != nil || b.artifact(late.Files[0].Name) != "late\n" || late.Call != unknown.Call {
		t.Errorf("recorded %+v, %s", late, late.Row)
	}
}
