package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Of two hundred calls at once four for each processor run, the others wait and are told so, and
// who asks something else is answered meanwhile. The log says how fast.
func TestCrowd(t *testing.T) {
	const calls = 200
	b := &toolBench{toolCase: &toolCase{}, T: t, root: caseRoot(t)}
	b.Server.Allow, b.Server.Activated = []string{"demo:scripts/ok.sh"}, []string{"demo"}
	mark := fmt.Sprintf("0.%d", 3_000_000_000+time.Now().UnixNano()%1_000_000_000)
	b.write("demo/SKILL.md", "---\nname: demo\ndescription: A skill for tests.\n---\n")
	b.write("demo/scripts/ok.sh", "#!/bin/bash\nexec sleep "+mark+"\n")
	b.needSandbox()
	p := b.serve(exec.Command(binary, b.flags()...))
	done, most := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-done:
				most <- n
				return
			default:
				n = max(n, len(processesWith(t, mark)))
			}
		}
	}()
	for id := range calls {
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_skill_script",`+
			`"arguments":{"skill":"demo","path":"scripts/ok.sh"},"_meta":{"progressToken":"p%d"}}}`, 1000+id, id))
	}
	answered, waited, slowest, pings := map[int]bool{}, map[string]bool{}, time.Duration(0), 0
	asked := time.Now()
	p.send(`{"jsonrpc":"2.0","id":5,"method":"ping"}`)
	for len(answered) < calls {
		line := p.receive()
		var a struct {
			ID     int
			Result toolResult
			Params struct {
				ProgressToken string
				Message       string
			}
		}
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		switch {
		case a.ID == 5:
			slowest, pings, asked = max(slowest, time.Since(asked)), pings+1, time.Time{}
		case a.ID == 0 && strings.Contains(a.Params.Message, "waiting"):
			waited[a.Params.ProgressToken] = true
		case a.ID >= 1000:
			if answered[a.ID] || a.Result.IsError {
				t.Fatalf("answer to %d, answered before %v: %s", a.ID, answered[a.ID], a.Result.text())
			}
			answered[a.ID] = true
			if asked.IsZero() {
				asked = time.Now()
				p.send(`{"jsonrpc":"2.0","id":5,"method":"ping"}`)
			}
		}
	}
	close(done)
	slots := 4 * runtime.NumCPU()
	if n := <-most; n > slots || n == 0 {
		t.Errorf("%d scripts ran at once, at most %d may", n, slots)
	}
	if len(waited) == 0 || len(waited) > calls {
		t.Errorf("%d of %d calls said that they wait", len(waited), calls)
	}
	if pings < 10 {
		t.Errorf("%d pings were answered during %d runs", pings, calls)
	}
	t.Logf("%d pings, the slowest took %v; %d calls waited", pings, slowest, len(waited))
}
