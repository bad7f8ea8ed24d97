package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skillsd/skillsd/e2e/nightly"
)

// Of two hundred calls at once four for each processor run, the others wait and are told so, and
// who asks something else is answered meanwhile. The log says how fast.
func TestCrowd(t *testing.T) {
	nightly.Only(t)
	const calls = 200
	mark := fmt.Sprintf("0.%d", 3_000_000_000+time.Now().UnixNano()%1_000_000_000)
	files := demoSkill()
	files["demo/scripts/sleep.sh"] = "#!/bin/bash\nexec sleep " + mark + "\n"
	p := serve(t, allowRun(tree(t, files), "ok.sh", "sleep.sh")...).loaded()
	needSandbox(t, p)
	done, most := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				most <- n
				return
			case <-tick.C:
				// One may end and another begin while the processes are looked through: those that are
				// seen twice were there between.
				first, again := processesWith(t, mark), processesWith(t, mark)
				n = max(n, len(slices.DeleteFunc(first, func(p string) bool { return !slices.Contains(again, p) })))
			}
		}
	}()
	for id := range calls {
		p.send(crowdCall(1000+id, "sleep"))
	}
	answered, waited, slowest, pings := map[int]bool{}, map[int]bool{}, time.Duration(0), 0
	asked := time.Now()
	p.send(`{"jsonrpc":"2.0","id":5,"method":"ping"}`)
	for len(answered) < calls {
		line := p.receive()
		var a struct {
			ID     int
			Result toolResult
			Params struct {
				ProgressToken int
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

// crowd is how many calls wait in the tests of calls that wait, and crowdSlots how many run meanwhile.
const crowd, crowdSlots = 200, 3

// crowdServer is a server with few slots, a script that ends at once and one that does not, which is
// told apart by the mark in its command line.
func crowdServer(t *testing.T) (args []string, mark string) {
	t.Helper()
	mark = fmt.Sprintf("0.%d", 4_000_000_000+time.Now().UnixNano()%1_000_000_000)
	files := demoSkill()
	files["demo/scripts/sleep.sh"] = "#!/bin/bash\nexec sleep 1000" + mark + "\n"
	return append(allowRun(tree(t, files), "ok.sh", "sleep.sh"), "--limit", fmt.Sprintf("concurrent=%d,timeout=600s", crowdSlots)), mark
}

// crowdCall is a call of a script that has itself told of its progress.
func crowdCall(id int, script string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_skill_script",`+
		`"arguments":{"skill":"demo","path":"scripts/%s.sh"},"_meta":{"progressToken":%d}}}`, id, script, id)
}

// crowdNews is a notification or an answer.
type crowdNews struct {
	ID     int
	Result json.RawMessage
	Error  json.RawMessage
	Params struct {
		ProgressToken int
		Message       string
	}
}

func newsOf(t testing.TB, line string) (n crowdNews) {
	t.Helper()
	if err := json.Unmarshal([]byte(line), &n); err != nil {
		t.Errorf("%s: %v", line, err)
	}
	return n
}

// places checks what the calls of a crowd were told: some run, and no two others have the same place.
func places(t *testing.T, told map[int]string) (running []int) {
	t.Helper()
	seen := map[int]bool{}
	for id, message := range told {
		var before int
		if strings.HasPrefix(message, "running") {
			running = append(running, id)
		} else if _, err := fmt.Sscanf(message, "waiting for a run slot, %d before this one", &before); err != nil || seen[before] || before >= crowd-crowdSlots {
			t.Errorf("call %d is told %q", id, message)
		}
		seen[before] = !strings.HasPrefix(message, "running") || seen[before]
	}
	if len(running) != crowdSlots {
		t.Errorf("%d calls run, want %d", len(running), crowdSlots)
	}
	return running
}

// While two hundred calls of one client run or wait, each is told its place at once, and the client is
// answered as if there were none. Cancelled all together they leave nothing behind.
func TestCrowdWaits(t *testing.T) {
	nightly.Only(t)
	args, mark := crowdServer(t)
	p := serve(t, args...).loaded()
	needSandbox(t, p)
	for id := range crowd {
		p.send(crowdCall(1000+id, "sleep"))
	}
	told := map[int]string{}
	for len(told) < crowd {
		if n := newsOf(t, p.receive()); n.Params.Message != "requested" {
			told[n.Params.ProgressToken] = n.Params.Message
		}
	}
	places(t, told)
	if a := p.ask("ping", "{}"); a.Error != nil {
		t.Errorf("ping = %+v", a.Error)
	}
	if read := p.tool("read_skill_resource", map[string]any{"skill": "demo", "path": "references/notes.md"}); read.IsError {
		t.Errorf("read_skill_resource = %s", read.text())
	}
	eventually(t, "as many scripts run as there are slots", func() bool { return len(processesWith(t, mark)) == crowdSlots })
	for id := range crowd {
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, 1000+id))
	}
	eventually(t, "no script runs", func() bool { return len(processesWith(t, mark)) == 0 })
	for range 2 * crowdSlots {
		if ran := p.script("ok.sh"); ran.IsError {
			t.Errorf("a run after the crowd = %s", ran.text())
		}
	}
	p.end()
}

// follow posts a call and hands on what the client is told until it is answered or ctx ends, however long
// that takes.
func (c *caller) follow(ctx context.Context, body string, news chan<- crowdNews) {
	endless := *c.site
	endless.client = &http.Client{Transport: c.client.Transport}
	response, err := (&caller{site: &endless, token: c.token, session: c.session}).do(ctx, "POST", body)
	if err != nil {
		return
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			select {
			case news <- newsOf(c.t, data):
			case <-ctx.Done():
				return
			}
		}
	}
	if response.StatusCode != 200 {
		c.t.Errorf("call = %s", response.Status)
	}
}

// Over HTTP, too, two hundred calls of a principal wait and are told so; the principal's pings are
// answered meanwhile, and the first slot that is free goes to another principal, who has none.
func TestCrowdOverHTTP(t *testing.T) {
	nightly.Only(t)
	args, _ := crowdServer(t)
	config := written(t, "config.yaml", "principals: {alice: {concurrent: 1024}}\n")
	s := serveHTTP(t, append(args, "--config", config, "--auth-token-file", tokenFile(t, "alice", "bob"), "--rate-limit", "0")...)
	alice, bob := s.loaded("alice-token"), s.loaded("bob-token")
	needSandbox(t, alice)
	ctx, leave := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	defer calls.Wait()
	defer leave()
	news := make(chan crowdNews, 4*crowd)
	for id := range crowd {
		calls.Go(func() { alice.follow(ctx, crowdCall(1000+id, "sleep"), news) })
	}
	told := map[int]string{}
	for len(told) < crowd {
		select {
		case n := <-news:
			if n.ID != 0 {
				t.Fatalf("call %d is answered %s%s", n.ID, n.Result, n.Error)
			}
			if n.Params.Message != "requested" {
				told[n.Params.ProgressToken] = n.Params.Message
			}
		case <-time.After(patience):
			t.Fatalf("only %d of %d calls are told something", len(told), crowd)
		}
	}
	running := places(t, told)
	if status, a, err := alice.request(t.Context(), "ping", "", ""); err != nil || status != 200 || a.Error != nil {
		t.Errorf("ping = %d %+v %v", status, a.Error, err)
	}
	bobs := make(chan crowdNews, 8)
	calls.Go(func() { bob.follow(ctx, crowdCall(1, "ok"), bobs) })
	var heard []string
	for n := range bobs {
		heard = append(heard, n.Params.Message)
		if strings.HasPrefix(n.Params.Message, "waiting") {
			alice.send(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, running[0]))
		}
		if n.ID == 1 {
			break
		}
	}
	if got, want := strings.Join(heard, "; "), "requested; waiting for a run slot, 0 before this one; running; "; got != want {
		t.Errorf("bob is told %q, want %q", got, want)
	}
}
