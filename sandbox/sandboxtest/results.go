package sandboxtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/skillsd/skillsd/sandbox"
)

func testResults(t *testing.T, f *fixture) {
	f.attack(t, f.command(t, "works.sh"))

	res := f.run(t, f.script(t, "exit.sh", "echo out; echo err >&2; exit 42"))
	if res.Outcome != sandbox.Exited || res.ExitCode != 42 {
		t.Errorf("exit 42 = %s, %d", res.Outcome, res.ExitCode)
	}
	if got := string(res.Stdout.Head) + "|" + string(res.Stderr.Head); got != "out\n|err\n" {
		t.Errorf("streams = %q", got)
	}
	if res.Backend != f.runner.Name() || res.Duration <= 0 {
		t.Errorf("Backend, Duration = %q, %v", res.Backend, res.Duration)
	}
	// A limit that is not enforced is not stated either.
	want := sandbox.Limits{Timeout: Scaled(time.Minute)}.WithDefaults()
	if f.has(NoInodeLimit) {
		want.Inodes = 0
	}
	if f.has(NoProcessLimit) {
		want.PIDs = 0
	}
	if diff := cmp.Diff(want, res.Limits); diff != "" {
		t.Errorf("Limits (-want +got):\n%s", diff)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	res, err := f.runner.Run(over, f.script(t, "late.sh", "echo BREACH"))
	if err != nil || res.Outcome != sandbox.Canceled || res.Limits != want {
		t.Errorf("Run of an ended context = %+v, %v, want canceled with %+v", res, err, want)
	}

	res = f.run(t, f.script(t, "signal.sh", "kill -SEGV $$"))
	if res.Outcome != sandbox.Signaled || res.Signal != "SIGSEGV" || res.ExitCode != 139 {
		t.Errorf("kill -SEGV = %s, %q, %d", res.Outcome, res.Signal, res.ExitCode)
	}

	// A common idiom: the script signals its own process group and everything else it can.
	res = f.run(t, f.script(t, "group.sh", "trap 'exit 7' TERM; kill 0; sleep 5"))
	if res.Outcome != sandbox.Exited || res.ExitCode != 7 {
		t.Errorf("kill 0 = %s, %d", res.Outcome, res.ExitCode)
	}
	res = f.run(t, f.script(t, "all.sh", "kill -9 -1; exit 3"))
	if res.Outcome != sandbox.Exited || res.ExitCode != 3 {
		t.Errorf("kill -9 -1 = %s, %d", res.Outcome, res.ExitCode)
	}

	args := []string{"-c", "echo INJECTED", "", "two words", "--version", "$(id)", "a\nb", "ü"}
	res = f.runOK(t, f.script(t, "args.sh", `printf '<%s>' "$@"`, args...))
	if got, want := string(res.Stdout.Head), "<"+strings.Join(args, "><")+">"; got != want {
		t.Errorf("arguments = %q, want %q", got, want)
	}
	testConcurrent(t, f)
}

func testConcurrent(t *testing.T, f *fixture) {
	const runs = 8
	cmd := f.script(t, "alone.sh", `[ -e /tmp/left ] && echo BREACH former run
echo $1 >/tmp/left; sleep 0.2; cat /tmp/left; ls -d /proc/[0-9]* | wc -l`)
	got := make(chan error, runs)
	for i := range runs {
		c := *cmd
		c.Argv = append(slices.Clone(cmd.Argv), fmt.Sprint(i))
		go func() {
			res, err := f.runner.Run(t.Context(), &c)
			if err == nil && !strings.HasPrefix(string(res.Stdout.Head), fmt.Sprint(i)+"\n") {
				err = fmt.Errorf("run %d printed %q, %q", i, res.Stdout.Head, res.Stderr.Head)
			}
			got <- err
		}()
	}
	for range runs {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}

func testCwd(t *testing.T, f *fixture) {
	ws := t.TempDir()
	mkTree(t, ws, map[string]string{"sub/f": "x", "to-usr": "-> /usr", "to-sub": "-> sub",
		"to-nowhere": "-> /nowhere", "up": "-> ../../.."})
	tests := []struct {
		cwd  string
		ws   bool
		want string // "" means a CwdError
	}{
		{"", false, "/tmp"}, {"", true, "/workspace"}, {".", true, "/workspace"},
		{"sub", true, "/workspace/sub"},
		{"sub/../sub", true, "/workspace/sub"}, {"/workspace/sub", true, "/workspace/sub"},
		{"to-sub", true, "/workspace/sub"},
		{"/skill/scripts", false, "/skill/scripts"}, {"/tmp", true, "/tmp"}, {"../skill", true, "/skill"},
		{"..", true, ""}, {"/", true, ""}, {"/usr", true, ""}, {"to-usr", true, ""}, {"to-nowhere", true, ""},
		{"sub/f", true, ""}, {"missing", true, ""}, {"/workspace", false, ""}, {"/proc/self/cwd", true, ""},
		{"/proc/self/root", true, ""}, {"/proc/1/root", true, ""}, {"/dev/shm", true, ""},
		{"/out", true, "/out"},
		{"/dev/fd/0", true, ""}, {"sub\x00x", true, ""}, {"/tmpx", true, ""}, {"/skill/../usr", true, ""},
		{"up", true, ""},
		{strings.Repeat("a/", 3000), true, ""},
	}
	for _, tt := range tests {
		cmd := f.script(t, "pwd.sh", "pwd -P")
		cmd.Cwd = tt.cwd
		if tt.ws {
			cmd.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceRO, Dir: openDir(t, ws)}
		}
		res, err := f.runner.Run(t.Context(), cmd)
		if tt.want == "" {
			var refused *sandbox.CwdError
			if !errors.As(err, &refused) || refused.Reason == "" {
				t.Errorf("Run in %.40q = %v, want a CwdError", tt.cwd, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("Run in %q = %v", tt.cwd, err)
		} else if got := strings.TrimSpace(string(res.Stdout.Head)); got != tt.want {
			t.Errorf("Run in %q ran in %q, want %q", tt.cwd, got, tt.want)
		}
	}
}

func testEnvironment(t *testing.T, f *fixture) {
	cmd := f.script(t, "env.py", `
import os
for l in open("/proc/self/environ", "rb").read().split(b"\0")[:-1]: print(l.decode())`)
	cmd.Env = []string{"A=1", "B=", "C=x=y z", "D=ü"}
	res := f.runOK(t, cmd)
	if got, want := string(res.Stdout.Head), strings.Join(cmd.Env, "\n")+"\n"; got != want {
		t.Errorf("environment = %q, want %q", got, want)
	}
	cmd.Env = nil
	if res := f.runOK(t, cmd); len(res.Stdout.Head) != 0 {
		t.Errorf("environment = %q, want none", res.Stdout.Head)
	}
}

func testStdin(t *testing.T, f *fixture) {
	cmd := f.script(t, "stdin.sh", "cat")
	for _, in := range [][]byte{nil, {}, []byte("text\x00\xff"),
		bytes.Repeat([]byte("0123456789abcdef"), 1<<16)} {
		cmd.Stdin = in
		cmd.Limits.Output = 2 << 20
		if res := f.runOK(t, cmd); !bytes.Equal(res.Stdout.Head, in) {
			t.Errorf("stdin of %d bytes came back as %d", len(in), len(res.Stdout.Head))
		}
	}
	unread := f.script(t, "unread.sh", "exit 0")
	unread.Stdin = bytes.Repeat([]byte("x"), 1<<20)
	f.runOK(t, unread)
}

func testOutput(t *testing.T, f *fixture) {
	text := "FIRST" + strings.Repeat("€", 100000) + "LAST"
	cmd := f.script(t, "long.py", `import sys; sys.stdout.write("FIRST" + "€" * 100000 + "LAST")`)
	cmd.Limits.Output = 10000
	s := f.runOK(t, cmd).Stdout
	sum := sha256.Sum256([]byte(text))
	if s.Total != int64(len(text)) || !s.Truncated || s.SHA256 != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("Total, Truncated, SHA256 = %d, %v, %s", s.Total, s.Truncated, s.SHA256)
	}
	if n := len(s.Head) + len(s.Tail); n > 10000 || n < 9900 {
		t.Errorf("kept %d bytes of 10000", n)
	}
	if !strings.HasPrefix(text, string(s.Head)) || !strings.HasSuffix(text, string(s.Tail)) ||
		!utf8.Valid(s.Head) || !utf8.Valid(s.Tail) {
		t.Errorf("head %.20q…, tail …%q", s.Head, s.Tail[max(0, len(s.Tail)-20):])
	}

	cmd = f.script(t, "exact.sh", "printf 0123456789")
	cmd.Limits.Output = 10
	if s := f.runOK(t, cmd).Stdout; string(s.Head) != "0123456789" || s.Truncated || len(s.Tail) != 0 {
		t.Errorf("output at the limit = %+v", s)
	}

	cmd = f.script(t, "flood.sh", "echo FIRST >&2; yes >&2")
	cmd.Limits.Output = 10000
	res := f.run(t, cmd)
	if res.Outcome != sandbox.OutputLimit || !strings.HasPrefix(string(res.Stderr.Head), "FIRST") ||
		res.Stderr.Total < 640000 || res.Stderr.Total > 4<<20 {
		t.Errorf("flood = %s with %d bytes", res.Outcome, res.Stderr.Total)
	}

	res = f.runOK(t, f.script(t, "bytes.py", `import sys; sys.stdout.buffer.write(bytes(range(256)))`))
	if len(res.Stdout.Head) != 256 || res.Stdout.Head[255] != 255 {
		t.Errorf("raw bytes = %q", res.Stdout.Head)
	}
}

func testOut(t *testing.T, f *fixture) {
	res := f.runOK(t, f.script(t, "out.py", `
import os, socket
os.chdir("/out")
open("b", "w").write("two"); os.makedirs("d/e"); open("d/e/c", "wb").write(b"\x00"); open("a", "w")
os.symlink("/etc/passwd", "link"); os.symlink("/usr", "dirlink"); os.mkfifo("pipe")
`))
	want := []sandbox.OutFile{{Name: "a", Data: []byte{}}, {Name: "b", Data: []byte("two")},
		{Name: "d/e/c", Data: []byte{0}}}
	if diff := cmp.Diff(want, res.Out, cmp.Transformer("bytes",
		func(b []byte) string { return string(b) })); diff != "" {
		t.Errorf("Out (-want +got):\n%s", diff)
	}
	if res.OutSkips != 3 {
		t.Errorf("OutSkips = %d, want 3", res.OutSkips)
	}
	res = f.run(t, f.script(t, "many.py", `
for i in range(400):
    try: open("/out/%d" % i, "w").write("x")
    except OSError: break
open("/out/sparse", "w").truncate(60 << 20)`))
	var size int
	for _, o := range res.Out {
		size += len(o.Data)
	}
	if len(res.Out) > 256 || size > 16<<20 || res.OutSkips == 0 {
		t.Errorf("%d files with %d bytes, %d skipped", len(res.Out), size, res.OutSkips)
	}
}

func testUnavailable(t *testing.T, f *fixture) {
	for _, argv0 := range []string{"/nowhere/interpreter", "/skill/SKILL.md", "/etc"} {
		cmd := f.command(t, "works.sh")
		cmd.Argv = []string{argv0}
		_, err := f.runner.Run(t.Context(), cmd)
		var u *sandbox.UnavailableError
		if argv0 == "/skill/SKILL.md" && err == nil {
			continue // sh may run an executable file of the tree
		}
		if !errors.As(err, &u) || u.Reason == "" || strings.Contains(u.Error(), f.dir) {
			t.Errorf("Run(%q) = %v, want an UnavailableError", argv0, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	res, err := f.runner.Run(ctx, f.script(t, "never.sh", "echo ran"))
	if err != nil || res.Outcome != sandbox.Canceled || len(res.Stdout.Head) != 0 {
		t.Errorf("Run with a canceled context = %+v, %v", res, err)
	}
	closed := openDir(t, f.dir)
	closed.Close()
	cmd := f.command(t, "works.sh")
	cmd.Tree = closed
	if _, err := f.runner.Run(t.Context(), cmd); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("Run with a closed tree = %v", err)
	}
}
