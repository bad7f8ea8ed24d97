package sandboxtest

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/sandbox"
)

// slack is how much longer a run may take on a busy machine. Anything that a run must not wait for lasts ten
// minutes.
var slack = Scaled(30 * time.Second)

func testTime(t *testing.T, f *fixture) {
	tests := []struct{ name, script string }{
		{"busy.sh", "echo started; while :; do :; done"},
		{"deaf.py", `import signal, time
for s in range(1, 65):
 try: signal.signal(s, signal.SIG_IGN)
 except (OSError, ValueError): pass
print('started', flush=True); time.sleep(600)`},
		{"closed.sh", "echo started; exec >&- 2>&-; sleep 600"},
		{"daemon.sh", "echo started; (setsid nohup sleep 600 &) ; " +
			"(setsid sleep 600 >/dev/null 2>&1 </dev/null &); sleep 600"},
		{"stopped.sh", "echo started; kill -STOP $$"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cmd := f.script(t, tt.name, tt.script)
			cmd.Limits.Timeout = Scaled(500 * time.Millisecond)
			begin := time.Now()
			res := f.run(t, cmd)
			if len(res.Stdout.Head) == 0 { // the limit was too short to start on a busy machine
				cmd.Limits.Timeout *= 10
				begin = time.Now()
				res = f.run(t, cmd)
			}
			if res.Outcome != sandbox.TimedOut || string(res.Stdout.Head) != "started\n" {
				t.Errorf("= %s, %q", res.Outcome, res.Stdout.Head)
			}
			if d := time.Since(begin); d < cmd.Limits.Timeout || d > cmd.Limits.Timeout+slack {
				t.Errorf("took %v with a limit of %v", d, cmd.Limits.Timeout)
			}
		})
	}
	t.Run("daemon outlives exit", func(t *testing.T) {
		mark := marker(t)
		begin := time.Now()
		left := `(setsid nohup sh -c 'while :; do sleep 1; done' "$1" &); (setsid sleep 600 &); exit 0`
		f.runOK(t, f.script(t, "left.sh", left, mark))
		if d := time.Since(begin); d > slack {
			t.Errorf("took %v", d)
		}
		noProcess(t, mark)
	})
	t.Run("cancel", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		mark := marker(t)
		cmd := f.script(t, "cancel.sh", `(setsid sleep 600 &); cat; sleep 600`, mark)
		cmd.Stdin = []byte("x")
		timer := time.AfterFunc(500*time.Millisecond, cancel)
		defer timer.Stop()
		begin := time.Now()
		res, err := f.runner.Run(ctx, cmd)
		if err != nil || res.Outcome != sandbox.Canceled || time.Since(begin) > slack {
			t.Errorf("= %+v, %v after %v", res, err, time.Since(begin))
		}
		noProcess(t, mark)
	})
}

// marker returns an argument by which a test finds the processes it started.
func marker(t *testing.T) string {
	return "sandboxtest-" + rand.Text() + "-" + strings.ReplaceAll(t.Name(), "/", "-")
}

func noProcess(t *testing.T, mark string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range files {
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), mark) {
			t.Errorf("left behind: %q", b)
		}
	}
}

func testMemory(t *testing.T, f *fixture) {
	for _, how := range []string{"anonymous", "shared", "memfd", "sysv", "messages", "semaphores", "sockets",
		"connections", "datagrams", "pipes", "watches", "tables", "tmpfs", "processes",
		"zapped", "unmapped", "named", "devzero", "leader", "mappings"} {
		t.Run(how, func(t *testing.T) {
			if how == "devzero" {
				Need(t, "landlock")
			}
			if how == "mappings" && f.has(OwnKernel) {
				t.Skip("missing capability: a kernel that keeps mappings as the host's does")
			}
			cmd := f.command(t, "memory.py", how, strconv.Itoa(int(Scaled(40*time.Second).Seconds())))
			cmd.Limits.Memory = 256 << 20
			switch how {
			case "connections", "pipes", "watches": // the kernel bounds them, but less tightly
				cmd.Limits.Memory = 64 << 20
			}
			cmd.Limits.File = 1 << 30
			if how == "tables" && f.has(OwnKernel) {
				cmd.Limits.Timeout = Scaled(20 * time.Second) // this attack takes long
			}
			res := f.run(t, cmd)
			if !strings.HasPrefix(string(res.Stdout.Head), "start\n") {
				t.Errorf("did not start: %s, %q", res.Outcome, res.Stderr.Head)
			}
			refused := strings.Contains(string(res.Stdout.Head), "refused")
			// A guest's kernel creates tables too slowly to have many in that time.
			slow := f.has(OwnKernel) && how == "tables" && res.Outcome == sandbox.TimedOut
			if res.Outcome != sandbox.MemoryLimit && !refused && !slow {
				t.Errorf("= %s, exit %d, signal %q; want memory_limit or a refusal", res.Outcome,
					res.ExitCode, res.Signal)
			}
		})
	}
	t.Run("within", func(t *testing.T) {
		cmd := f.script(t, "within.py", "b = bytearray(100 << 20)\nprint('done')")
		cmd.Limits.Memory = 256 << 20
		f.attack(t, cmd)
	})
}

func testProcesses(t *testing.T, f *fixture) {
	cmd := f.command(t, "forks.py")
	cmd.Limits.PIDs = 32
	res := f.run(t, cmd)
	if res.Outcome != sandbox.Exited && res.Outcome != sandbox.PIDsLimit {
		t.Errorf("= %s, signal %q, %q", res.Outcome, res.Signal, res.Stderr.Head)
	}
	if !strings.HasSuffix(string(res.Stdout.Head), "done\n") {
		t.Errorf("printed %q, %q", res.Stdout.Head, res.Stderr.Head)
	}

	f.testProcessLimitIsTold(t)
	f.testProcessLimitIsClose(t)

	// Two concurrent runs must not use up each other's limit.
	cmd = f.script(t, "half.sh", "for i in $(seq 18); do sleep 0.5 & done; wait; echo done")
	cmd.Limits.PIDs = 32
	results := make(chan *sandbox.Result, 4)
	for range cap(results) {
		go func() {
			res, err := f.runner.Run(t.Context(), cmd)
			if err != nil {
				t.Error(err)
			}
			results <- res
		}()
	}
	for range cap(results) {
		if res := <-results; res != nil && (res.Outcome != sandbox.Exited ||
			string(res.Stdout.Head) != "done\n") {
			t.Errorf("= %s, %q, %q", res.Outcome, res.Stdout.Head, res.Stderr.Head)
		}
	}

	cmd = f.script(t, "bomb.sh", "f() { f | f & }; f; sleep 60")
	cmd.Limits = sandbox.Limits{PIDs: 40, Timeout: Scaled(time.Second)}
	begin := time.Now()
	f.run(t, cmd)
	if d := time.Since(begin); d > cmd.Limits.Timeout+slack {
		t.Errorf("a fork bomb took %v", d)
	}
}

// testProcessLimitIsTold checks that a command that fails because of the limit has outcome pids_limit,
// however soon it fails, and that a command that succeeds in spite of it does not.
func (f *fixture) testProcessLimitIsTold(t *testing.T) {
	if f.has(NoProcessLimit) || f.has(UncountedProcesses) {
		return
	}
	const forks = `
import os, sys, time
try:
    while True:
        if os.fork() == 0: time.sleep(60); os._exit(0)
except OSError: sys.exit(int(sys.argv[1]))
`
	const threads = `
import os, threading, time
try:
    while True: threading.Thread(target=time.sleep, args=(60,)).start()
except RuntimeError: os._exit(3)
`
	for _, tt := range []struct {
		name, text, arg string
		want            sandbox.Outcome
	}{
		{"forks.py", forks, "3", sandbox.PIDsLimit},
		{"threads.py", threads, "", sandbox.PIDsLimit},
		{"bears.py", forks, "0", sandbox.Exited},
	} {
		cmd := f.script(t, tt.name, tt.text, tt.arg)
		cmd.Limits.PIDs = 16
		if res := f.run(t, cmd); res.Outcome != tt.want {
			t.Errorf("%s = %s, exit %d, %q, want %s", tt.name, res.Outcome, res.ExitCode, res.Stderr.Head,
				tt.want)
		}
	}
}

// testProcessLimitIsClose checks that a command gets as many processes as its limit, and hardly more.
func (f *fixture) testProcessLimitIsClose(t *testing.T) {
	if f.has(NoProcessLimit) {
		return
	}
	const limit, more = 24, 10 // the command may use the room for the backend's own processes
	cmd := f.script(t, "count.py", `
import os, time
n = 1
try:
    while True:
        if os.fork() == 0: time.sleep(60); os._exit(0)
        n += 1
except OSError: print(n, flush=True)
`)
	cmd.Limits.PIDs = limit
	res := f.runOK(t, cmd)
	if n, err := strconv.Atoi(strings.TrimSpace(string(res.Stdout.Head))); err != nil || n < limit ||
		n > limit+more {
		t.Errorf("with a limit of %d there were %q processes, want at most %d", limit, res.Stdout.Head,
			limit+more)
	}
}

func testFileSize(t *testing.T, f *fixture) {
	cmd := f.script(t, "size.sh", `trap '' XFSZ
dd if=/dev/zero of=/tmp/big bs=1M count=40 2>/dev/null
truncate -s 1T /tmp/sparse 2>/dev/null
for f in /tmp/big /tmp/sparse; do [ "$(stat -c %s $f)" -gt 8388608 ] && echo "BREACH $f"; done
echo done`)
	cmd.Limits.File = 8 << 20
	f.attack(t, cmd)
}

// testProcessLimits tries the limits of one process and of its scratch space.
func testProcessLimits(t *testing.T, f *fixture) {
	files := f.script(t, "nofile.py", `
import os, resource, sys
try: resource.setrlimit(resource.RLIMIT_NOFILE, (100000, 100000))
except (ValueError, OSError): pass
n = 3
try:
    while n < 5000: os.open("/dev/null", os.O_RDONLY); n += 1
except OSError: pass
if n > int(sys.argv[1]): print("BREACH", n, "files")
print("done")
`, "64")
	files.Limits.Files = 64
	f.attack(t, files)
	usual := *files
	usual.Limits.Files = 0
	usual.Argv = append(usual.Argv[:len(usual.Argv)-1:len(usual.Argv)-1], "256")
	f.attack(t, &usual)

	// The signal for that limit proves nothing without the time, because a command may send it to itself.
	sent := f.run(t, f.script(t, "sent.sh", "kill -XCPU $$"))
	if sent.Outcome != sandbox.Signaled || sent.Signal != "SIGXCPU" {
		t.Errorf("SIGXCPU of its own = %s, signal %q", sent.Outcome, sent.Signal)
	}

	for _, script := range []string{"while :; do :; done", "trap '' XCPU; while :; do :; done"} {
		busy := f.script(t, "busy.sh", "echo started; "+script)
		busy.Limits.CPU = Scaled(time.Second)
		begin := time.Now()
		res := f.run(t, busy)
		ended := res.Outcome == sandbox.TimedOut || res.Outcome == sandbox.Signaled && res.Signal == "SIGKILL"
		if !ended || string(res.Stdout.Head) != "started\n" || time.Since(begin) >= busy.Limits.Timeout {
			t.Errorf("%s with a second of processor time = %s, signal %q, exit %d after %v", script,
				res.Outcome, res.Signal, res.ExitCode, time.Since(begin))
		}
	}

	fill := f.script(t, "fill.sh", `dd if=/dev/zero of=/tmp/big bs=1M count=20 2>/dev/null
[ "$(stat -c %s /tmp/big)" -gt 4194304 ] && echo "BREACH $(stat -c %s /tmp/big) bytes"
echo done`)
	fill.Limits.Scratch = 4 << 20
	f.attack(t, fill)

	if f.has(NoInodeLimit) {
		return
	}
	many := f.script(t, "inodes.py", `
import os
n = 0
try:
    while n < 5000: os.mkdir("/tmp/%d" % n); n += 1
except OSError: pass
print("BREACH" if n > 104 or n < 90 else "made", n)
print("done")
`)
	many.Limits.Inodes = 100
	f.attack(t, many)
}
