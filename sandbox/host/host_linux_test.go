package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

// sh is a command that runs a script in a fresh directory.
func sh(t *testing.T, script string, args ...string) *sandbox.Cmd {
	t.Helper()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("needs a shell")
	}
	shell, err = filepath.EvalSymlinks(shell)
	if err != nil {
		t.Fatal(err)
	}
	return &sandbox.Cmd{Argv: append([]string{shell, "-c", script, "sh"}, args...), Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}, Cwd: t.TempDir()}
}

func run(t *testing.T, cmd *sandbox.Cmd) *sandbox.Result {
	t.Helper()
	result, err := New().Run(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func grant(t *testing.T, cmd *sandbox.Cmd, dir string) {
	t.Helper()
	handle, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { handle.Close() })
	cmd.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceRW, Dir: handle}
}

// ended reports whether no process of that id runs any more.
func ended(t *testing.T, pid string) bool {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return true
	}
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

func TestResult(t *testing.T) {
	cmd := sh(t, `cat; echo "$1|$2" ; echo oops >&2; exit 7`, "a b", "")
	cmd.Stdin = []byte("given\n")
	r := run(t, cmd)
	if r.Outcome != sandbox.Exited || r.ExitCode != 7 || r.Backend != "host" || string(r.Stdout.Head) != "given\na b|\n" || string(r.Stderr.Head) != "oops\n" {
		t.Errorf("Run = %+v", r)
	}
	if r.Stdout.SHA256 == r.Stderr.SHA256 || r.Stdout.Total != 11 || r.Duration <= 0 || r.Limits != (sandbox.Limits{Timeout: time.Minute, Output: 1 << 20}) {
		t.Errorf("Run = %+v", r)
	}
	if r := run(t, sh(t, "kill -SEGV $$")); r.Outcome != sandbox.Signaled || r.Signal != "SIGSEGV" || r.ExitCode != 139 {
		t.Errorf("Run = %+v, want SIGSEGV", r)
	}
	if r := run(t, sh(t, "read line; echo $?")); string(r.Stdout.Head) != "1\n" {
		t.Errorf("without input: %q", r.Stdout.Head)
	}
}

// A command is given its own variables, streams and nothing else of the server's.
func TestNothingIsInherited(t *testing.T) {
	t.Setenv("SKILLSD_TEST_SECRET", "hush")
	cmd := sh(t, `env | sort; ls /proc/self/fd | wc -l; tty; cut -d' ' -f6 /proc/self/stat; echo $$`)
	cmd.Env = append(cmd.Env, "ONE=1")
	leak, err := unix.Open("/dev/null", unix.O_RDONLY, 0) // as if from the server's own parent
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)
	out := strings.Fields(string(run(t, cmd).Stdout.Head))
	if strings.Contains(strings.Join(out, " "), "hush") || !slices.Contains(out, "ONE=1") {
		t.Errorf("environment: %q", out)
	}
	for _, v := range out {
		name, _, assigned := strings.Cut(v, "=")
		if assigned && !slices.Contains([]string{"ONE", "PATH", "PWD", "OLDPWD", "SHLVL", "_"}, name) {
			t.Errorf("variable %s", v)
		}
	}
	tail := out[len(out)-6:] // "4 not a tty SID PID"
	if tail[0] != "4" || tail[1] != "not" || tail[4] != tail[5] {
		t.Errorf("descriptors, terminal, session and process are %q", tail)
	}
}

func TestCwd(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{os.MkdirAll(filepath.Join(dir, "sub/deep"), 0o755), os.Symlink(outside, filepath.Join(dir, "out")), os.Symlink("sub", filepath.Join(dir, "in")),
		os.WriteFile(filepath.Join(dir, "file"), nil, 0o644), os.Symlink("..", filepath.Join(dir, "up")), syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for cwd, want := range map[string]string{
		"": "", ".": "", "sub": "sub", "sub/deep": "sub/deep", "sub/../sub": "sub", "in": "sub", dir: "", dir + "/sub": "sub",
		"..": "!", "../x": "!", "sub/../..": "!", "/": "!", outside: "!", dir + "x": "!", "out": "!", "up": "!", "file": "!", "missing": "!", "pipe": "!", "a\x00b": "!",
		filepath.Dir(dir): "!", "/proc/self/cwd": "!",
	} {
		cmd := sh(t, "pwd -P")
		grant(t, cmd, dir)
		cmd.Cwd = cwd
		r, err := New().Run(t.Context(), cmd)
		if want == "!" {
			refused, ok := errors.AsType[*sandbox.CwdError](err)
			if !ok || refused.Cwd != cwd || strings.Contains(refused.Reason, outside) {
				t.Errorf("cwd %q: Run = %+v, %v, want *CwdError", cwd, r, err)
			}
			continue
		}
		if err != nil || string(r.Stdout.Head) != filepath.Join(dir, want)+"\n" {
			t.Errorf("cwd %q: Run = %q, %v", cwd, r.Stdout.Head, err)
		}
	}
}

func TestCwdWithoutWorkspace(t *testing.T) {
	for _, cwd := range []string{"", "x", "./x"} {
		cmd := sh(t, "pwd")
		cmd.Cwd = cwd
		if _, err := New().Run(t.Context(), cmd); err == nil {
			t.Errorf("cwd %q is accepted", cwd)
		}
		grant(t, cmd, t.TempDir())
		cmd.Workspace.Mode = sandbox.WorkspaceNone
		if _, err := New().Run(t.Context(), cmd); err == nil {
			t.Errorf("cwd %q is accepted with mode none", cwd)
		}
	}
}

// A workspace whose path leads elsewhere by now is not worked in.
func TestWorkspaceWasReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "w")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := sh(t, "pwd")
	grant(t, cmd, dir)
	cmd.Cwd = ""
	if err := errors.Join(os.Rename(dir, dir+"-old"), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, ok := errors.AsType[*sandbox.CwdError](second(New().Run(t.Context(), cmd))); !ok {
		t.Error("the directory in its place is accepted")
	}
}

func second(_ *sandbox.Result, err error) error { return err }

// Whatever a command started is gone when Run returns, also what made groups of its own, unless it
// left the session.
func TestNothingIsLeftBehind(t *testing.T) {
	const children = `sleep 1000 & echo $!; sh -c 'trap "" TERM INT HUP; sleep 1000' & echo $!; set -m; sleep 1000 & echo $!;`
	for name, test := range map[string]struct {
		script  string
		timeout time.Duration
		want    sandbox.Outcome
	}{
		"exit":    {children + " exit 0", 0, sandbox.Exited},
		"signal":  {children + " kill -KILL $$", 0, sandbox.Signaled},
		"timeout": {children + " sleep 1000", time.Second, sandbox.TimedOut},
		"output":  {children + " exec cat /dev/zero", 0, sandbox.OutputLimit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := sh(t, test.script)
			cmd.Limits = sandbox.Limits{Timeout: test.timeout, Output: 1 << 10}
			r := run(t, cmd)
			if r.Outcome == sandbox.TimedOut && strings.Count(string(r.Stdout.Head), "\n") < 3 { // a busy machine takes longer to start
				cmd.Limits.Timeout *= 30
				r = run(t, cmd)
			}
			pids := strings.SplitN(string(r.Stdout.Head), "\n", 4)
			if r.Outcome != test.want || len(pids) < 4 {
				t.Fatalf("Run = %+v, want %s", r, test.want)
			}
			for _, pid := range pids[:3] {
				if !ended(t, pid) {
					t.Errorf("process %s is left", pid)
				}
			}
		})
	}
}

func TestCancel(t *testing.T) {
	cmd := sh(t, `sleep 1000 & echo $!; echo started > started; sleep 1000`)
	fifo := filepath.Join(cmd.Cwd, "started")
	if err := syscall.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, _ = os.ReadFile(fifo)
		cancel()
	}()
	r, err := New().Run(ctx, cmd)
	if err != nil || r.Outcome != sandbox.Canceled || !ended(t, string(r.Stdout.Head)) {
		t.Errorf("Run = %+v, %v", r, err)
	}
	if r, err := New().Run(ctx, cmd); err != nil || r.Outcome != sandbox.Canceled || r.Stdout.Total != 0 {
		t.Errorf("canceled before: Run = %+v, %v", r, err)
	}
}

// A process that leaves the session and holds the streams open does not hold up Run.
func TestEscapedProcessHoldsNothingUp(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("needs setsid")
	}
	cmd := sh(t, `setsid sh -c 'echo $$; echo go > go; exec sleep 1000' & cat go`)
	if err := syscall.Mkfifo(filepath.Join(cmd.Cwd, "go"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := run(t, cmd)
	pid, err := strconv.Atoi(strings.Fields(string(r.Stdout.Head))[0])
	if err != nil || r.Outcome != sandbox.Exited {
		t.Fatalf("Run = %+v, %v", r, err)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

func TestOutputIsCut(t *testing.T) {
	cmd := sh(t, `i=0; while [ $i -lt 400 ]; do echo "line $i of the output"; i=$((i+1)); done`)
	cmd.Limits.Output = 300
	r := run(t, cmd)
	if !r.Stdout.Truncated || r.Outcome != sandbox.Exited || len(r.Stdout.Head) != 200 || len(r.Stdout.Tail) != 100 || r.Stdout.Total != 9090 ||
		!strings.HasPrefix(string(r.Stdout.Head), "line 0 of") || !strings.HasSuffix(string(r.Stdout.Tail), "line 399 of the output\n") {
		t.Errorf("Run = %+v", r)
	}
}

func TestUnavailable(t *testing.T) {
	notProgram := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(notProgram, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{nil, {"sh"}, {"./sh"}, {"/no such program"}, {notProgram}, {"/bin/sh", "a\x00b"}} {
		_, err := New().Run(t.Context(), &sandbox.Cmd{Argv: argv, Cwd: t.TempDir()})
		if off, ok := errors.AsType[*sandbox.UnavailableError](err); !ok || strings.Contains(off.Reason, "/") {
			t.Errorf("%q: Run = %v, want *UnavailableError", argv, err)
		}
	}
}

// Runs do not mix up each other's processes and streams.
func TestConcurrentRuns(t *testing.T) {
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			if r := run(t, sh(t, `sleep 0 & wait; echo "$1"`, fmt.Sprint(i))); string(r.Stdout.Head) != fmt.Sprintln(i) || r.Outcome != sandbox.Exited {
				t.Errorf("Run = %+v", r)
			}
		})
	}
}

func BenchmarkRun(b *testing.B) {
	cmd := &sandbox.Cmd{Argv: []string{"/bin/true"}, Cwd: b.TempDir()}
	for b.Loop() {
		if _, err := New().Run(b.Context(), cmd); err != nil {
			b.Fatal(err)
		}
	}
}
