package session

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skillsd/skillsd/e2e/testtree"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/host"
	"github.com/skillsd/skillsd/skills/policy"
)

// hostRuns is a bench whose runs on the host tell of their progress.
type hostRuns struct {
	*bench
	progress func(string)
}

// hostBench is a bench with the skill agent-browser, one script of which may run on the host.
func hostBench(t *testing.T, script string, o benchOptions, entry policy.Entry) *hostRuns {
	t.Helper()
	if _, err := os.Stat("/usr/bin/sh"); err != nil {
		t.Skip("needs /usr/bin/sh")
	}
	b := newBench(t, o)
	testtree.Write(t, b.root, map[string]string{
		"agent-browser/SKILL.md":      "---\nname: agent-browser\ndescription: For tests.\n---\nDo it.\n",
		"agent-browser/scripts/go.sh": "#!/bin/sh\n" + script,
	})
	entry.Skill, entry.Path, entry.Target = "agent-browser", "scripts/go.sh", policy.TargetHost
	list, err := policy.NewAllowlist([]policy.Entry{entry})
	if err != nil {
		t.Fatal(err)
	}
	cfg := o.policy
	cfg.Allowlist, cfg.Tools = list, []string{"load_skill", "run_skill_script", "resources/read"}
	b.setPolicy(policy.New(cfg))
	b.cfg.Host = host.New()
	if _, err := b.cfg.Registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	b.load("agent-browser")
	b.Current().background.Wait() // it reads the configuration that tests change
	return &hostRuns{bench: b}
}

const leased = "http://127.0.0.1:9333"

func (b *hostRuns) runHost(in RunRequest) (*RunResult, error) {
	b.t.Helper()
	ses, call := b.call("run_skill_script")
	call.Lease = &policy.Lease{ID: "l", CDPURL: leased, ExpiresAt: time.Now().Add(time.Hour)}
	call.Progress = b.progress
	in.Call, in.Skill, in.Path, in.Timeout = call, "agent-browser", "scripts/go.sh", 20*time.Second
	return ses.RunScript(b.t.Context(), in)
}

func onHost() benchOptions {
	return benchOptions{policy: policy.Config{Role: policy.DirectCommand, HostTarget: true}}
}

// A script on the host starts from the stored tree, with these variables and no others.
func TestHostCommand(t *testing.T) {
	t.Setenv("SKILLSD_TEST_SECRET", "hush")
	b := hostBench(t, "env\npwd\nls -d \"$HOME\"\ntouch \"$HOME/left\"\nmkdir -p \"$HOME/deep\"; chmod 0 \"$HOME/deep\"\necho $0 $@\n", onHost(), policy.Entry{Release: policy.ReleaseObserved, Env: []string{"GIVEN"}, SearchPath: []string{"/opt/n/bin", "/opt/more"}})
	b.cfg.Env = func(name string) (string, bool) { return "value of " + name, true }
	r, err := b.runHost(RunRequest{Args: []string{"a", "--cdp", leased, "b"}})
	if err != nil || r.Backend != "host" || r.ExitCode != 0 {
		t.Fatalf("RunScript = %+v, %v", r, err)
	}
	env := map[string]string{}
	lines := strings.Split(r.Stdout.Head, "\n")
	for _, line := range lines {
		if name, value, ok := strings.Cut(line, "="); ok {
			env[name] = value
		}
	}
	index := b.Current().activated("agent-browser").index
	dir := filepath.Join(b.cfg.Trees.Dir(), index.TreeDigest.Encoded())
	home := env["HOME"]
	for name, want := range map[string]string{
		"PATH": "/opt/n/bin:/opt/more:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "CF_HARNESS_RUN_ID": b.Current().ID(), "SKILL_NAME": "agent-browser",
		"SKILL_DIR": dir, "SKILL_SCRIPT": filepath.Join(dir, "scripts/go.sh"), "CF_HARNESS_SKILL_SCRIPT_EXECUTION_TARGET": "host",
		"PYTHONDONTWRITEBYTECODE": "1", "GIVEN": "value of GIVEN", "AGENT_BROWSER_CDP": "<lease endpoint>", "HOME": home,
	} {
		if env[name] != want {
			t.Errorf("%s=%s, want %s", name, env[name], want)
		}
		delete(env, name)
	}
	for _, name := range []string{"PWD", "OLDPWD", "SHLVL", "_"} {
		delete(env, name) // the shell's own
	}
	if len(env) > 0 {
		t.Errorf("more variables: %v", env)
	}
	if !slices.Contains(lines, filepath.Join(dir, "scripts/go.sh")+" a b") || !slices.Equal(lines[len(lines)-4:len(lines)-2], []string{home, home}) {
		t.Errorf("output %q", r.Stdout.Head)
	}
	if _, err := os.Lstat(home); home == "" || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("home %q is left: %v", home, err)
	}
	// The record has the argv that ran, and nobody who asks the server is shown where that was.
	if got, want := b.recordedArgv(), []string{"sh", filepath.Join(dir, "scripts/go.sh"), "a", "b"}; !slices.Equal(got, want) {
		t.Errorf("recorded argv %q, want %q", got, want)
	}
	if x := b.recordedRun().Skillsd; !strings.Contains(x.HostCWD, "skillsd-home-") || r.Output.Skillsd.HostCWD != "" {
		t.Errorf("it started in %q by the record, in %q by the answer", x.HostCWD, r.Output.Skillsd.HostCWD)
	}
	for _, name := range []string{"skill-script-executions.json", "events.jsonl"} {
		if shown := b.mustHave(Call{Principal: local}, name); strings.Contains(shown, dir) || strings.Contains(shown, "hostCwd") || !strings.Contains(shown, `"/skill/scripts/go.sh"`) {
			t.Errorf("%s shows %s", name, shown)
		}
	}
	if argv := strings.Join(r.Output.Argv, " "); r.Output.ExecutionTarget != "host" || r.Output.Skillsd.Network != "host" || strings.Contains(argv, dir) || !strings.HasSuffix(argv, "/skill/scripts/go.sh a b") || r.Output.CWD != "~" {
		t.Errorf("output object %+v", r.Output)
	}
}

// recordedArgv returns the argv of the last run as the record on disk has it.
func (b *hostRuns) recordedArgv() []string { return b.recordedRun().Argv }

// recordedRun returns the row of the last run as the record on disk has it.
func (b *hostRuns) recordedRun() cfharness.ScriptExecution {
	b.t.Helper()
	var row cfharness.ScriptExecution
	for e, err := range b.records.Events(b.t.Context(), provenance.Query{Session: b.Current().ID()}) {
		if err != nil {
			b.t.Fatal(err)
		}
		if e.Kind == provenance.KindScriptExecuted {
			if err := json.Unmarshal(e.Row, &row); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	return row
}

// A script that its interpreter reads from standard input has the same argv in the record and in the answer,
// also when an argument looks like its path.
func TestHostStdin(t *testing.T) {
	b := hostBench(t, "echo \"$0 $* $SKILL_SCRIPT\"\n", onHost(), policy.Entry{Release: policy.ReleaseObserved, Execution: policy.ExecutionStdin})
	r, err := b.runHost(RunRequest{Args: []string{"/a/scripts/go.sh", "-x"}})
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("RunScript = %+v, %v", r, err)
	}
	dir := filepath.Join(b.cfg.Trees.Dir(), b.Current().activated("agent-browser").index.TreeDigest.Encoded())
	if _, rest, _ := strings.Cut(r.Stdout.Head, " "); rest != "/a/scripts/go.sh -x "+filepath.Join(dir, "scripts/go.sh")+"\n" {
		t.Errorf("output %q", r.Stdout.Head)
	}
	want := []string{"sh", "-s", "--", "/a/scripts/go.sh", "-x"}
	if got := b.recordedArgv(); !slices.Equal(got, want) || !slices.Equal(r.Output.Argv, want) {
		t.Errorf("recorded argv %q, shown %q, want %q", got, r.Output.Argv, want)
	}
	if shown := b.mustHave(Call{Principal: local}, "skill-script-executions.json"); !strings.Contains(shown, `"/a/scripts/go.sh"`) {
		t.Errorf("the artifact shows %s", shown)
	}
	if _, err := b.runHost(RunRequest{Stdin: []byte("x")}); code(err) != "invalid_arguments" {
		t.Errorf("with input: %v", err)
	}
}

// The endpoint of the leased browser is in nothing that is shown or kept, however it is written.
func TestHostEndpointIsScrubbed(t *testing.T) {
	b := hostBench(t, `echo "$AGENT_BROWSER_CDP/json"; echo "ws://127.0.0.1:9333/devtools" >&2; printf %s "$AGENT_BROWSER_CDP" | base64`, onHost(), policy.Entry{Release: policy.ReleaseObserved})
	r, err := b.runHost(RunRequest{})
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("RunScript = %+v, %v", r, err)
	}
	if out := r.Stdout.Head + r.Stderr.Head; strings.Contains(out, "9333") || strings.Contains(out, "aHR0cDovL") || strings.Count(out, "<lease endpoint>") != 3 {
		t.Errorf("output %q", out)
	}
}

func TestHostWorkspace(t *testing.T) {
	o := onHost()
	o.workspace = sandbox.WorkspaceRW
	b := hostBench(t, "pwd -P\n", o, policy.Entry{Release: policy.ReleaseObserved})
	dir, err := filepath.EvalSymlinks(b.cfg.Workspace.Dir.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "sub"), 0o755), os.Symlink(b.cfg.Trees.Dir(), filepath.Join(dir, "state"))); err != nil {
		t.Fatal(err)
	}
	for cwd, want := range map[string]string{"": "", "sub": "/sub", "/workspace": "", "/workspace/sub": "/sub", dir + "/sub": "/sub", "/workspace/../sub": "!",
		"..": "!", "/": "!", "state": "!", b.cfg.Trees.Dir(): "!", "/workspacex": "!", "/skill": "!"} {
		r, err := b.runHost(RunRequest{Cwd: cwd})
		if want == "!" {
			if code(err) != "cwd_denied" {
				t.Errorf("cwd %q: RunScript = %+v, %v, want cwd_denied", cwd, r, err)
			}
		} else if err != nil || r.Stdout.Head != dir+want+"\n" {
			t.Errorf("cwd %q: RunScript = %+v, %v", cwd, r, err)
		}
	}
}

func TestHostRefusals(t *testing.T) {
	released := policy.Entry{Release: policy.ReleaseObserved}
	for _, test := range []struct {
		name  string
		do    func(*hostRuns, *RunRequest)
		entry policy.Entry
		off   bool
		want  string
	}{
		{"not enabled", func(*hostRuns, *RunRequest) {}, released, true, "permission_denied"},
		{"not released", func(*hostRuns, *RunRequest) {}, policy.Entry{}, false, "output_not_released"},
		{"another browser", func(_ *hostRuns, r *RunRequest) { r.Args = []string{"--cdp=http://127.0.0.1:1"} }, released, false, "lease_invalid"},
		{"no runner", func(b *hostRuns, _ *RunRequest) { b.cfg.Host = nil }, released, false, "sandbox_unavailable"},
		{"cwd without workspace", func(_ *hostRuns, r *RunRequest) { r.Cwd = "/tmp" }, released, false, "cwd_denied"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := onHost()
			o.policy.HostTarget = !test.off
			b := hostBench(t, "echo ran > \"$HOME/../ran\"\n", o, test.entry)
			t.Setenv("TMPDIR", t.TempDir())
			var in RunRequest
			test.do(b, &in)
			if _, err := b.runHost(in); code(err) != test.want {
				t.Errorf("RunScript = %v, want %s", err, test.want)
			}
			if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 || b.runner.runs.Load() > 0 {
				t.Errorf("left %v, %v; %d runs in the sandbox", left, err, b.runner.runs.Load())
			}
		})
	}
}

// A tree that was touched after it was prepared is not run from, also if that was while the request was being
// recorded.
func TestHostTreeIsCheckedBeforeTheRun(t *testing.T) {
	for _, tt := range []struct {
		name      string
		recording bool
	}{{"scripts/go.sh", false}, {"scripts/more.sh", false}, {"scripts/go.sh", true}} {
		name := tt.name
		b := hostBench(t, "echo ran\n", onHost(), policy.Entry{Release: policy.ReleaseObserved})
		tree := b.Current().activated("agent-browser").index.TreeDigest
		path := filepath.Join(b.cfg.Trees.Dir(), tree.Encoded(), name)
		running := make(chan struct{})
		touch := func() {
			_ = os.Chmod(path, 0o755) // one of them is not there yet
			if err := errors.Join(os.Chmod(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("#!/bin/sh\necho another\n"), 0o755)); err != nil {
				t.Error(err)
			}
		}
		b.progress = func(message string) {
			if message == "running" && tt.recording {
				close(running)
			} else if message == "running" {
				touch()
			}
		}
		if tt.recording {
			b.records.onAppend = sync.OnceFunc(func() {
				<-running
				<-time.After(100 * time.Millisecond) // a look that is too early would be over
				touch()
			})
		}
		if r, err := b.runHost(RunRequest{}); code(err) != "sandbox_unavailable" {
			t.Errorf("%s: RunScript = %+v, %v, want sandbox_unavailable", name, r, err)
		}
		b.progress, b.records.onAppend = nil, nil
		if r, err := b.runHost(RunRequest{}); err != nil || r.Stdout.Head != "ran\n" {
			t.Errorf("%s: the next run: RunScript = %+v, %v", name, r, err)
		}
	}
}
