package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skillsd/skillsd/e2e/nightly"
)

var (
	soak     = flag.Duration("soak", 2*time.Second, "how long the clients of TestSoak call")
	soakRest = flag.Duration("soak-rest", 0, "how long a client of TestSoak rests after each call, on average")
)

// soaked is a server under the clients of TestSoak.
type soaked struct {
	*site
	args    []string
	metrics string       // where the server has its metrics
	samples []soakSample // of a long run
	// restart is held to end the server and start it again, and read-held during each call.
	restart sync.RWMutex

	answered, recorded, canceled, busy, conversations atomic.Int64
}

// TestSoak has 64 clients of 8 principals load, read and run over both eras of HTTP, while some of them leave in
// the middle of calls, skills change, and the server is reloaded and, in a long run, killed and started again. No
// answer may be a failure, but for one of 1,000 that says when to call again; each answered call is in the record
// of its conversation, and each record verifies. In a long run, `make soak`, memory, descriptors, goroutines and
// records are no more at its end than in its middle.
func TestSoak(t *testing.T) {
	nightly.Only(t)
	if runtime.GOOS != "linux" {
		t.Skip("missing capability: /proc/PID/status")
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("missing capability: bash, for its ulimit")
	}
	var names []string
	for i := range 8 {
		names = append(names, fmt.Sprintf("p%d", i))
	}
	root := tree(t, loadSkills())
	args := append(allowRun(root, "ok.sh"), "--auth-token-file", tokenFile(t, names...), "--rate-limit", "0", "--http-activation", "handle")
	for _, name := range names {
		args = append(args, "--auth-evidence", name)
	}
	s := &soaked{args: args}
	s.serve(t, t.TempDir())
	t.Cleanup(func() { s.client.CloseIdleConnections() })
	c := &caller{site: s.site, token: "p0-token"}
	handle := handleIn(t, c.tool("load_skill", map[string]any{"name": "demo"}))
	ran := c.tool("run_skill_script", map[string]any{"skill": "demo", "path": "scripts/ok.sh", "activation": handle})
	scripts := !strings.Contains(ran.text(), `"sandbox_unavailable"`)
	if !scripts && os.Getenv("SKILLSD_REQUIRE_SANDBOX") != "" {
		t.Fatalf("no sandbox backend works here: %s", ran.text())
	}
	ctx, cancel := context.WithTimeout(t.Context(), *soak)
	defer cancel()
	var clients sync.WaitGroup
	for i := range loadClients {
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				s.converse(ctx, names[i%8], fmt.Sprintf("soak-%d-%d", i, n), i/8%2 == 0, scripts)
			}
		})
	}
	clients.Go(func() { s.disturb(ctx, root) })
	if *soak > time.Minute {
		clients.Go(func() { s.watch(ctx) })
		s.again(ctx)
	}
	clients.Wait()
	t.Logf("%d calls answered in %d conversations, %d events of them; %d calls given up; %v",
		s.answered.Load(), s.conversations.Load(), s.recorded.Load(), s.canceled.Load(), s.settled())
	if busy := s.busy.Load(); busy > 0 {
		t.Logf("%d calls were answered that the server is busy, and made again", busy)
		if busy > s.answered.Load()/1000 {
			t.Error("these are more than one of 1,000")
		}
	}
	if s.answered.Load() == 0 {
		t.Error("no call was answered")
	}
	if *soak >= 20*time.Minute { // sooner the sessions and records are not as many as they may be
		s.judge()
	}
	s.countGoroutines()
}

// serve starts the server. It may have 256 sessions open, so that what it holds is flat after some minutes, and
// deletes the oldest records when it starts.
func (s *soaked) serve(t testing.TB, state string) {
	s.site = serveIn(t, underLimit(t, "-n 2048"),
		append([]string{"--state", state, "--records", "total=128MiB", "--metrics", "127.0.0.1:0"}, s.args...)...)
	s.metrics = s.logged(metricsAddr)
}

// continued finds the id of the record that a conversation goes on in after its own has ended with a server.
var continued = regexp.MustCompile(`"runId":"([^"]+)","requestedRunId"`)

// converse is a conversation of a client, and compares its record with what was answered.
func (s *soaked) converse(ctx context.Context, principal, id string, legacy, scripts bool) {
	s.restart.RLock()
	c := &caller{site: s.site, token: principal + "-token"}
	if legacy {
		c = s.open(c.token)
	}
	s.restart.RUnlock()
	handle, answered, canceled, records := "", map[string]int{}, 0, map[string]bool{id: true}
	meta := fmt.Sprintf(`"skillsd/run-id":%q`, id)
	for n := 0; n < 100 && ctx.Err() == nil; n++ {
		tool, args, want := "load_skill", `"name":"demo"`, "# Demo"
		switch skill := fmt.Sprintf("skill-%03d", n%50); {
		case handle == "":
		case n%8 == 7 && scripts:
			tool, want = "run_skill_script", "ran-ok x"
			args = fmt.Sprintf(`"skill":"demo","path":"scripts/ok.sh","args":["x"],"activation":%q`, handle)
		default:
			tool, want = "read_skill_resource", "A line of the guide."
			args = fmt.Sprintf(`"skill":%q,"path":"references/guide.md","activation":%q`, skill, handle)
		}
		call := ctx
		if n%16 == 5 && handle != "" { // the client leaves in the middle of it
			var leave context.CancelFunc
			call, leave = context.WithTimeout(ctx, time.Duration(rand.IntN(4000))*time.Microsecond)
			defer leave()
		}
		s.restart.RLock()
		c.site = s.site
		text, err := c.callAs(call, n, tool, args, meta)
		s.restart.RUnlock()
		switch {
		case err != nil && call.Err() != nil:
			canceled++
		case strings.Contains(text, `"code":"server_busy"`) && strings.Contains(text, "Call again in 10 seconds"):
			s.busy.Add(1)
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
			}
		case err != nil || !strings.Contains(text, want):
			s.t.Errorf("%s: %s: %v: %.1500s", id, tool, err, text)
			return
		default:
			answered[tool]++
			if other := continued.FindStringSubmatch(text); other != nil {
				records[other[1]] = true
			}
			if tool == "load_skill" {
				_, rest, _ := strings.Cut(text, `Activation: `)
				handle, _, _ = strings.Cut(rest, " ")
			}
		}
		if *soakRest > 0 {
			select {
			case <-time.After(rand.N(2 * *soakRest)):
			case <-ctx.Done():
			}
		}
	}
	s.compare(id, records, answered, canceled)
}

// callAs calls a tool with _meta of its own, and returns the result as JSON.
func (c *caller) callAs(ctx context.Context, id int, tool, args, meta string) (string, error) {
	headers := []string{"Mcp-Protocol-Version", "2025-11-25"}
	if c.session == "" {
		meta += "," + modernMeta
		headers = []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool}
	}
	status, a, err := c.send(ctx, fmt.Sprintf(
		`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{%s},"_meta":{%s}}}`, id, tool, args, meta), headers...)
	if err == nil && (status != 200 || a.Error != nil || bytes.Contains(a.Result, []byte(`"isError":true`))) {
		err = fmt.Errorf("%d, %+v", status, a.Error)
	}
	return string(a.Result), err
}

// compare finds each answered call of a conversation in its records.
func (s *soaked) compare(id string, records map[string]bool, answered map[string]int, canceled int) {
	var events []byte
	for record := range records {
		more, err := os.ReadFile(filepath.Join(s.state, "sessions", record, "events.jsonl"))
		if err != nil && len(answered) > 0 {
			s.t.Errorf("%v answered, %v", answered, err)
			return
		}
		events = append(events, more...)
	}
	if len(events) == 0 {
		return
	}
	s.conversations.Add(1)
	s.canceled.Add(int64(canceled))
	for tool, kind := range map[string]string{"load_skill": "skill.activated", "read_skill_resource": "skill.resource_read", "run_skill_script": "skill.script_executed"} {
		n := bytes.Count(events, []byte(`"kind":"`+kind+`"`))
		// One that is continued is restored first, which is recorded as well.
		if n < answered[tool] || n > answered[tool]+canceled && len(records) == 1 {
			s.t.Errorf("%s: %d calls of %s were answered, %d given up, %d are recorded", id, answered[tool], tool, canceled, n)
		}
		s.answered.Add(int64(answered[tool]))
		s.recorded.Add(int64(n))
	}
	if rand.IntN(8) > 0 {
		return
	}
	if out, code := session(s.t, s.state, "verify", id); code != 0 {
		s.t.Errorf("verify %s: %d: %s", id, code, out)
	}
}

// disturb changes skills and reloads the server until ctx ends. A file is replaced, as by an editor: whoever
// reads one that is being written has to try again.
func (s *soaked) disturb(ctx context.Context, root string) {
	written := filepath.Join(s.t.TempDir(), "SKILL.md")
	for n := 0; ctx.Err() == nil; n++ {
		select {
		case <-ctx.Done():
		case <-time.After(100*time.Millisecond + 20**soakRest):
		}
		name := fmt.Sprintf("skill-%03d", rand.IntN(50))
		text := fmt.Sprintf("---\nname: %s\ndescription: One of many, change %d.\n---\nDo that.\n", name, n)
		err := os.WriteFile(written, []byte(text), 0o644)
		if err == nil {
			err = os.Rename(written, filepath.Join(root, name, "SKILL.md"))
		}
		if err != nil {
			s.t.Error(err)
		}
		if n%10 == 9 {
			s.restart.RLock()
			if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
				s.t.Error(err)
			}
			s.restart.RUnlock()
		}
	}
}

// A soakSample is what the server holds at a moment.
type soakSample struct {
	at         time.Duration
	rss, disk  float64 // MiB
	handles    float64
	goroutines float64
}

// watch says every minute what the server holds.
func (s *soaked) watch(ctx context.Context) {
	for start := time.Now(); ctx.Err() == nil; {
		s.restart.RLock()
		h := holdingsOf(s.t, s.cmd.Process.Pid)
		_, page := scrape(s.t, "GET", s.metrics, "/metrics", s.metrics)
		goroutines := float64(series(s.t, page, "go_goroutines"))
		s.restart.RUnlock()
		disk, err := exec.Command("du", "-sm", filepath.Join(s.state, "sessions")).Output()
		if err != nil && len(disk) == 0 { // a session was deleted meanwhile
			s.t.Errorf("du: %v", err)
		}
		mib, _, _ := strings.Cut(string(disk), "\t")
		size, _ := strconv.ParseFloat(mib, 64)
		now := soakSample{time.Since(start), float64(h.rss) / (1 << 20), size, float64(h.handles), goroutines}
		s.samples = append(s.samples, now)
		fmt.Fprintf(os.Stderr, "soak: %v: %v, %.0f goroutines, %s MiB of records, %d calls\n",
			now.at.Round(time.Second), h, goroutines, mib, s.answered.Load())
		select {
		case <-ctx.Done():
		case <-time.After(*soak / 60):
		}
	}
}

// judge compares what the server holds at the end with what it held in the middle, when it had as many
// sessions and records as it may have. All that time it was the same process.
func (s *soaked) judge() {
	mean := func(from, to float64, of func(soakSample) float64) float64 {
		sum, n := 0.0, 0.0
		for _, x := range s.samples {
			if part := float64(x.at) / float64(*soak); part >= from && part < to {
				sum, n = sum+of(x), n+1
			}
		}
		return sum / n
	}
	for _, m := range []struct {
		name  string
		of    func(soakSample) float64
		slack float64
	}{
		{"MiB of memory", func(x soakSample) float64 { return x.rss }, 8},
		{"MiB of records", func(x soakSample) float64 { return x.disk }, 32},
		{"descriptors", func(x soakSample) float64 { return x.handles }, 64},
		{"goroutines", func(x soakSample) float64 { return x.goroutines }, 64},
	} {
		middle, end := mean(0.55, 0.7, m.of), mean(0.85, 1.1, m.of)
		s.t.Logf("%s: %.0f in the middle, %.0f at the end", m.name, middle, end)
		if !(end <= middle*1.15+m.slack) {
			s.t.Errorf("%s grew from %.0f to %.0f", m.name, middle, end)
		}
	}
}

// again ends the server twice in the first third of the time, and starts it: it is killed, and later asked to
// end.
func (s *soaked) again(ctx context.Context) {
	for _, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		select {
		case <-ctx.Done():
			return
		case <-time.After(*soak / 6):
		}
		s.restart.Lock()
		if err := s.cmd.Process.Signal(end); err != nil {
			s.t.Error(err)
		}
		go io.Copy(io.Discard, s.out)
		if err := s.cmd.Wait(); err != nil && end != syscall.SIGKILL {
			s.t.Errorf("the server ended with %v", err)
		}
		s.client.CloseIdleConnections()
		s.serve(s.t, s.state)
		s.restart.Unlock()
	}
}
