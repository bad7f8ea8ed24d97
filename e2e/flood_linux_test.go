package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// maxFloodGrowth is how much more memory a server may ever hold because a script prints without end.
const maxFloodGrowth = 8 << 10 // KiB

// A script that prints 400 MB costs the server no more than the part that is kept.
func TestFloodGrowsTheServerLittle(t *testing.T) {
	files := demoSkill()
	files["demo/scripts/flood.sh"] = "#!/bin/bash\necho FIRST\nyes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa | head -c 400000000\n"
	p := serve(t, append(allowRun(tree(t, files), "ok.sh", "flood.sh"), "--release", "observed")...).loaded()
	needSandbox(t, p)
	run := func(script string) toolResult {
		return p.tool("run_skill_script", map[string]any{"skill": "demo", "path": "scripts/" + script})
	}
	for range 3 {
		run("ok.sh")
	}
	pid := p.cmd.Process.Pid
	before := memoryOf(t, pid, "VmRSS:")
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Skipf("missing capability: clear_refs: %v", err)
	}
	r := run("flood.sh")
	if !strings.Contains(r.text(), "FIRST") || !strings.Contains(string(r.Meta["skillsd/result"]), `"output_limit"`) {
		t.Errorf("flood = %.300s", r.text())
	}
	after := memoryOf(t, pid, "VmHWM:")
	t.Logf("%d KiB before, %d KiB at most", before, after)
	if after-before > maxFloodGrowth {
		t.Errorf("the server grew by %d KiB, at most %d are its due", after-before, maxFloodGrowth)
	}
}

// memoryOf is a line of a process's status in KiB.
func memoryOf(t *testing.T, pid int, key string) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			var n int
			if _, err := fmt.Sscan(rest, &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s", key)
	return 0
}
