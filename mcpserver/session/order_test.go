package session

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// Of several things that are wrong with a run the first in the order of RunScript is reported, so that a
// refusal reveals nothing of what comes after it.
func TestRunChecksInOrder(t *testing.T) {
	noSandbox := func(b *bench) {
		b.cfg.Runner = func(context.Context) (sandbox.Runner, error) {
			return nil, &sandbox.UnavailableError{Backend: "native", Reason: "none", Remedy: "none"}
		}
	}
	changed := func(b *bench) {
		if err := os.WriteFile(filepath.Join(b.root, "demo", "notes.md"), []byte("changed\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name    string
		change  func(b *bench)
		request RunRequest
		code    string
		events  string // recorded after the load
	}{
		{"arguments, then the skill", nil, RunRequest{Skill: "none", Path: "..", Args: []string{"a\x00"}}, "invalid_arguments", " script_requested script_executed"},
		{"skill, then the path", nil, RunRequest{Skill: "none", Path: ".."}, "skill_not_found", " script_requested script_executed"},
		{"path, then the policy", nil, RunRequest{Skill: "narrow", Path: ".."}, "script_path_invalid", " script_requested script_executed"},
		{"policy, then the file", nil, RunRequest{Skill: "demo", Path: "scripts/missing.sh"}, "script_not_allowlisted", " script_requested policy.denied"},
		{"file, then the disk", changed, RunRequest{Skill: "demo", Path: "scripts/none.sh"}, "script_not_indexed", " script_requested script_executed"},
		{"disk, then the runtime", changed, RunRequest{Skill: "demo", Path: "scripts/x.rb"}, "script_snapshot_mismatch", " script_requested policy.denied"},
		{"runtime, then the sandbox", noSandbox, RunRequest{Skill: "demo", Path: "scripts/x.rb"}, "unsupported_runtime", " script_requested script_executed"},
		{"sandbox", noSandbox, RunRequest{Skill: "demo", Path: "scripts/ok.sh"}, "sandbox_unavailable", " script_requested script_executed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, benchOptions{policy: direct})
			b.load("demo")
			before := b.events()
			if test.change != nil {
				test.change(b)
			}
			ses, call := b.call("run_skill_script")
			test.request.Call, test.request.Timeout = call, time.Minute
			_, err := ses.RunScript(t.Context(), test.request)
			if code(err) != test.code {
				t.Errorf("RunScript = %v, want %s", err, test.code)
			}
			if got := strings.TrimPrefix(b.events(), before); got != test.events {
				t.Errorf("recorded %q, want %q", got, test.events)
			}
		})
	}
}

// A skill that a profile leaves out is refused by the profile, whether or not there is one of that name.
func TestExcludedSkillsLookAlike(t *testing.T) {
	cfg := policy.Config{Role: policy.DirectCommand, Profiles: []policy.Profile{{Name: "few", Skills: []string{"narrow"}}}}
	b := newBench(t, benchOptions{policy: cfg})
	b.load("demo")
	ses, call := b.call("run_skill_script")
	call.Principal.Profile = "few"
	var details []string
	for _, skill := range []string{"demo", "nope"} {
		_, run := ses.RunScript(t.Context(), RunRequest{Call: call, Skill: skill, Path: "scripts/ok.sh", Timeout: time.Minute})
		call.Method = "read_skill_resource"
		_, read := ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: skill, Path: "notes.md", MaxBytes: 10})
		call.Method = "load_skill"
		_, load := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: skill})
		call.Method = "run_skill_script"
		for _, err := range []error{run, read, load} {
			if code(err) != string(policy.CodeProfileExcludes) {
				t.Errorf("%s: %v, want profile_excludes", skill, err)
				continue
			}
			details = append(details, strings.ReplaceAll(err.Error(), skill, "SKILL"))
		}
	}
	for i := range len(details) / 2 {
		if details[i] != details[i+len(details)/2] {
			t.Errorf("%q and %q tell the skills apart", details[i], details[i+len(details)/2])
		}
	}
}

// What the policy says once the user has approved a run is what is recorded of it.
func TestApprovedRunIsDecidedAgain(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.load("demo")
	q, _, err := b.askRun([]string{"a"}, nil)
	if q == nil {
		t.Fatalf("not asked: %v", err)
	}
	b.Current().background.Wait() // then the run is recorded last
	if _, _, err := b.askRun([]string{"a"}, &Answer{State: q.State, Action: "accept", Chosen: true}); err != nil {
		t.Fatal(err)
	}
	all := events(t, b, b.Current().ID())
	last := all[len(all)-1]
	if decision := string(last.Decision); last.Kind != provenance.KindScriptExecuted || !strings.Contains(decision, `"evidence":"approval"`) ||
		!strings.Contains(decision, "cfc_enforce_explicit_direct_command") {
		t.Errorf("%s was decided as %s", last.Kind, decision)
	}
}

// In strict mode reading needs evidence too, by every verb that reads.
func TestStrictReadsAreDecided(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Mode: policy.EnforceStrict}})
	ses, call := b.call("load_skill")
	_, load := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"})
	call.Method = "read_skill_resource"
	_, read := ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: "demo", Path: "notes.md", MaxBytes: 10})
	call.Method = "resources/read"
	_, uri := ses.ReadURI(t.Context(), ReadRequest{Call: call, URI: "skill://demo/notes.md"})
	for verb, err := range map[string]error{"load": load, "read": read, "uri": uri} {
		if code(err) != string(policy.CodeDirectCommandRequired) {
			t.Errorf("%s = %v, want direct_command_required", verb, err)
		}
	}
}

// The end of a session waits for the outcome of its runs, and nothing is recorded after it.
func TestEndWaitsForRuns(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	b.load("demo")
	ses := b.Current()
	running, over := make(chan struct{}), make(chan struct{})
	b.runner.before = func() {
		close(running)
		<-over
	}
	ran := make(chan error, 1)
	go func() {
		_, err := b.run("demo", "scripts/ok.sh")
		ran <- err
	}()
	<-running
	if ses.runs.TryLock() {
		t.Fatal("the end of the session would not wait for the run")
	}
	ended := make(chan error, 1)
	go func() { ended <- ses.end(context.Background()) }()
	close(over)
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	call := Call{Method: "read_skill_resource", Principal: local}
	if _, err := ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: "demo", Path: "notes.md", MaxBytes: 10}); code(err) != "provenance_unavailable" {
		t.Errorf("a read after the end = %v", err)
	}
	if _, err := ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh"}); code(err) != "provenance_unavailable" {
		t.Errorf("a run after the end = %v", err)
	}
	if got := b.events(); !strings.HasSuffix(got, "script_executed session.ended") {
		t.Errorf("recorded %s", got)
	}
}

// A file that changed since it was listed is not returned by its URI, and the registry is brought up to date.
func TestChangedFileIsNotReadByURI(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	ses, call := b.call("resources/read")
	request := ReadRequest{Call: call, URI: "skill://demo/notes.md"}
	if read, err := ses.ReadURI(t.Context(), request); err != nil || len(read.Data) == 0 {
		t.Fatalf("ReadURI = %+v, %v", read, err)
	}
	if err := os.WriteFile(filepath.Join(b.root, "demo", "notes.md"), []byte("changed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	read, err := ses.ReadURI(t.Context(), request)
	if code(err) != string(fault.CodeResourceChanged) || read != nil {
		t.Fatalf("ReadURI of a changed file = %+v, %v", read, err)
	}
	if read, err := ses.ReadURI(t.Context(), request); err != nil || string(read.Data) != "changed\n" {
		t.Errorf("ReadURI once it is listed anew = %+v, %v", read, err)
	}
}

// A file is read only when there is memory for it.
func TestRoomForFile(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	ses, call := b.call("resources/read")
	var asked []int64
	busy := &Error{Code: fault.CodeServerBusy, Message: "busy"}
	call.Room = func(_ context.Context, size int64) error {
		asked = append(asked, size)
		return busy
	}
	_, byURI := ses.ReadURI(t.Context(), ReadRequest{Call: call, URI: "skill://demo/notes.md"})
	_, byPath := ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: "demo", Path: "notes.md", MaxBytes: 10})
	info, err := os.Stat(filepath.Join(b.root, "demo", "notes.md"))
	if err != nil {
		t.Fatal(err)
	}
	if code(byURI) != string(fault.CodeServerBusy) || code(byPath) != string(fault.CodeServerBusy) {
		t.Errorf("without room: %v, %v", byURI, byPath)
	}
	if !slices.Equal(asked, []int64{info.Size(), info.Size()}) {
		t.Errorf("asked for %d bytes, want %d twice", asked, info.Size())
	}
}
