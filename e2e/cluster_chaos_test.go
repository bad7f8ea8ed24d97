//go:build unix

package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skillsd/skillsd/e2e/nightly"
	"github.com/skillsd/skillsd/provenance/jetstream"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
)

var (
	clusterCalls  = flag.Int("cluster-calls", 100, "calls at a server that did not give out their handle")
	clusterGrowth = flag.Int("cluster-growth", 0, "sessions of TestClusterGrowth and runs of TestWorkerCost, which measure what they take; 0 skips both")
	clusterClocks = flag.Bool("cluster-clocks", false, "the test was built by e2e/clock")
	clusterDemo   = flag.Bool("cluster-demo", false, "say what TestClusterDemo does, for a reader")
)

// leavesMark is the demo skill, whose script leaves a line where a second run of the same call would show.
func leavesMark() map[string]string {
	skill := demoSkill()
	skill["demo/scripts/ok.sh"] = "#!/bin/bash\necho \"$1\" >>/workspace/done\necho ran-ok \"$@\"\n"
	return skill
}

// busy is clients with a session each, which run a script again and again.
type busy struct {
	*fronts
	workspace string

	stop    chan struct{}
	working sync.WaitGroup
	got     []atomic.Int64 // how many outcomes each client got

	mu    sync.Mutex
	acked []string       // arguments of these runs
	other map[string]int // what else was answered, and how often
}

// startBusy starts servers, of NATS in processes of their own, and n clients.
func startBusy(t *testing.T, nats *clustertest.Cluster, servers, n int) *busy {
	t.Helper()
	x := &busy{workspace: t.TempDir(), stop: make(chan struct{}), got: make([]atomic.Int64, n), other: map[string]int{}}
	// Scripts run as users of their own.
	if err := os.Chmod(x.workspace, 0o777); err != nil {
		t.Fatal(err)
	}
	x.fronts = startFrontsAt(t, nats, servers, leavesMark(), "--prompt-slot-role", "direct-command",
		"--workspace", x.workspace+":rw", "--release", "observed")
	x.handle = x.load(x.caller)
	probe, _ := x.run(x.caller, "probe", "")
	needSandboxOf(t, probe)
	for i := range n {
		c := *x.caller
		handle := x.load(&c)
		x.working.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-x.stop:
					return
				default:
					if x.once(&c, handle, fmt.Sprintf("client%d-%d", i, n)) {
						x.got[i].Add(1)
					}
				}
			}
		})
	}
	return x
}

// once runs the script with an argument that no other run has, and reports whether it got the outcome.
func (x *busy) once(c *caller, handle, argument string) bool {
	response, got, err := c.send(c.t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_skill_script",`+
		`"arguments":{"skill":"demo","path":"scripts/ok.sh","args":[%q],"activation":%q},"_meta":{%s}}}`, argument, handle, modernAble),
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "run_skill_script")
	var result toolResult
	said := ""
	switch {
	case err != nil:
		said = "no answer"
	case response != http.StatusOK:
		said = fmt.Sprint("status ", response)
	case got.Error != nil:
		said = got.Error.Message
	case json.Unmarshal(got.Result, &result) != nil:
		said = "no result"
	case strings.Contains(result.text(), "ran-ok "+argument):
		x.mu.Lock()
		x.acked = append(x.acked, argument)
		x.mu.Unlock()
		return true
	default:
		said = result.code()
		if said == "" {
			said = result.text()
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.other[said]++
	return false
}

// streams are those of the records; the last one has the events.
var streams = []string{"skillsd-state", "skillsd-files", "skillsd-events"}

// happening is what may happen to servers.
type happening struct {
	what string
	do   func()
}

// happen lets everything happen, -chaos times, while clients go on.
func (x *busy) happen(all ...happening) {
	x.t.Helper()
	x.goesOn()
	for range *chaosRounds {
		for _, happening := range all {
			x.t.Log(happening.what)
			begin := time.Now()
			happening.do()
			x.goesOn()
			x.t.Logf("calls go on after %v", time.Since(begin).Round(10*time.Millisecond))
		}
	}
	x.end()
}

// oldest returns the server that runs longest, which has sessions.
func (x *busy) oldest() int {
	return slices.IndexFunc(x.all, func(f *front) bool { return f.gone.Err() == nil })
}

// goesOn waits until every client has got the outcome of a run that began later, and returns how long it took.
func (x *busy) goesOn() time.Duration {
	x.t.Helper()
	begin := time.Now()
	for i := range x.got {
		for before := x.got[i].Load(); x.got[i].Load() < before+2; time.Sleep(5 * time.Millisecond) {
			if time.Since(begin) > patience {
				x.t.Fatal("calls are not answered any more")
			}
		}
	}
	return time.Since(begin)
}

// end wants each run that a client knows of in one record, once, and done once; and no other one done twice.
func (x *busy) end() {
	x.t.Helper()
	close(x.stop)
	x.working.Wait()
	x.session(x.t, "verify", "--all")
	recorded, done := map[string]int{}, map[string]int{}
	var sessions []struct{ ID string }
	if err := json.Unmarshal(x.session(x.t, "list", "--json"), &sessions); err != nil {
		x.t.Fatal(err)
	}
	for _, s := range sessions {
		for line := range strings.Lines(string(x.session(x.t, "show", s.ID, "--json"))) {
			var e struct {
				Kind string
				Row  struct{ Args []string }
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				x.t.Fatal(err)
			}
			if e.Kind == "skill.script_executed" && len(e.Row.Args) > 0 {
				recorded[e.Row.Args[0]]++
			}
		}
	}
	marks, err := os.ReadFile(filepath.Join(x.workspace, "done"))
	if err != nil && !os.IsNotExist(err) {
		x.t.Fatal(err)
	}
	for argument := range strings.Lines(string(marks)) {
		done[strings.TrimSpace(argument)]++
	}
	for _, argument := range x.acked {
		if recorded[argument] != 1 || done[argument] != 1 {
			x.t.Errorf("run %s was answered, recorded %d times and done %d times", argument, recorded[argument], done[argument])
		}
	}
	for argument, n := range done {
		if n > 1 || recorded[argument] > 1 {
			x.t.Errorf("run %s was recorded %d times and done %d times", argument, recorded[argument], n)
		}
	}
	if n := x.other["activation_unknown"]; n > 0 {
		x.t.Errorf("%d handles were unknown", n)
	}
	if len(x.acked) == 0 {
		x.t.Errorf("no run was answered: %v", x.other)
	}
	x.t.Logf("%d runs answered, %d done; besides: %v", len(x.acked), len(done), x.other)
}

// Clients go on, and what they were answered is recorded and was done once, while servers are killed and
// stopped. Everything happens -chaos times; TestClusterDemo has some of it in each run of the tests.
func TestClusterChaos(t *testing.T) {
	needChaos(t)
	t.Parallel()
	x := startBusy(t, clustertest.StartApart(t, 3), 3, 6)
	killServers := func(after ...int) func() {
		return func() {
			leader := x.nats.Whole(streams...)
			for _, n := range after {
				x.nats.Stop((leader + n) % 3)
			}
			if len(after) == 1 {
				x.goesOn()
			}
			for i := range 3 {
				x.nats.Restart(i)
			}
		}
	}
	x.happen(
		happening{"a server that has sessions is killed", func() {
			x.kill(x.oldest())
			x.start(t)
		}},
		happening{"the leader of the records is killed", killServers(0)},
		happening{"a follower is killed", killServers(1)},
		happening{"two of three are killed, and come back", killServers(0, 1)},
		happening{"the leader hangs, and goes on", func() {
			leader := x.nats.Process(x.nats.Whole(streams...))
			leader.Signal(syscall.SIGSTOP)
			x.goesOn()
			leader.Signal(syscall.SIGCONT)
		}},
		happening{"the leader is cut off, and comes back", func() {
			leader := x.nats.Whole(streams...)
			x.nats.Cut(leader)
			x.goesOn()
			x.nats.Heal(leader)
		}},
		happening{"a server hangs, and goes on", func() {
			i := x.oldest()
			x.all[i].cmd.Process.Signal(syscall.SIGSTOP)
			x.all[i].out()
			x.goesOn()
			x.all[i].cmd.Process.Signal(syscall.SIGCONT)
			x.in(i)
		}},
		happening{"a server ends, and another one starts", func() {
			ended := x.all[x.oldest()]
			x.start(t)
			ended.out()
			ended.cmd.Process.Signal(os.Interrupt)
			x.goesOn()
		}},
	)
}

// Clients go on while the clocks of the servers of NATS are an hour and two apart, whoever of them leads. A server
// whose clock is an hour from the leader's does not start.
func TestClusterClocks(t *testing.T) {
	if !*clusterClocks {
		t.Skip("its programs are built with a clock that can be set: make chaos runs it")
	}
	x := startBusy(t, clustertest.StartApart(t, 3), 3, 6)
	shifts := []time.Duration{0, time.Hour, -time.Hour}
	for i, by := range shifts {
		x.nats.Whole(streams...)
		x.nats.Stop(i)
		x.nats.Shift(i, by)
		x.nats.Restart(i)
	}
	led := map[int]bool{}
	for range 2 * len(shifts) {
		leader := x.nats.Whole(streams...)
		led[leader] = true
		x.nats.Stop(leader)
		x.t.Logf("calls go on %v after the leader, with a clock of %+v, was killed", x.goesOn(), shifts[leader])
		x.nats.Restart(leader)
	}
	t.Logf("who led the records: %v", led)
	leader := x.nats.Whole("skillsd-events", "skillsd-files", "skillsd-state")
	for _, by := range shifts {
		in := []string{"env", fmt.Sprintf("CLOCK_SHIFT=%.0f", by.Seconds())}
		if by == shifts[leader] {
			x.add(serveIn(t, in, append(slices.Clone(x.serves), "--node", "shifted")...))
			continue
		}
		serve := slices.Concat(in[1:], []string{binary, "serve", "--state", t.TempDir(), "--http", "127.0.0.1:0"}, x.serves)
		out, err := exec.Command("env", serve...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "the clocks of this machine and of its NATS server differ by") {
			t.Errorf("a server with a clock of %+v: %v\n%s", by, err, out)
		}
	}
	x.goesOn()
	x.end()
}

// A handle is known at every server as soon as its client has it.
func TestClusterHandles(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	f := startFronts(t, 3)
	const workers = 8
	var next atomic.Int64
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for i := int(next.Add(1)); i <= *clusterCalls; i = int(next.Add(1)) {
				handle := f.load(f.at(i%3, "alice-token"))
				result, _ := f.call(f.at((i+1)%3, "alice-token"), "read_skill_resource",
					fmt.Sprintf(`{"skill":"demo","path":"references/notes.md","activation":%q}`, handle), "")
				if !strings.Contains(result.text(), "Notes:") {
					t.Errorf("call %d at another server: %s", i, result.text())
				}
			}
		})
	}
	working.Wait()
}

// TestClusterGrowth measures what sessions and runs take in each server of NATS, for the figures in
// cmd/skillsd/topics/cluster.md.
func TestClusterGrowth(t *testing.T) {
	if *clusterGrowth == 0 {
		t.Skip("it measures, and is run by hand with -cluster-growth N")
	}
	nats := clustertest.StartApart(t, 3)
	f := startFrontsAt(t, nats, 2, demoSkill(), "--prompt-slot-role", "direct-command")
	const workers, runs = 16, 10
	conn := nats.Connect(t)
	var before [4]jetstream.StreamStatus
	grown := func(what string, n int, took time.Duration) {
		t.Helper()
		status, err := jetstream.StatusOf(t.Context(), conn, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.1f/s", what, float64(n)/took.Seconds())
		for i, s := range status.Streams {
			t.Logf("  %s: %.1f messages, %.0f bytes each", s.Name, float64(s.Messages-before[i].Messages)/float64(n),
				float64(s.Bytes-before[i].Bytes)/float64(n))
			before[i] = s
		}
	}
	handles := make([]string, *clusterGrowth)
	all := func(n int, do func(i int)) time.Duration {
		begin := time.Now()
		var next atomic.Int64
		var working sync.WaitGroup
		for range workers {
			working.Go(func() {
				for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
					do(i)
				}
			})
		}
		working.Wait()
		return time.Since(begin)
	}
	f.load(f.caller)
	grown("first session", 1, time.Second)
	grown("loads, each of a session", len(handles), all(len(handles), func(i int) { handles[i] = f.load(f.caller) }))
	grown("runs", runs*len(handles), all(runs*len(handles), func(i int) {
		result, _ := f.call(f.caller, "run_skill_script", fmt.Sprintf(`{"skill":"demo","path":"scripts/ok.sh","args":["%d"],"activation":%q}`, i, handles[i%len(handles)]), "")
		needRun(t, fmt.Sprint(i), result)
	}))
	begin := time.Now()
	f.session(t, "list", "--json")
	t.Logf("session list: %v", time.Since(begin).Round(time.Millisecond))
}

// Without --cluster nothing of it runs: no goroutine of a server, which prints them all when it is asked to quit.
func TestClusterIdle(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	f := startServers(t, clustertest.Start(t, 1), 1, "--insecure-no-auth")
	alone := serveIn(t, nil)
	of := regexp.MustCompile(`(?m)^(github\.com/nats-io/|\S*/(provenance/jetstream|serve/cluster|sandbox/remote)\.)`)
	for _, tt := range []struct {
		p     *process
		wants bool
	}{{f.all[0].process, true}, {alone.process, false}} {
		tt.p.cmd.Process.Signal(syscall.SIGQUIT)
		tt.p.cmd.Wait()
		dump := tt.p.stderr.String()
		if !strings.Contains(dump, "goroutine ") || of.MatchString(dump) != tt.wants {
			t.Errorf("goroutines of a cluster are %v, want %v:\n%s", !tt.wants, tt.wants, dump)
		}
	}
}
