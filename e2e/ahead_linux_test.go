package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// One sandbox waits for the next run. It is there for no other, and ends with the server, however that ends.
func TestOneSandboxIsBegunAhead(t *testing.T) {
	sandboxtest.Need(t, "userns", "bash")
	for _, tt := range []struct {
		name string
		end  func(t *testing.T, p *process)
	}{
		{"client gone", func(t *testing.T, p *process) { p.in.Close() }},
		{"server terminated", func(t *testing.T, p *process) { signal(t, p, os.Interrupt) }},
		{"server killed", func(t *testing.T, p *process) { signal(t, p, os.Kill) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, exec.Command(binary, "serve", "--config", os.DevNull, "--state", t.TempDir(), "--no-default-roots",
				"--sandbox", "native", "--release", "observed", "--allow-tool", "run_skill_script", "--allow-skill-script", "demo:scripts/ok.sh",
				"--prompt-slot-role", "direct-command", "--skills-root", tree(t, map[string]string{
					"demo/SKILL.md":      "---\nname: demo\ndescription: A skill for tests.\n---\n",
					"demo/scripts/ok.sh": "echo ran-ok\n"})))
			p.loaded()
			id := 2
			run := func() {
				t.Helper()
				id++
				res := p.script("ok.sh")
				if res.IsError || !strings.Contains(res.text(), "ran-ok") {
					t.Fatalf("run_skill_script = %s", res.text())
				}
			}
			seen := map[string]bool{}
			next := func() int {
				t.Helper()
				var waits []string
				eventually(t, "another sandbox waits", func() bool {
					// A run that comes while one is being made leaves it.
					waits = begunAhead(t, p)
					if len(waits) != 1 || seen[waits[0]] {
						run()
						return false
					}
					return true
				})
				seen[waits[0]] = true
				pid, err := strconv.Atoi(waits[0])
				if err != nil {
					t.Fatal(err)
				}
				return pid
			}
			// The helper of the server's own check of its sandbox, which has ended then, waits for no run.
			run()
			next()
			if err := syscall.Kill(next(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			run()
			last := next()
			tt.end(t, p)
			_ = p.cmd.Wait()
			gone := func() bool { return syscall.Kill(last, 0) == syscall.ESRCH }
			if tt.name == "server killed" {
				eventually(t, "the sandbox that waited is gone", gone)
			} else if !gone() {
				t.Error("a sandbox waits after the server's end")
			}
		})
	}
}

// begunAhead are the numbers of the server's children that are helpers, which no run may have at that moment.
func begunAhead(t *testing.T, p *process) (found []string) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil {
			continue // threads come and go
		}
		for pid := range strings.FieldsSeq(string(data)) {
			if line, err := os.ReadFile("/proc/" + pid + "/cmdline"); err == nil && string(line) == "sandbox-init\x00" {
				found = append(found, pid)
			}
		}
	}
	return found
}
