package sandboxtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/sandbox"
)

const childVar = "SANDBOXTEST_CHILD"

// Killed checks that all processes of a server end when the server is killed during a run. As that server it
// starts the test binary again, with only the calling test, and waits until it has processes descendants, the
// number for a run in the backend.
func Killed(t *testing.T, newRunner func(t *testing.T) sandbox.Runner, processes int) {
	Need(t, "bash")
	if os.Getenv(childVar) != "" {
		f := newFixture(t, newRunner(t))
		cmd := f.script(t, "stay.sh", "(setsid sleep 120 &); sleep 120")
		cmd.Limits.Timeout = time.Minute
		f.run(t, cmd)
		return
	}
	server := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	temp := t.TempDir()
	server.Env = append(os.Environ(), childVar+"=1", "TMPDIR="+temp)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	var started []string
	if !until(func() bool {
		started = below(server.Process.Pid)
		return len(started) >= processes
	}) {
		t.Errorf("%d processes were started, want %d", len(started), processes)
	}
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait() // the error is the signal
	var left []string
	if !until(func() bool {
		left = nil
		for _, p := range started {
			if state := stat(p); state != "" && state != "Z" {
				left = append(left, p)
			}
		}
		return len(left) == 0
	}) {
		t.Errorf("left behind: %q", left)
	}
	// The test owns the tree, as the store owns it for a server.
	files, err := filepath.Glob(filepath.Join(temp, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasPrefix(filepath.Base(file), "Test") {
			t.Errorf("left behind: %s", file)
		}
	}
}

// until calls done repeatedly, for as long as a busy machine may need.
func until(done func() bool) bool {
	deadline := time.After(slack)
	for !done() {
		select {
		case <-deadline:
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
	return true
}

// below returns the descendants of a process, each as its ID and start time.
func below(pid int) []string {
	var found []string
	lists, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil {
			continue
		}
		for child := range strings.FieldsSeq(string(data)) {
			if n, err := strconv.Atoi(child); err == nil {
				found = append(append(found, child+" "+fields(n, 21)), below(n)...)
			}
		}
	}
	return found
}

// stat returns the state of a process returned by below, or "" if it has ended.
func stat(process string) string {
	pid, start, _ := strings.Cut(process, " ")
	n, err := strconv.Atoi(pid)
	if err != nil || fields(n, 21) != start {
		return ""
	}
	return fields(n, 2)
}

// fields returns field i of a process's stat, counted from 0.
func fields(pid, i int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	// The name before these fields may contain any characters.
	_, rest, _ := strings.Cut(string(data), ") ")
	if f := strings.Fields(rest); len(f) > i-2 {
		return f[i-2]
	}
	return ""
}

// EndedWhileStarting checks that a run can be ended at any moment of its start: its outcome must be the
// reason, and nothing may be left behind.
func EndedWhileStarting(t *testing.T, r sandbox.Runner, runs int, step time.Duration) {
	f := newFixture(t, r)
	mark := marker(t)
	cmd := f.script(t, "spin.sh", "while :; do sleep 60; done", mark)
	for i := range runs {
		cmd.Limits.Timeout = time.Duration(i)*step + 1
		if res, err := r.Run(t.Context(), cmd); err != nil || res.Outcome != sandbox.TimedOut {
			t.Fatalf("Run with a limit of %v = %+v, %v, because %v", cmd.Limits.Timeout, res, err,
				errors.Unwrap(err))
		}
		cmd.Limits.Timeout = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*step+1)
		if res, err := r.Run(ctx, cmd); err != nil || res.Outcome != sandbox.Canceled {
			t.Fatalf("Run canceled after %v = %+v, %v, because %v", time.Duration(i)*step, res, err,
				errors.Unwrap(err))
		}
		cancel()
	}
	var left []string
	if !until(func() bool { left = below(os.Getpid()); return len(left) == 0 }) {
		t.Errorf("left behind: %q", left)
	}
	noProcess(t, mark)
}
