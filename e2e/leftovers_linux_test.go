package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A run leaves no process, mount, control group, upper layer or temporary file, however it or its
// server ends; what a killed server could not clear away the next one does.
func TestNothingIsLeftBehind(t *testing.T) {
	unavailable := unavailableAs(t, "native", caseUsers()[0])
	for _, tt := range []struct {
		name  string
		limit string // of the run's time
		end   func(t *testing.T, p *process)
		lives bool // the server
	}{
		{"timeout", "10s", func(t *testing.T, p *process) {
			if line := p.receive(); !strings.Contains(line, `"timeout"`) {
				t.Errorf("answer = %s", line)
			}
		}, true},
		{"cancel", "10m", func(t *testing.T, p *process) { p.send(cancelCall("50")) }, true},
		{"client gone", "10m", func(t *testing.T, p *process) { p.in.Close() }, false},
		{"server terminated", "10m", func(t *testing.T, p *process) { signal(t, p, os.Interrupt) }, false},
		{"server killed", "10m", func(t *testing.T, p *process) { signal(t, p, os.Kill) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &toolBench{toolCase: &toolCase{}, T: t, root: caseRoot(t), backend: "native", unavailable: unavailable}
			b.Server.Allow = []string{"demo:scripts/ok.sh"}
			script, mark := b.sleeper()
			b.write("demo/SKILL.md", "---\nname: demo\ndescription: A skill for tests.\n---\n")
			b.write("demo/scripts/ok.sh", strings.Replace(script, "echo ran-ok\n", "echo x >/workspace/new; echo x >/tmp/new; echo x >/out/new; echo x >/dev/shm/new\n", 1))
			b.needSandbox()
			temp, ws := filepath.Join(b.root, "temp"), filepath.Join(b.root, "ws")
			if err := os.Mkdir(temp, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(ws, 0o777); err != nil {
				t.Fatal(err)
			}
			b.env = []string{"TMPDIR=" + temp}
			flags := append(b.flags(), "--workspace", ws+":staged", "--limit", "timeout="+tt.limit)
			before := mounts(t)
			p := b.serve(exec.Command(binary, flags...))
			if loaded := p.tool("load_skill", map[string]any{"name": "demo"}); loaded.IsError {
				t.Fatal(loaded.text())
			}
			p.send(`{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/ok.sh"}}}`)
			eventually(t, "both processes of the run are there", func() bool { return len(processesWith(t, mark)) >= 2 })
			tt.end(t, p)
			eventually(t, "every process of the run is gone", func() bool { return len(processesWith(t, mark)) == 0 })
			if !tt.lives {
				_ = p.cmd.Wait()
				restarted(t, b, flags)
			}
			eventually(t, "every control group of the run is gone", func() bool { return len(groupsOf(t, p)) == 0 })
			// Others of this machine may mount something for a while.
			eventually(t, "every mount of the run is gone", func() bool {
				return !slices.ContainsFunc(mounts(t), func(m string) bool { return !slices.Contains(before, m) })
			})
			nothingIn(t, b, temp, ws)
		})
	}
}

func signal(t *testing.T, p *process, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// restarted starts a server in the place of one that ended, and lets it run its self-test.
func restarted(t *testing.T, b *toolBench, flags []string) {
	t.Helper()
	b.Call.Arguments = demoScript("none.sh")
	next := b.serve(exec.Command(binary, flags...))
	next.untilLogged("sandbox ready")
	next.end()
}

// nothingIn looks for temporary files of the server and for changes that were not to be applied.
func nothingIn(t *testing.T, b *toolBench, temp, ws string) {
	t.Helper()
	for _, dir := range []string{temp, ws} {
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("%s holds %v, %v", filepath.Base(dir), left, err)
		}
	}
	// A server that lives writes its record at any moment, through a file that gets its name at the end.
	eventually(t, "no temporary file is in the state directory", func() bool {
		none := true
		_ = filepath.WalkDir(filepath.Join(b.root, "state"), func(_ string, d fs.DirEntry, err error) error {
			if err == nil && (strings.HasPrefix(d.Name(), "tmp-") || strings.HasPrefix(d.Name(), ".tmp-")) {
				none = false
			}
			return nil
		})
		return none
	})
}

// mounts are the lines that tell of this machine's mounts.
func mounts(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(data), "\n")
}

// groupsOf are the control groups that a server made for its runs.
func groupsOf(t *testing.T, p *process) []string {
	t.Helper()
	var found []string
	pattern := fmt.Sprintf("skillsd-run-*-%s-*", strconv.Itoa(p.cmd.Process.Pid))
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // groups come and go
		}
		if ok, _ := filepath.Match(pattern, d.Name()); ok {
			found = append(found, path)
		}
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return found
}

// A descriptor that the server's own parent left open reaches none of the programs that the server starts.
func TestNothingIsHandedOn(t *testing.T) {
	open, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	cmd := exec.Command(binary, "serve", "--config", os.DevNull, "--state", t.TempDir(), "--no-default-roots",
		"--skills-root", tree(t, map[string]string{"a/SKILL.md": "---\nname: a\ndescription: A skill.\n---\n"}))
	cmd.ExtraFiles = []*os.File{open}
	p := start(t, cmd)
	p.initialize()
	info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/3", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, flags, _ := strings.Cut(string(info), "flags:")
	bits, err := strconv.ParseUint(strings.Fields(flags)[0], 8, 32)
	if err != nil || bits&syscall.O_CLOEXEC == 0 {
		t.Errorf("descriptor 3, which the server inherited, is inherited again: %v\n%s", err, info)
	}
}
