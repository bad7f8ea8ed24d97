package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skillsd/skillsd/e2e/nightly"
	"github.com/skillsd/skillsd/provenance/jetstream"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
)

// fronts are servers of one cluster behind a proxy that sends each request to the next.
type fronts struct {
	*caller // reaches the proxy
	nats    *clustertest.Cluster
	flags   []string // that name the cluster
	serves  []string // flags of each server
	handle  string   // sent with each run

	mu   sync.Mutex
	all  []*front
	next int
}

// front is one server.
type front struct {
	*site
	host string             // in a network of namespaces
	out  context.CancelFunc // of the proxy, which gives up requests to it
	gone context.Context    // done when it is out
}

// startFronts starts n servers that serve the demo skill, whose script ok.sh may run.
func startFronts(t *testing.T, n int, flags ...string) *fronts {
	t.Helper()
	return startFrontsAt(t, clustertest.Start(t, 3), n, demoSkill(), flags...)
}

// startFrontsAt starts n servers that serve a skill demo, whose script ok.sh may run.
func startFrontsAt(t *testing.T, nats *clustertest.Cluster, n int, skill map[string]string, flags ...string) *fronts {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config.yaml")
	flags = append(flags, "--config", config, "--skills-root", "builtin="+tree(t, skill), "--auth-token-file", tokenFile(t, "alice", "bob"))
	pinned(t, config, "", flags, "demo:scripts/ok.sh")
	return startServers(t, nats, n, flags...)
}

// pinned makes a configuration that has a text and lets scripts run with the digests that they have; roots are
// among flags.
func pinned(t *testing.T, config, text string, flags []string, scripts ...string) {
	t.Helper()
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"allow", "--yes", "--offer-tool", "--config", config, "--state", t.TempDir()}
	if i := slices.Index(flags, "--skills-root"); i >= 0 {
		args = append(args, flags[i:i+2]...)
	}
	for _, script := range scripts {
		skillsd(t, 0, append(args, script)...)
	}
}

// startServers starts n servers with flags.
func startServers(t *testing.T, nats *clustertest.Cluster, n int, flags ...string) *fronts {
	t.Helper()
	key := written(t, "key", strings.Repeat("0123456789abcdef", 4))
	f := &fronts{nats: nats}
	for _, server := range nats.URLs() {
		f.flags = append(f.flags, "--cluster", server)
	}
	if len(nats.URLs()) == 1 {
		f.flags = append(f.flags, "--cluster-replicas", "1")
	}
	if nats.CA != "" {
		f.flags = append(f.flags, "--cluster-ca", nats.CA)
	}
	f.serves = append(append(flags, f.flags...), "--cluster-key", key)
	for range n {
		f.start(t)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		to, gone := f.choose()
		ctx, cancel := context.WithCancel(r.Out.Context())
		context.AfterFunc(gone, cancel)
		r.Out = r.Out.WithContext(ctx)
		// An answer that is faster than the proxy's last look at the body would be cut off.
		if body, err := io.ReadAll(r.In.Body); err == nil {
			r.Out.Body = io.NopCloser(bytes.NewReader(body))
		}
		r.SetURL(&url.URL{Scheme: "http", Host: to.addr()})
	}, ErrorLog: log.New(io.Discard, "", 0)})
	t.Cleanup(proxy.Close)
	f.caller = f.at(0, "alice-token")
	f.caller.site.url = proxy.URL + "/mcp"
	return f
}

// clusterSuites is the test in which serveHTTP starts two servers of a cluster.
const clusterSuites = "TestClusterSuites"

var allowLine = regexp.MustCompile(`(?m)^allow(_tools)?: \[.*\]$`)

// serveTwo is serveHTTP with two servers behind a proxy. They take digests for what the arguments or their
// configuration allow.
func serveTwo(t *testing.T, args ...string) *site {
	t.Helper()
	config, text, rest, scripts := filepath.Join(t.TempDir(), "config.yaml"), "", []string{"--config"}, []string{}
	rest = append(rest, config)
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "--config":
			data, err := os.ReadFile(args[i+1])
			if err != nil {
				t.Fatal(err)
			}
			text = string(data)
			i++
		case "--allow-skill-script":
			scripts = append(scripts, args[i+1])
			i++
		case "--allow-tool":
			i++
		default:
			rest = append(rest, args[i])
		}
	}
	for _, line := range allowLine.FindAllString(text, -1) {
		for _, quoted := range regexp.MustCompile(`"[^"]*"`).FindAllString(line, -1) {
			scripts = append(scripts, strings.Trim(quoted, `"`))
		}
	}
	pinned(t, config, allowLine.ReplaceAllString(text, ""), rest, scripts...)
	return startServers(t, clustertest.Start(t, 1), 2, rest...).caller.site
}

var chaosRounds = flag.Int("chaos", 0, "rounds of all that happens to servers of a cluster; 0 leaves them out, and the suites of others")

// needChaos skips a test that takes more than a minute, and that TestClusterDemo has a part of.
func needChaos(t *testing.T) {
	t.Helper()
	if *chaosRounds == 0 {
		t.Skip("it takes minutes: make chaos runs it")
	}
}

// What holds at one server holds at two, whichever is asked next.
func TestClusterSuites(t *testing.T) {
	needChaos(t)
	t.Parallel()
	for name, suite := range map[string]func(*testing.T){
		"approvals": TestApprovalForeign, "client sessions": TestHTTPClientSession,
		"tools of profiles": TestProfileTools, "catalogue of profiles": TestProfileCatalogue,
		"what profiles exclude": TestProfileExcludes, "what profiles activate": TestProfileActivates,
	} {
		t.Run(name, suite)
	}
}

// choose returns the next server that is not out, and until when.
func (f *fronts) choose() (*front, context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		chosen := f.all[f.next%len(f.all)]
		f.next++
		if chosen.gone.Err() == nil {
			return chosen, chosen.gone
		}
	}
}

// in lets the proxy choose a server again.
func (f *fronts) in(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all[i].gone, f.all[i].out = context.WithCancel(context.Background())
}

// kill kills a server, which the proxy leaves out from then on.
func (f *fronts) kill(i int) {
	f.all[i].out()
	f.all[i].cmd.Process.Kill()
	f.all[i].leave()
}

// start starts one more server.
func (f *fronts) start(t *testing.T, flags ...string) {
	t.Helper()
	flags = append(slices.Concat(f.serves, flags), "--node", fmt.Sprint("front", len(f.all)))
	host, in := f.nats.Host()
	if host != "" {
		flags = append(flags, "--http", host+":8080", "--allowed-host", host+":8080", "--node-addr", host+":9470")
	}
	f.add(serveIn(t, in, flags...))
	f.all[len(f.all)-1].host = host
}

// add lets the proxy choose a server.
func (f *fronts) add(s *site) {
	more := &front{site: s}
	more.gone, more.out = context.WithCancel(context.Background())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, more)
}

// at returns a caller of one server.
func (f *fronts) at(i int, token string) *caller {
	own := *f.all[i].site
	return &caller{site: &own, token: token}
}

// call calls a tool and returns the state of the question that is the answer, if it is one.
func (f *fronts) call(c *caller, tool, arguments, more string) (result toolResult, state string) {
	c.t.Helper()
	status, got, err := c.send(c.t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{%s}%s}}`,
		tool, arguments, modernAble, more), "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool)
	if err != nil {
		c.t.Fatal(err)
	}
	var asked struct{ RequestState string }
	if json.Unmarshal(got.Result, &result) != nil || json.Unmarshal(got.Result, &asked) != nil {
		c.t.Fatalf("no result, status %d: %+v", status, got)
	}
	return result, asked.RequestState
}

func (f *fronts) load(c *caller) string {
	c.t.Helper()
	loaded, _ := f.call(c, "load_skill", `{"name":"demo"}`, "")
	return handleIn(c.t, loaded)
}

// run runs the script with an argument.
func (f *fronts) run(c *caller, argument, more string) (toolResult, string) {
	c.t.Helper()
	return f.call(c, "run_skill_script", fmt.Sprintf(`{"skill":"demo","path":"scripts/ok.sh","args":[%q],"activation":%q}`, argument, f.handle), more)
}

// needRun wants a run that was let through; without a sandbox it is one that failed for the want of it.
func needRun(t *testing.T, argument string, result toolResult) {
	t.Helper()
	// What is let through is seen without a sandbox, too.
	if !strings.Contains(result.text(), "ran-ok "+argument) && result.code() != "sandbox_unavailable" {
		t.Errorf("not run: %s", result.text())
	}
}

// session returns what a command about sessions prints.
func (f *fronts) session(t testing.TB, args ...string) []byte {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(binary, append(append([]string{"session"}, args...), f.flags...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("session %v: %v\n%s%s", args, err, out, &stderr)
	}
	return out
}

// events returns the record of a session, of the newest one without an id, but for snapshots, verified.
func (f *fronts) events(t *testing.T, id ...string) (kinds []string) {
	t.Helper()
	f.session(t, append([]string{"verify"}, id...)...)
	for line := range strings.Lines(string(f.session(t, append([]string{"show", "--json"}, id...)...))) {
		var e struct{ Kind string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Kind != "registry.snapshot" {
			kinds = append(kinds, e.Kind)
		}
	}
	return kinds
}

func count(list []string, kind string) (n int) {
	for _, k := range list {
		if k == kind {
			n++
		}
	}
	return n
}

// A session that one server opened is served by whichever the balancer chooses, in one record; when its
// server is killed, another one continues it.
func TestClusterSessionMoves(t *testing.T) {
	t.Parallel()
	f := startFronts(t, 3, "--prompt-slot-role", "direct-command")
	f.handle = f.load(f.caller)
	for i := range 6 {
		result, _ := f.run(f.caller, fmt.Sprint("first", i), "")
		needRun(t, fmt.Sprint("first", i), result)
	}
	kinds := f.events(t)
	if n := count(kinds, "session.resumed"); n != 0 {
		t.Errorf("the session was taken %d times from a server that lives: %v", n, kinds)
	}
	if n := count(kinds, "skill.script_requested"); n != 6 {
		t.Errorf("%d requests are recorded: %v", n, kinds)
	}
	// The first server opened it.
	f.kill(0)
	var wg sync.WaitGroup
	for i := range 4 { // two servers want to continue it at once
		wg.Go(func() {
			result, _ := f.run(f.caller, fmt.Sprint("second", i), "")
			needRun(t, fmt.Sprint("second", i), result)
		})
	}
	wg.Wait()
	kinds = f.events(t)
	if n := count(kinds, "session.resumed"); n != 1 {
		t.Errorf("the session was continued %d times: %v", n, kinds)
	}
	if n := count(kinds, "skill.script_requested"); n != 10 {
		t.Errorf("%d requests are recorded: %v", n, kinds)
	}
	// A server that is asked to end hands its sessions over.
	ended := 0
	for i := 1; i < 3; i++ {
		if strings.Contains(f.all[i].stderr.String(), "session taken over") {
			ended = i
		}
	}
	if ended == 0 {
		t.Fatal("no server took the session over")
	}
	f.all[ended].out()
	if err := f.all[ended].cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	result, _ := f.run(f.caller, "third", "")
	needRun(t, "third", result)
	f.all[ended].leave()
	if result, _ := f.run(f.at(3-ended, "bob-token"), "bob", ""); result.code() != "activation_unknown" {
		t.Errorf("the handle counts for another principal: %s", result.text())
	}
}

// What is asked at one server is answered at another, once; three refusals are three, wherever they come
// from.
func TestClusterApprovals(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	f := startFronts(t, 3)
	f.handle = f.load(f.caller)
	_, state := f.run(f.at(0, "alice-token"), "one", "")
	if state == "" {
		t.Fatal("not asked")
	}
	result, _ := f.run(f.at(1, "alice-token"), "one", reply(state, "accept"))
	needRun(t, "one", result)
	for i := range 3 {
		if result, _ := f.run(f.at(i, "alice-token"), "one", reply(state, "accept")); result.code() != "approval_declined" {
			t.Errorf("replayed at %d: %s", i, result.text())
		}
	}
	// Asked before its server is killed, the question is answered at another one.
	_, state = f.run(f.at(0, "alice-token"), "two", "")
	f.kill(0)
	result, _ = f.run(f.at(1, "alice-token"), "two", reply(state, "accept"))
	needRun(t, "two", result)
	if result, _ := f.run(f.at(2, "alice-token"), "two", reply(state, "accept")); result.code() != "approval_declined" {
		t.Errorf("replayed: %s", result.text())
	}
	for i := range 3 {
		// Sessions of their own do not count anew.
		c := f.at(1+i%2, "alice-token")
		f.handle = f.load(c)
		_, state := f.run(c, "three", "")
		if state == "" {
			t.Fatalf("not asked after %d refusals", i)
		}
		time.Sleep(3100 * time.Millisecond) // what comes sooner is an answer of the client
		f.run(f.at(1+(i+1)%2, "alice-token"), "three", reply(state, "decline"))
	}
	for i := 1; i < 3; i++ {
		if result, state := f.run(f.at(i, "alice-token"), "three", ""); state != "" || result.code() != "approval_declined" {
			t.Errorf("asked a fourth time at %d: %s", i, result.text())
		}
	}
}

// What one server refused because its client did not ask is approved in a terminal, and runs at another, once.
func TestClusterApprovedElsewhere(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("terminals are made on Linux")
	}
	f := startFronts(t, 2)
	f.handle = f.load(f.caller)
	_, state := f.run(f.at(0, "alice-token"), "one", "")
	refused, _ := f.run(f.at(0, "alice-token"), "one", reply(state, "cancel"))
	var object struct{ ApprovalCode, Remedy string }
	if err := json.Unmarshal(refused.object(), &object); err != nil || object.ApprovalCode == "" ||
		!strings.Contains(object.Remedy, "have the call "+object.ApprovalCode+" approved within ten minutes") {
		t.Fatalf("no code: %v, %s", err, refused.text())
	}
	cmd := exec.Command(binary, append([]string{"approve", object.ApprovalCode}, f.flags...)...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CLAUDECODE") || strings.HasPrefix(v, "AI_AGENT") })
	text, err := onTerminal(cmd, 80, typing{Answer: "y\n"})
	if err != nil || !strings.Contains(string(text), "skillsd: approved: it runs when the call is made again") {
		t.Fatalf("%v: %s", err, text)
	}
	if result, state := f.run(f.at(1, "alice-token"), "two", ""); state == "" {
		t.Errorf("another call was not asked about: %s", result.text())
	}
	result, _ := f.run(f.at(1, "alice-token"), "one", "")
	needRun(t, "one", result)
	if result, state := f.run(f.at(0, "alice-token"), "one", ""); state == "" {
		t.Errorf("approved twice: %s", result.text())
	}
}

// Servers decide alike: one with another policy is refused, and says what differs, unless it has a higher
// number. Those of the lower one then keep the sessions that they have, and pass on what is new.
func TestClusterGenerations(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	f := startFronts(t, 1)
	old := f.at(0, "alice-token")
	f.handle = f.load(old)
	refused := func(want string, flags ...string) {
		t.Helper()
		args := slices.Concat([]string{"serve", "--state", t.TempDir(), "--http", "127.0.0.1:0"}, f.serves, flags)
		out, err := exec.Command(binary, args...).CombinedOutput()
		if code, _ := errors.AsType[*exec.ExitError](err); code == nil || code.ExitCode() != 1 || !strings.Contains(string(out), want) {
			t.Errorf("with %v: %v, want %q:\n%s", flags, err, want, out)
		}
	}
	refused("(front0) differ in their rules: --release", "--release", "opaque")
	refused("skill org more/demo", "--skills-root", "org:more="+tree(t, demoSkill()))
	f.start(t, "--cluster-generation", "2", "--release", "opaque")
	refused("start it with the new configuration and --cluster-generation 2")
	fresh := f.at(1, "alice-token")
	isReady := func() bool {
		response, err := old.client.Get(strings.TrimSuffix(old.url, "/mcp") + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	}
	for end := time.Now().Add(soon); isReady(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the old server takes new sessions")
		}
	}
	needTurn := func(node string) {
		t.Helper()
		var turn struct{ Turn string }
		lines := strings.Split(strings.TrimSpace(string(f.session(t, "show", "--json"))), "\n")
		if json.Unmarshal([]byte(lines[len(lines)-1]), &turn) != nil || !strings.HasPrefix(turn.Turn, node) {
			t.Errorf("the last event is of turn %q, want one of %s", turn.Turn, node)
		}
	}
	// Its session is its own, from wherever a call comes.
	if _, state := f.run(fresh, "one", ""); state == "" {
		t.Error("not asked")
	}
	needTurn("front0-")
	first := f.handle
	f.handle = f.load(old)
	needTurn("front1-")
	f.handle = first
	f.kill(0)
	if _, state := f.run(fresh, "two", ""); state == "" {
		t.Error("not asked")
	}
	// Each of its events is of a turn, whose policy the first one names.
	var sessions []struct{ ID string }
	if json.Unmarshal(f.session(t, "list", "--json"), &sessions) != nil || len(sessions) != 2 {
		t.Fatal("not two sessions")
	}
	if kinds := f.events(t, sessions[1].ID); count(kinds, "session.resumed") != 1 {
		t.Errorf("the session was not continued once: %v", kinds)
	}
}

// The doctor says what of the cluster it sees, and what it does not.
func TestClusterDoctor(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	f := startFronts(t, 1)
	f.load(f.caller)
	if _, err := jetstream.OpenLibrary(t.Context(), f.nats.Connect(t), nil, true); err != nil { // as publish does
		t.Fatal(err)
	}
	// Servers of NATS elect a leader, and catch up, when they do.
	sees := func(code int, want ...string) {
		t.Helper()
		args := slices.Concat([]string{"doctor", "--verbose", "--state", t.TempDir(), "--http", "127.0.0.1:0"}, f.serves)
		var out []byte
		for end := time.Now().Add(patience); time.Now().Before(end); {
			cmd := exec.Command(binary, args...)
			out, _ = cmd.Output() // the code says it
			lacks := func(want string) bool { return !strings.Contains(string(out), want) }
			if cmd.ProcessState.ExitCode() == code && !slices.ContainsFunc(want, lacks) {
				return
			}
		}
		t.Errorf("doctor does not exit with %d and say %q:\n%s", code, want, out)
	}
	sees(0, "skillsd-events: 3 of 3 replicas current", "skillsd-skills: 3 of 3 replicas current", "servers of generation 1 run (front0)", "1 at front0", "not seen from here")
	f.serves = append(f.serves, "--release", "opaque")
	sees(3, "differ in their rules: --release")
	f.serves = f.serves[:len(f.serves)-2]
	f.kill(0)
	f.nats.Stop(2)
	sees(0, "2 of 3 replicas current", "1 of servers that are gone")
	f.nats.Stop(1)
	var silent sync.WaitGroup
	for _, args := range [][]string{{"list"}, {"show"}, {"verify"}, {"verify", "--all"}, {"replay"}} {
		silent.Go(func() {
			code, text := 0, ""
			for code == 0 { // a leader that has lost the others answers for some seconds
				cmd := exec.Command(binary, append(append([]string{"session"}, args...), f.flags...)...)
				out, _ := cmd.CombinedOutput() // the code says it
				code, text = cmd.ProcessState.ExitCode(), string(out)
			}
			if code != 1 || !strings.Contains(text, "the cluster does not answer") ||
				!strings.Contains(text, "hint: start its NATS servers") {
				t.Errorf("session %v without most servers of NATS exited %d:\n%s", args, code, text)
			}
		})
	}
	silent.Wait()
	sees(3, "fail cluster: ", "the cluster does not answer", "hint: ")
}

// A session goes from the cluster into a directory and back, whole and once.
func TestClusterArchive(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	f := startFronts(t, 1)
	f.load(f.caller)
	dir := t.TempDir()
	code := func(args ...string) (string, int) {
		t.Helper()
		cmd := exec.Command(binary, append([]string{"session"}, args...)...)
		out, err := cmd.Output()
		if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	var list []struct{ ID, State string }
	sessions := func(want ...string) {
		t.Helper()
		list = nil
		if json.Unmarshal(f.session(t, "list", "--json"), &list) != nil || len(list) != len(want) || len(want) > 0 && list[0].State != want[0] {
			t.Fatalf("the cluster has %v, want %v", list, want)
		}
	}
	sessions("open")
	id := list[0].ID
	move := func(want int, text string, args ...string) {
		t.Helper()
		if out, got := code(append(args, f.flags...)...); got != want || !strings.Contains(out, text) {
			t.Errorf("%v: exit code %d, want %d, %q:\n%s", args, got, want, text, out)
		}
	}
	move(3, "it has not ended", "archive", dir, id)
	if err := f.all[0].cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	f.all[0].leave()
	sessions("ended")
	record := f.session(t, "show", "--json")
	move(0, "archived "+id, "archive", dir, "--all", "--remove")
	sessions()
	if out, got := code("verify", "--artifact-root", dir); got != 0 {
		t.Errorf("verify: %d\n%s", got, out)
	}
	move(0, "imported "+id, "import", dir, id)
	move(3, "a session of this id is there", "import", dir, id)
	move(0, id+" is there", "import", dir, "--all")
	f.events(t)
	if !bytes.Equal(record, f.session(t, "show", "--json")) {
		t.Error("the record is another one")
	}
}

// TestClusterPage wants a session of one server on the page of another, and both servers with what each has.
func TestClusterPage(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	f := startFronts(t, 2, "--page", "127.0.0.1:0")
	f.load(f.at(0, "alice-token"))
	viewer := openPage(f.all[1].site)
	var list struct{ Sessions []struct{ Principal string } }
	for deadline := time.Now().Add(patience); len(list.Sessions) == 0 && time.Now().Before(deadline); {
		viewer.read("/sessions.json", &list)
	}
	if s := list.Sessions; len(s) != 1 || s[0].Principal != "alice" {
		t.Errorf("sessions are %+v, want that of alice", s)
	}
	var health struct {
		Cluster struct {
			Servers []struct{ Leader, Current, Offline bool }
			Nodes   []struct {
				Name, Address string
				Sessions      int
				Own           bool
			}
		}
	}
	viewer.read("/health.json", &health)
	leaders := 0
	for _, s := range health.Cluster.Servers {
		if s.Leader {
			leaders++
		}
		if s.Offline {
			t.Errorf("servers are %+v, want none offline", health.Cluster.Servers)
		}
	}
	if len(health.Cluster.Servers) != 3 || leaders != 1 {
		t.Errorf("servers are %+v, want three with one leader", health.Cluster.Servers)
	}
	if n := health.Cluster.Nodes; len(n) != 2 || !strings.HasPrefix(n[0].Name, "front0-") || n[0].Sessions != 1 || n[0].Own ||
		n[0].Address == "" || !n[1].Own || n[1].Sessions != 0 {
		t.Errorf("nodes are %+v, want front0 with a session, and front1", n)
	}
}
