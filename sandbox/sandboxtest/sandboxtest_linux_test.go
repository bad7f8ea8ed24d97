package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/sandbox"
)

// bare runs commands with no isolation at all, to show that the attacks find what they look for.
type bare struct{ dir string }

func (bare) Name() string { return "bare" }

func (b bare) Run(ctx context.Context, cmd *sandbox.Cmd) (*sandbox.Result, error) {
	argv := slices.Clone(cmd.Argv)
	argv[1] = strings.Replace(argv[1], sandbox.SkillDir, b.dir, 1)
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Env = append(os.Environ(), "SKILL_DIR="+b.dir)
	if cmd.Workspace.Dir != nil {
		c.Dir = cmd.Workspace.Dir.Name()
	}
	var out bytes.Buffer
	c.Stdout = &out
	err := c.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	return &sandbox.Result{Outcome: sandbox.Exited, ExitCode: c.ProcessState.ExitCode(), Stdout: sandbox.Stream{Head: out.Bytes()}}, nil
}

// TestAttacksHaveTeeth runs the attacks that can do no harm outside a sandbox.
func TestAttacksHaveTeeth(t *testing.T) {
	Need(t, "bash", "python3")
	f := newFixture(t, nil)
	f.runner = bare{f.dir}
	host := filepath.Join(t.TempDir(), "host")
	mkTree(t, host, map[string]string{"secret": "PLANTED secret"})
	ws := filepath.Join(t.TempDir(), "ws")
	mkTree(t, ws, map[string]string{"inside": "x", "link-to-file": "-> " + host + "/secret", "link-to-dir": "-> " + host})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	abstract := fmt.Sprintf("teeth-%d", os.Getpid())
	for _, name := range []string{host + "/s", "@" + abstract} {
		u, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	plantLeaks(t, host)

	tests := []struct {
		script string
		args   []string
		ws     bool
		want   []string
	}{
		{script: "files.sh", args: []string{host + "/secret", host}, want: []string{
			"read " + host, "/etc/passwd is the host's", "lists " + host, "root shows"}},
		{script: "skill.py", want: []string{"write", "append", "truncate", "chmod", "create", "mkdir", "symlink", "rename"}},
		{script: "network.py", args: []string{port, host + "/s", abstract}, want: []string{"loopback", "unix socket", "abstract socket"}},
		{script: "leaks.sh", want: []string{"environment", "environ of", "reads descriptor 99", "shared memory", "loader variables"}},
		{script: "workspace.sh", args: []string{host}, ws: true, want: []string{"link to a file", "directory", "wrote through a link"}},
	}
	for _, tt := range tests {
		cmd := f.command(t, tt.script, tt.args...)
		if tt.ws {
			cmd.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceRW, Dir: openDir(t, ws)}
		}
		res, err := f.runner.Run(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		found := strings.Join(breaches(res), "\n") + "\n"
		for _, want := range tt.want {
			if !strings.Contains(found, want) {
				t.Errorf("%s outside a sandbox does not report %q:\n%s", tt.script, want, found)
			}
		}
	}
}

func TestNeedNamesTheCapability(t *testing.T) {
	t.Setenv(RequireVar, "")
	t.Setenv("PATH", t.TempDir())
	skipped := t.Run("deno", func(t *testing.T) {
		t.Cleanup(func() {
			if !t.Skipped() {
				t.Error("Need did not skip without deno in PATH")
			}
		})
		Need(t, "deno")
	})
	if !skipped {
		t.Error("Need failed the test instead of skipping it")
	}
	t.Setenv(RequireVar, "1")
	r := &recorder{TB: t}
	func() {
		defer func() { _ = recover() }()
		Need(r, "deno")
	}()
	if !strings.Contains(r.fatal, "deno") || !strings.Contains(r.fatal, RequireVar) {
		t.Errorf("Need with %s=1 failed with %q", RequireVar, r.fatal)
	}
}

// recorder stops at a fatal failure by a panic, and remembers its text.
type recorder struct {
	testing.TB
	fatal string
}

func (r *recorder) Helper() {}
func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
	panic(r.fatal)
}
