package session

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// Without a file descriptor to spare a call is told to come again; nothing is taken for changed or
// gone, then or later.
func TestNoDescriptorLeft(t *testing.T) {
	const child = "SKILLSD_TEST_NO_DESCRIPTOR"
	if os.Getenv(child) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNoDescriptorLeft$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestNoDescriptorLeft") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	b := newBench(t, benchOptions{policy: policy.Config{Mode: policy.Disabled}})
	b.load("demo")
	ses, call := b.call("read_skill_resource")
	b.add(t, "late")      // it has no index yet
	ses.background.Wait() // whatever else closes a file leaves a descriptor
	restore := withoutDescriptors(t)
	_, readErr := ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: "demo", Path: "notes.md", MaxBytes: 100})
	_, loadErr := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo", Force: true})
	_, otherErr := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "late"})
	_, runErr := b.run("demo", "scripts/ok.sh")
	_, scanErr := b.cfg.Registry.Rescan(t.Context())
	restore()
	if n := len(b.cfg.Registry.Snapshot().Skills); !errors.Is(scanErr, skills.ErrExhausted) || n != 4 {
		t.Errorf("scan = %v and leaves %d skills, want 4", scanErr, n)
	}
	for what, err := range map[string]error{"read": readErr, "load": loadErr, "load of a skill without an index": otherErr, "run": runErr} {
		if code(err) != string(fault.CodeServerBusy) {
			t.Errorf("%s = %v, want %s", what, err, fault.CodeServerBusy)
		}
	}
	if _, err := ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: "demo", Path: "notes.md", MaxBytes: 100}); err != nil {
		t.Errorf("read with descriptors = %v", err)
	}
	loaded, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "late"})
	if err != nil || loaded.Index.Resource("scripts/a.sh") == nil || len(loaded.Index.Diagnostics) > 0 {
		t.Errorf("load with descriptors = %+v, %v", loaded, err)
	}
	if _, err := b.run("demo", "scripts/ok.sh"); err != nil {
		t.Errorf("run with descriptors = %v", err)
	}
}

// add puts another skill with a script into the root.
func (b *bench) add(t *testing.T, name string) {
	t.Helper()
	dir := filepath.Join(b.root, name, "scripts")
	err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "a.sh"), []byte("echo\n"), 0o644),
		os.WriteFile(filepath.Join(b.root, name, "SKILL.md"), []byte("---\nname: "+name+"\ndescription: For tests.\n---\nDo it.\n"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.cfg.Registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// withoutDescriptors leaves this process none until restore is called.
func withoutDescriptors(t *testing.T) (restore func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	lowest, err := os.Open(os.DevNull) // all below are in use
	if err != nil {
		t.Fatal(err)
	}
	limit := before
	limit.Cur = uint64(lowest.Fd())
	lowest.Close()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
	}
}
