package session

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// capabilities is what capabilities.json says.
type capabilities struct {
	Commands map[string]cfharness.CapabilityCommand `json:"commands"`
	CFC      cfharness.CapabilityCFC                `json:"cfc"`
}

// capabilities returns what the session of the process recorded of the machine, once.
func (b *bench) capabilities() (got capabilities) {
	b.t.Helper()
	ses := b.Current()
	ses.background.Wait()
	n := 0
	for _, e := range events(b.t, b, ses.ID()) {
		if e.Detail == provenance.CapabilitiesFile {
			n++
		}
	}
	if n != 1 {
		b.t.Errorf("%d events name %s", n, provenance.CapabilitiesFile)
	}
	if err := json.Unmarshal([]byte(b.artifact(provenance.CapabilitiesFile)), &got); err != nil {
		b.t.Fatal(err)
	}
	return got
}

// The machine is described once a session, with what scripts that may run need, whatever runs.
func TestCapabilities(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct, allow: []string{"demo:scripts/ok.sh"}})
	asked := map[string]bool{}
	b.cfg.Interpreter = func(_ context.Context, name string) (*sandbox.Interpreter, error) {
		asked[name] = true
		return &sandbox.Interpreter{Name: name, Path: "/opt/x/bin/" + name, Mounts: []string{"/opt/x"}, Version: "1.2"}, nil
	}
	b.rules.Load().Facts.Command = func(name string) string {
		if name == "deno" {
			return ""
		}
		return "/usr/bin/" + name
	}
	inner := b.cfg.Runner
	b.cfg.Runner = func(ctx context.Context) (sandbox.Runner, error) {
		r, err := inner(ctx)
		return uncounted{r}, err
	}
	b.rules.Load().Facts.Enforces = func() (memory, processes string) { return "cgroup v1", "resource limit" }
	b.load("demo")
	b.Current().background.Wait()
	if len(asked) != 1 || !asked["sh"] {
		t.Errorf("asked for %v", asked)
	}
	for range 2 {
		if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
			t.Fatal(err)
		}
	}
	got := b.capabilities()
	want := cfharness.CapabilityCommand{Present: true, Path: "/opt/x/bin/sh", Version: "1.2"}
	if c := got.Commands; c["sh"] != want || c["deno"].Present || c["git"].Path != "/usr/bin/git" || c["python3"].Version != "" {
		t.Errorf("commands = %+v", c)
	}
	if x := got.CFC.Sandbox.Skillsd; x.Memory != "cgroup v1" || x.Processes != "resource limit" {
		t.Errorf("sandbox = %+v", x)
	}
	if l := got.CFC.Sandbox.Skillsd.Limits; l.Inodes != 0 || l.Files == 0 {
		t.Errorf("limits = %+v, want those that the sandbox enforces", l)
	}
	if c := got.CFC; c.Sandbox.Kind != "fake" || c.Sandbox.DefaultWorkingDirectory != "/out" || len(c.Mounts.HostBinds) != 1 || c.Mounts.Workspace.Present || c.Mode != "enforce-explicit" {
		t.Errorf("cfc = %+v", c)
	}
}

// uncounted is a runner that counts no files.
type uncounted struct{ sandbox.Runner }

func (uncounted) Enforced(l sandbox.Limits) sandbox.Limits {
	l.Inodes = 0
	return l
}

// A server that offers no script asks for no sandbox and starts nothing.
func TestCapabilitiesWithoutScripts(t *testing.T) {
	b := newBench(t, benchOptions{})
	cfg := b.cfg
	cfg.Policy = policy.New(policy.Config{Tools: []string{"load_skill"}})
	cfg.Runner = func(context.Context) (sandbox.Runner, error) {
		t.Error("the runner was asked for")
		return nil, errors.New("none")
	}
	cfg.Interpreter = func(context.Context, string) (*sandbox.Interpreter, error) {
		t.Error("an interpreter was asked for")
		return nil, nil
	}
	b.Sessions = New(cfg)
	b.load("demo")
	if got := b.capabilities(); got.CFC.Sandbox.Kind != "none" || got.CFC.Sandbox.Skillsd.Reason == "" || got.Commands["bash"].Present {
		t.Errorf("capabilities = %+v", got)
	}
}

// What keeps scripts from being isolated is said, and a workspace is described.
func TestCapabilitiesUnavailable(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct, workspace: sandbox.WorkspaceRO})
	b.rules.Load().Facts.WorkspacePath = "/home/someone/work"
	b.cfg.Runner = func(context.Context) (sandbox.Runner, error) {
		return nil, &sandbox.UnavailableError{Backend: "native", Reason: "no user namespaces"}
	}
	b.load("demo")
	got := b.capabilities()
	if got.CFC.Sandbox.Kind != "none" || got.CFC.Sandbox.Skillsd.Reason != "no user namespaces" || got.CFC.Sandbox.DefaultWorkingDirectory != "/workspace" {
		t.Errorf("sandbox = %+v", got.CFC.Sandbox)
	}
	want := cfharness.CapabilityMount{Present: true, Mode: "ro", HostPath: "/home/someone/work", SandboxPath: "/workspace"}
	if got.CFC.Mounts.Workspace != want {
		t.Errorf("workspace = %+v", got.CFC.Mounts.Workspace)
	}
}

// A session that ends does not wait for another one that looks at the machine.
func TestCapabilitiesOfAnother(t *testing.T) {
	b := newBench(t, benchOptions{})
	b.load("demo")
	b.Current().background.Wait()
	b.rules.Load().snapshots.probing <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Current().describeMachine(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("describeMachine = %v", err)
	}
	<-b.rules.Load().snapshots.probing
	if data, err := b.Current().describeMachine(t.Context()); err != nil || !json.Valid(data) {
		t.Errorf("describeMachine = %s, %v", data, err)
	}
}
