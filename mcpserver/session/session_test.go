package session

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/skillsd/skillsd/e2e/testtree"
	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store"
)

// fakeRunner answers for the sandbox; what is tested here is what happens around a run.
type fakeRunner struct {
	made   atomic.Int32 // sandboxes
	runs   atomic.Int32
	result sandbox.Result
	err    error
	cmd    atomic.Pointer[sandbox.Cmd]
	before func() // called by each run; may be nil
}

func (f *fakeRunner) Name() string { return "fake" }

// RunAfter has the sandbox made before begin, as the real runners do.
func (f *fakeRunner) RunAfter(ctx context.Context, cmd *sandbox.Cmd, begin func() error) (*sandbox.Result, error) {
	f.made.Add(1)
	if err := begin(); err != nil {
		return nil, err
	}
	return f.Run(ctx, cmd)
}

func (f *fakeRunner) Run(_ context.Context, cmd *sandbox.Cmd) (*sandbox.Result, error) {
	f.runs.Add(1)
	f.cmd.Store(cmd)
	if f.before != nil {
		f.before()
	}
	if f.err != nil {
		return nil, f.err
	}
	result := f.result
	result.Backend, result.Limits = "fake", cmd.Limits
	return &result, nil
}

// failingStore refuses appends while broken is set.
type failingStore struct {
	provenance.Store
	broken   atomic.Bool
	unkept   atomic.Bool // Put fails
	full     atomic.Bool // Reserve fails
	tight    atomic.Bool // there is room for one Put after what was reserved was released
	noResult atomic.Bool // the outcome of a run is what cannot be written
	onAppend func()      // called before each append
	onPut    func()      // called before each Put
	reserved atomic.Int32
	listed   int        // how often the sessions were
	sharing  sync.Mutex // held while a registry is written
}

func (s *failingStore) PutShared(ctx context.Context, session, name string, c *provenance.Shared) (provenance.File, error) {
	s.sharing.Lock()
	defer s.sharing.Unlock()
	return s.Store.PutShared(ctx, session, name, c)
}

func (s *failingStore) Sessions(ctx context.Context, since time.Time) iter.Seq2[provenance.Session, error] {
	s.listed++
	return s.Store.Sessions(ctx, since)
}

func (s *failingStore) Put(ctx context.Context, session, name string, data []byte) (provenance.File, error) {
	if s.onPut != nil {
		s.onPut()
	}
	if s.unkept.Load() || s.tight.CompareAndSwap(true, false) {
		return provenance.File{}, provenance.ErrUnavailable
	}
	return s.Store.Put(ctx, session, name, data)
}

func (s *failingStore) Reserve(ctx context.Context, session string, bytes int64) (func(), error) {
	s.reserved.Add(1)
	if s.full.Load() {
		return nil, &provenance.FullError{Principal: "alice", What: "2 of 2 sessions"}
	}
	return s.Store.Reserve(ctx, session, bytes)
}

func (s *failingStore) Append(ctx context.Context, e *provenance.Event) error {
	if s.onAppend != nil {
		s.onAppend()
	}
	if s.broken.Load() || s.noResult.Load() && e.Kind == provenance.KindScriptExecuted {
		return provenance.ErrUnavailable
	}
	return s.Store.Append(ctx, e)
}

// bench is a server's sessions over a real skills root and a real tree store.
type bench struct {
	*Sessions
	t       testing.TB
	root    string
	records *failingStore
	runner  *fakeRunner
}

type benchOptions struct {
	tier      skills.Tier
	policy    policy.Config
	allow     []string
	preload   []string
	workspace sandbox.WorkspaceMode
	files     map[string]string // more of them
}

func newBench(t testing.TB, o benchOptions) *bench {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"demo/SKILL.md":       "---\nname: demo\ndescription: For tests.\n---\nDo it.\n",
		"demo/notes.md":       "hello äöü\n",
		"demo/scripts/ok.sh":  "#!/bin/sh\necho ok\n",
		"demo/scripts/x.rb":   "puts 1\n",
		"narrow/SKILL.md":     "---\nname: narrow\ndescription: For tests.\nallowed-tools: Read\n---\nDo it.\n",
		"narrow/scripts/a.sh": "echo\n",
		"shy/SKILL.md":        "---\nname: shy\ndescription: For tests.\ndisable-model-invocation: true\n---\nDo it.\n",
	}
	maps.Copy(files, o.files)
	testtree.Write(t, root, files)
	state := t.TempDir()
	t.Cleanup(func() {
		filepath.WalkDir(state, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return nil
		})
	})
	trees, err := store.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	if o.allow == nil {
		o.allow = []string{"demo:scripts/ok.sh", "demo:scripts/x.rb", "demo:scripts/none.sh", "narrow:scripts/a.sh"}
	}
	o.policy.Allowlist, err = policy.ParseAllowlist(o.allow)
	if err != nil {
		t.Fatal(err)
	}
	o.policy.Tools = []string{"load_skill", "read_skill_resource", "run_skill_script", "resources/read"}
	workspace := sandbox.Workspace{Mode: o.workspace}
	if o.workspace != "" {
		workspace.Dir, err = os.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { workspace.Dir.Close() })
	}
	b := &bench{t: t, root: root, records: &failingStore{Store: newRecords(t)}, runner: &fakeRunner{}}
	b.runner.result = sandbox.Result{Outcome: sandbox.Exited, Duration: time.Millisecond,
		Stdout: sandbox.Stream{Head: []byte("secret output\n"), Total: 14, SHA256: "sha256:" + strings.Repeat("0", 64)}}
	registry := skills.NewRegistry([]skills.Root{{Dir: root, Tier: o.tier}}, nil)
	if _, err := registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Sessions = New(Config{
		Registry: registry, Policy: policy.New(o.policy), Trees: trees, Records: b.records, Workspace: workspace,
		Runner: func(context.Context) (sandbox.Runner, error) { return b.runner, nil },
		Interpreter: func(_ context.Context, name string) (*sandbox.Interpreter, error) {
			return &sandbox.Interpreter{Name: name, Path: "/usr/bin/" + name}, nil
		},
		NamesInErrors: true, Version: "test", Logger: slog.New(slog.DiscardHandler),
	})
	if err := b.Start(t.Context(), o.preload); err != nil {
		t.Fatal(err)
	}
	return b
}

// setPolicy changes the policy of a server that has served no call. Its pins stay.
func (b *bench) setPolicy(p *policy.Policy) {
	b.t.Helper()
	old := b.rules.Load()
	rules := old.Rules
	rules.Policy = p
	is := newRules(rules, nil)
	is.trees, is.pins = old.trees, old.pins
	b.rules.Store(is)
}

var local = policy.Principal{Name: "local", Evidence: true}

func (b *bench) call(method string) (*Session, Call) {
	b.t.Helper()
	call := Call{Method: method, Principal: local}
	ses, err := b.Open(b.t.Context(), call)
	if err != nil {
		b.t.Fatal(err)
	}
	return ses, call
}

func (b *bench) load(skill string) *Loaded {
	b.t.Helper()
	ses, call := b.call("load_skill")
	loaded, err := ses.Activate(b.t.Context(), ActivateRequest{Call: call, Skill: skill})
	if err != nil {
		b.t.Fatal(err)
	}
	return loaded
}

func (b *bench) run(skill, path string) (*RunResult, error) {
	b.t.Helper()
	ses, call := b.call("run_skill_script")
	return ses.RunScript(b.t.Context(), RunRequest{Call: call, Skill: skill, Path: path, Args: []string{"a"}, Timeout: time.Minute})
}

// code is the code of an error of either kind.
func code(err error) string {
	if denied, ok := errors.AsType[*Denied](err); ok {
		return denied.Object.Code
	}
	if plain, ok := errors.AsType[*Error](err); ok {
		return string(plain.Code)
	}
	return ""
}

// events are the kinds recorded so far, but for the registry, which comes when it is hashed.
func (b *bench) events() string {
	b.t.Helper()
	b.Current().background.Wait()
	var kinds []string
	for e, err := range b.records.Events(b.t.Context(), provenance.Query{Session: b.Current().ID()}) {
		if err != nil {
			b.t.Fatal(err)
		}
		if e.Kind != provenance.KindRegistrySnapshot {
			kinds = append(kinds, strings.TrimPrefix(string(e.Kind), "skill."))
		}
	}
	return strings.Join(kinds, " ")
}

func (b *bench) artifact(name string) string {
	b.t.Helper()
	file, err := b.records.Artifact(b.t.Context(), b.Current().ID(), name)
	if err != nil {
		b.t.Fatal(err)
	}
	defer file.Close()
	data, err := io.ReadAll(file)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(data)
}

var direct = policy.Config{Role: policy.DirectCommand}

func TestRun(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	b.load("demo")
	result, err := b.run("demo", "./scripts//ok.sh")
	if err != nil {
		t.Fatal(err)
	}
	if result.Stdout.Head != "secret output\n" || result.Output.Status != cfharness.StatusExecuted || *result.Output.ExitCode != 0 {
		t.Errorf("RunScript = %+v", result)
	}
	cmd := b.runner.cmd.Load()
	if got, want := strings.Join(cmd.Argv, " "), "/usr/bin/sh /mnt/skills/user/demo/scripts/ok.sh a"; got != want {
		t.Errorf("argv = %q, want %q", got, want)
	}
	// Records name the runtime; only they, not the answer, say where its program is.
	if got, want := strings.Join(result.Output.Argv, " "), "sh /skill/scripts/ok.sh a"; got != want {
		t.Errorf("argv of the output = %q, want %q", got, want)
	}
	// The record has the path that the interpreter got.
	if text := b.artifact(provenance.ScriptExecutionsFile); !strings.Contains(text, `"/mnt/skills/user/demo/scripts/ok.sh"`) {
		t.Errorf("the row is %s", text)
	}
	if in := result.Output.Skillsd.Interpreter; in == nil || in.Path != "" || !strings.Contains(b.artifact(provenance.ScriptExecutionsFile), `"path": "/usr/bin/sh"`) {
		t.Errorf("the interpreter of the output is %+v", in)
	}
	if got, want := b.events(), "session.started activated script_requested script_executed"; got != want {
		t.Errorf("events = %s, want %s", got, want)
	}
	for _, name := range []string{provenance.ActivationsFile, provenance.ScriptExecutionsFile, provenance.PolicyTraceFile, provenance.RegistryFile} {
		if !json.Valid([]byte(b.artifact(name))) {
			t.Errorf("%s is no JSON", name)
		}
	}
	if strings.Contains(b.artifact(provenance.ScriptExecutionsFile), "secret output") {
		t.Error("a record holds output")
	}
}

// Every refusal comes before the runner is asked, and is recorded.
func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		name     string
		options  benchOptions
		load     bool
		skill    string
		path     string
		code     string
		recorded string
	}{
		{"unknown skill", benchOptions{policy: direct}, true, "demon", "scripts/ok.sh", "skill_not_found", "script_executed"},
		{"path", benchOptions{policy: direct}, true, "demo", "scripts/../ok.sh", "script_path_invalid", "script_executed"},
		{"not loaded", benchOptions{policy: direct}, false, "demo", "scripts/ok.sh", "skill_not_activated", "policy.denied"},
		{"not allowed", benchOptions{policy: direct, allow: []string{"demo:scripts/x.rb"}}, true, "demo", "scripts/ok.sh", "script_not_allowlisted", "policy.denied"},
		{"wrong pin", benchOptions{policy: direct, allow: []string{"demo:scripts/ok.sh@sha256:" + strings.Repeat("0", 64)}}, true, "demo", "scripts/ok.sh", "script_snapshot_mismatch", "policy.denied"},
		{"allowed-tools", benchOptions{policy: direct}, true, "narrow", "scripts/a.sh", "allowed_tools_conflict", "policy.denied"},
		{"no evidence", benchOptions{}, true, "demo", "scripts/ok.sh", "direct_command_required", "policy.denied"},
		{"third party", benchOptions{policy: direct, tier: skills.TierThirdParty}, true, "demo", "scripts/ok.sh", "approval_required", "policy.denied"},
		{"workspace without release", benchOptions{policy: direct, workspace: sandbox.WorkspaceRO}, true, "demo", "scripts/ok.sh", "output_not_released", "policy.denied"},
		{"not a file", benchOptions{policy: direct}, true, "demo", "scripts/none.sh", "script_not_indexed", "script_executed"},
		{"runtime", benchOptions{policy: direct}, true, "demo", "scripts/x.rb", "unsupported_runtime", "script_executed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, test.options)
			if test.load {
				b.load(strings.TrimSuffix(test.skill, "n"))
			}
			_, err := b.run(test.skill, test.path)
			if got := code(err); got != test.code {
				t.Errorf("RunScript = %v (%s), want %s", err, got, test.code)
			}
			if b.runner.runs.Load() != 0 {
				t.Error("the runner was asked")
			}
			if events := b.events(); !strings.HasSuffix(events, " script_requested "+test.recorded) {
				t.Errorf("events = %s, want script_requested, then %s", events, test.recorded)
			}
			if strings.Contains(err.Error(), b.root) {
				t.Errorf("the error names a host path: %v", err)
			}
		})
	}
}

// A call that cannot be recorded is not answered and does not run, until it can be again.
func TestUnrecordable(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	b.load("demo")
	b.Current().background.Wait()
	b.records.broken.Store(true)
	if _, err := b.run("demo", "scripts/ok.sh"); code(err) != "provenance_unavailable" {
		t.Errorf("run = %v, want provenance_unavailable", err)
	}
	ses, call := b.call("read_skill_resource")
	if _, err := ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: "demo", Path: "notes.md", MaxBytes: 10}); code(err) != "provenance_unavailable" {
		t.Errorf("read = %v, want provenance_unavailable", err)
	}
	if _, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "none"}); code(err) != "provenance_unavailable" {
		t.Errorf("load of an unknown skill = %v, want provenance_unavailable", err)
	}
	if b.runner.runs.Load() != 0 || b.runner.made.Load() != 1 {
		t.Errorf("%d scripts ran that cannot be recorded, in %d sandboxes", b.runner.runs.Load(), b.runner.made.Load())
	}
	b.records.broken.Store(false)
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
		t.Errorf("run after the disk is back: %v", err)
	}
}

// A run for whose outcome there is no room does not start, and that is recorded once. What a run has left is kept
// also where there is no room before what was kept free for it is free.
func TestRoomOfARun(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	b.runner.result.Stdout.Head = []byte("out\n")
	b.load("demo")
	b.records.full.Store(true)
	if _, err := b.run("demo", "scripts/ok.sh"); code(err) != "records_full" || b.runner.runs.Load() != 0 {
		t.Errorf("run = %v, want records_full; %d scripts ran", err, b.runner.runs.Load())
	}
	if events := b.events(); !strings.HasSuffix(events, "activated script_requested script_executed") {
		t.Errorf("events = %s", events)
	}
	b.records.full.Store(false)
	b.records.tight.Store(true)
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil || b.records.tight.Load() {
		t.Errorf("run = %v", err)
	}
}

// What was kept free for the outcome of a run goes to no other run before the outcome is kept.
func TestRoomIsPassedOn(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	b.runner.result.Stdout.Head = []byte("out\n")
	b.load("demo")
	b.Current().background.Wait()
	var others sync.WaitGroup
	b.records.onPut = sync.OnceFunc(func() {
		before := b.records.reserved.Load()
		others.Go(func() {
			if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
				t.Errorf("another run = %v", err)
			}
		})
		for deadline := time.Now().Add(200 * time.Millisecond); time.Now().Before(deadline); runtime.Gosched() {
			if b.records.reserved.Load() > before {
				t.Error("room was reserved while an outcome was being kept")
				return
			}
		}
	})
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
		t.Errorf("run = %v", err)
	}
	others.Wait()
}

// With release opaque the script runs and a handle stands for what it printed.
func TestOpaqueRelease(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Role: policy.DirectCommand, Release: policy.ReleaseOpaque}, workspace: sandbox.WorkspaceRO})
	b.load("demo")
	result, err := b.run("demo", "scripts/ok.sh")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(result.Output)
	if err != nil {
		t.Fatal(err)
	}
	if result.Stdout.Head != "" || result.Stdout.Withheld == nil || strings.Contains(string(raw), "secret") {
		t.Errorf("withheld output is shown: %+v %s", result.Stdout, raw)
	}
	if got := b.artifact(provenance.OutputName(result.Output.OutputID, "stdout")); got != "secret output\n" {
		t.Errorf("the operator's copy is %q", got)
	}
}

// In observe mode a run without evidence is warned of, and runs.
func TestObserveWarns(t *testing.T) {
	b := newBench(t, benchOptions{policy: policy.Config{Mode: policy.Observe}})
	b.load("demo")
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
		t.Fatal(err)
	}
	if got, want := b.events(), "session.started activated script_requested policy.warned script_executed"; got != want {
		t.Errorf("events = %s, want %s", got, want)
	}
}

func TestHandles(t *testing.T) {
	b := newBench(t, benchOptions{})
	first := b.load("demo")
	if len(first.Handle) < 26 {
		t.Errorf("handle %q has fewer than 128 bits", first.Handle)
	}
	again := b.load("demo")
	if again.Handle != first.Handle || !again.Sent || again.Omitted || string(again.Body) != string(first.Body) {
		t.Errorf("loading again = handle %q, sent %v, %d bytes, want %q and the instructions", again.Handle, again.Sent,
			len(again.Body), first.Handle)
	}
	rows := strings.Count(b.artifact(provenance.ActivationsFile), `"activatedAt"`)
	if rows != 1 {
		t.Errorf("%d rows of one activation", rows)
	}
	if strings.Contains(b.artifact(provenance.ActivationsFile), first.Handle) {
		t.Error("a record holds the handle")
	}
	_, err := b.Open(t.Context(), Call{Method: "run_skill_script", Principal: local, Handle: "not-it"})
	if code(err) != "activation_unknown" {
		t.Errorf("Open with a foreign handle = %v, want activation_unknown", err)
	}
	if _, err := b.Open(t.Context(), Call{Method: "run_skill_script", Principal: local, Handle: first.Handle}); err != nil {
		t.Errorf("Open with the handle: %v", err)
	}
	b.Current().background.Wait() // it reads the clock
	b.cfg.Now = func() time.Time { return time.Now().Add(earlier.Life + time.Hour) }
	if _, err := b.Open(t.Context(), Call{Method: "run_skill_script", Principal: local, Handle: first.Handle}); code(err) != "activation_unknown" {
		t.Errorf("Open with an expired handle = %v, want activation_unknown", err)
	}
}

func TestReadSlices(t *testing.T) {
	b := newBench(t, benchOptions{})
	ses, call := b.call("read_skill_resource")
	for _, test := range []struct {
		offset, most int64
		want         string
		truncated    bool
	}{
		{0, 64_000, "hello äöü\n", false}, {0, 7, "hello ", true}, {0, 8, "hello ä", true}, {7, 100, "öü\n", true}, {0, 0, "", true}, {100, 10, "", true},
	} {
		read, err := ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: "demo", Path: "notes.md", MaxBytes: test.most, Offset: test.offset})
		if err != nil {
			t.Fatal(err)
		}
		if string(read.Data) != test.want || *read.Output.Truncated != test.truncated {
			t.Errorf("read at %d of %d = %q (truncated %v), want %q", test.offset, test.most, read.Data, *read.Output.Truncated, test.want)
		}
	}
}

// What is shown of a flood fits a result, and what the answer's object holds is no more than that.
func TestFloodIsCut(t *testing.T) {
	flood := strings.Repeat("0123456789\n", 100_000)
	for _, test := range []struct{ stdout, stderr string }{{flood, "err\n"}, {"out\n", flood}, {flood, flood}, {flood, ""}, {strings.Repeat("é", 500_000), ""}} {
		b := newBench(t, benchOptions{policy: direct})
		b.runner.result.Stdout = sandbox.Stream{Head: []byte(test.stdout), Total: int64(len(test.stdout)), SHA256: "sha256:" + strings.Repeat("0", 64)}
		b.runner.result.Stderr = sandbox.Stream{Head: []byte(test.stderr), Total: int64(len(test.stderr)), SHA256: "sha256:" + strings.Repeat("0", 64)}
		b.load("demo")
		result, err := b.run("demo", "scripts/ok.sh")
		if err != nil {
			t.Fatal(err)
		}
		shown := utf8.RuneCountInString(result.Stdout.Head + result.Stdout.Tail + result.Stderr.Head + result.Stderr.Tail)
		if shown > HeadShare+TailShare || shown < HeadShare {
			t.Errorf("%d characters are shown of %d and %d bytes", shown, len(test.stdout), len(test.stderr))
		}
		if got := *result.Output.Stdout.Text; got != result.Stdout.Head+result.Stdout.Tail {
			t.Errorf("the object holds %d bytes of stdout, the answer %d", len(got), len(result.Stdout.Head+result.Stdout.Tail))
		}
		if len(test.stderr) < 100 && result.Stderr.Head != test.stderr {
			t.Errorf("stderr = %q, want all of it", result.Stderr.Head)
		}
		if len(test.stdout) > HeadShare && (!result.Stdout.Truncated || *result.Output.StdoutOriginalLength != int64(len(test.stdout))) {
			t.Errorf("stdout is not marked as cut: %+v", result.Output.StdoutOriginalLength)
		}
		if got := b.artifact(provenance.OutputName(result.Output.OutputID, "stdout")); len(got) != len(test.stdout) {
			t.Errorf("%d bytes of stdout are kept, want %d", len(got), len(test.stdout))
		}
	}
}

func TestLongReadIsCut(t *testing.T) {
	b := newBench(t, benchOptions{})
	ses, call := b.call("read_skill_resource")
	read, err := ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: "demo", Path: "notes.md", MaxBytes: 100, MaxChars: 7})
	if err != nil {
		t.Fatal(err)
	}
	if string(read.Data) != "hello ä" || *read.Output.Content != "hello ä" || !*read.Output.Truncated {
		t.Errorf("read = %q, in the object %q (truncated %v)", read.Data, *read.Output.Content, *read.Output.Truncated)
	}
	if row := b.artifact(provenance.ResourceReadsFile); !strings.Contains(row, `"bytes": 8`) {
		t.Errorf("the record does not say what was shown:\n%s", row)
	}
}

// What is there and not served is told from what is not there.
func TestUnservedIsNotMissing(t *testing.T) {
	b := newBench(t, benchOptions{})
	testtree.Write(t, b.root, map[string]string{"bad/SKILL.md": "---\nname: bad\n---\n", "linked/SKILL.md": "---\nname: linked\ndescription: d\n---\n"})
	if err := os.Symlink("/etc/passwd", filepath.Join(b.root, "linked", "link.md")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.cfg.Registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	ses, call := b.call("load_skill")
	_, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "bad"})
	if code(err) != "skill_not_found" || !strings.Contains(err.Error(), `skill "bad" is not served: `) {
		t.Errorf("load of a broken skill = %v", err)
	}
	_, err = ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: "linked", Path: "link.md", MaxBytes: 10})
	if code(err) != "resource_not_indexed" || !strings.Contains(err.Error(), "is not served: the link leads out of the skill") {
		t.Errorf("read of a link out = %v", err)
	}
}

// A skill that hides itself from models is there for them only when the operator preloaded it; a
// preloaded skill is active, and its instructions are still sent once.
func TestPreload(t *testing.T) {
	b := newBench(t, benchOptions{})
	ses, call := b.call("load_skill")
	if _, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "shy"}); code(err) != "skill_not_found" {
		t.Errorf("load of a hidden skill = %v", err)
	}
	b = newBench(t, benchOptions{preload: []string{"shy", "demo", "demo"}, policy: direct})
	if loaded := b.load("shy"); loaded.Sent || string(loaded.Body) != "Do it.\n" {
		t.Errorf("the first load of a preloaded skill = %+v", loaded)
	}
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
		t.Errorf("run of a preloaded skill: %v", err)
	}
	if got, want := b.events(), "session.started activated activated activated script_requested script_executed"; got != want {
		t.Errorf("events = %s, want %s", got, want)
	}
	if rows := b.artifact(provenance.ActivationsFile); strings.Count(rows, `"cli-preload"`) != 2 || strings.Count(rows, `"model-tool"`) != 1 {
		t.Errorf("activations:\n%s", rows)
	}
}

// Calls of every kind at once, while the files change: no race, every answer is one of those there
// are, and every event of the chain is there.
func TestConcurrentCalls(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	b.load("demo")
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			for range 10 {
				ses, call := b.call([]string{"load_skill", "read_skill_resource", "run_skill_script", "resources/read"}[i%4])
				var err error
				switch i % 4 {
				case 0:
					_, err = ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo", Force: true})
				case 1:
					_, err = ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: "demo", Path: "notes.md", MaxBytes: 100})
				case 2:
					_, err = ses.RunScript(t.Context(), RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Timeout: time.Minute})
				case 3:
					_, err = ses.ReadURI(t.Context(), ReadRequest{Call: call, URI: "skill://demo/notes.md"})
				}
				if c := code(err); err != nil && c != "script_snapshot_mismatch" && c != "resource_changed" {
					t.Errorf("%s = %v", call.Method, err)
				}
			}
		})
	}
	group.Go(func() {
		for i := range 20 {
			if err := os.WriteFile(filepath.Join(b.root, "demo/notes.md"), []byte(strings.Repeat("x", i%2+1)), 0o644); err != nil {
				t.Error(err)
			}
		}
	})
	group.Wait()
	seq := uint64(0)
	b.Current().background.Wait()
	for e, err := range b.records.Events(t.Context(), provenance.Query{Session: b.Current().ID()}) {
		seq++
		if err != nil || e.Seq != seq {
			t.Fatalf("event %d: %v", seq, err)
		}
	}
	// session.started, the snapshots of registry and machine, and the first load; 120 calls with one
	// event, 40 with two.
	if want := uint64(4 + 120 + 80); seq != want {
		t.Errorf("%d events, want %d", seq, want)
	}
}

// A run whose outcome does not fit the disk any more says that it ran, and is the last one until
// its outcome is recorded.
func TestOutcomeUnrecordable(t *testing.T) {
	for name, fail := range map[string]func(*failingStore) *atomic.Bool{
		"event": func(s *failingStore) *atomic.Bool { return &s.noResult }, "output": func(s *failingStore) *atomic.Bool { return &s.unkept },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, benchOptions{policy: direct})
			b.load("demo")
			b.Current().background.Wait()
			failing := fail(b.records)
			failing.Store(true)
			if _, err := b.run("demo", "scripts/ok.sh"); code(err) != "provenance_unavailable" || !strings.Contains(err.Error(), "the script ran") {
				t.Errorf("run = %v", err)
			}
			for range 3 {
				if _, err := b.run("demo", "scripts/ok.sh"); code(err) != "provenance_unavailable" || strings.Contains(err.Error(), "the script ran") {
					t.Errorf("run while a record is owed = %v", err)
				}
			}
			if runs := b.runner.runs.Load(); runs != 1 {
				t.Errorf("%d scripts ran, want 1", runs)
			}
			failing.Store(false)
			if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
				t.Errorf("run after the disk is back: %v", err)
			}
			if got, want := b.events(), "session.started activated script_requested script_executed script_requested script_executed"; got != want {
				t.Errorf("events = %s, want %s", got, want)
			}
		})
	}
}

// A call that was cancelled before its script started is recorded as that and nothing else.
func TestCanceledBeforeStart(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	b.load("demo")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.runner.err = context.Canceled
	ses, call := b.call("run_skill_script")
	if _, err := ses.RunScript(ctx, RunRequest{Call: call, Skill: "demo", Path: "scripts/ok.sh", Timeout: time.Minute}); err != nil {
		t.Errorf("RunScript = %v", err)
	}
	if got, want := b.events(), "session.started activated script_requested script_executed"; got != want {
		t.Errorf("events = %s, want %s", got, want)
	}
	if rows := b.artifact(provenance.ScriptExecutionsFile); !strings.Contains(rows, `"outcome": "canceled"`) {
		t.Errorf("executions:\n%s", rows)
	}
}

// newRecords returns a store of sessions in a directory of the test.
func newRecords(t testing.TB) *filestore.Store {
	t.Helper()
	records, err := filestore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Close() })
	return records
}
