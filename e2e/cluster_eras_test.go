package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillsd/skillsd/e2e/nightly"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
)

// elder is a client of 2025-11-25 that sends each message to the server that a test wants.
type elder struct {
	*fronts
	token, session string
	id             int // of the last call
}

// begin opens a session at a server, of a client that can be asked.
func (f *fronts) begin(t *testing.T, i int, token string) *elder {
	t.Helper()
	e := &elder{fronts: f, token: token}
	response := e.send(t, i, "POST", introduction(able))
	e.session = response.Header.Get("Mcp-Session-Id")
	if response.StatusCode != http.StatusOK || e.session == "" {
		t.Fatalf("initialize: %s, session %q", response.Status, e.session)
	}
	return e
}

func (e *elder) send(t *testing.T, i int, verb, body string) *http.Response {
	t.Helper()
	c := e.at(i, e.token)
	c.session = e.session
	response, err := c.do(t.Context(), verb, body)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

// status sends what has no answer but a status.
func (e *elder) status(t *testing.T, i int, verb, body string) int {
	t.Helper()
	response := e.send(t, i, verb, body)
	response.Body.Close()
	return response.StatusCode
}

const listCall = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`

// under is a call that is under way.
type under struct {
	t       *testing.T
	id      int
	scanner *bufio.Scanner
}

// run calls the script at a server.
func (e *elder) run(t *testing.T, i int, argument, more string) *under {
	t.Helper()
	e.id++
	response := e.send(t, i, "POST", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/ok.sh","args":[%q]%s}}}`, e.id, argument, more))
	return &under{t, e.id, bufio.NewScanner(response.Body)}
}

// next returns the next message; ok is false at the end.
func (u *under) next() (a answer, ok bool) {
	u.t.Helper()
	for u.scanner.Scan() {
		line := strings.TrimPrefix(u.scanner.Text(), "data: ")
		if !strings.HasPrefix(line, "{") {
			continue
		}
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			u.t.Fatal(err)
		}
		return a, true
	}
	return a, false
}

// question returns the id of what the user is asked.
func (u *under) question() string {
	u.t.Helper()
	a, _ := u.next()
	if a.Method != "elicitation/create" {
		u.t.Fatalf("not asked: %+v", a)
	}
	return string(a.ID)
}

// ran wants that the call has run.
func (u *under) ran(argument string) {
	u.t.Helper()
	a, _ := u.next()
	var result toolResult
	if a.Result == nil || json.Unmarshal(a.Result, &result) != nil {
		u.t.Fatalf("no result: %+v", a)
	}
	needRun(u.t, argument, result)
}

// failed wants that the call ends without a result.
func (u *under) failed() {
	u.t.Helper()
	if a, ok := u.next(); ok && a.Result != nil {
		u.t.Errorf("answered: %s", a.Result)
	}
}

func accepted(id string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"decision":"Run it once"}}}`, id)
}

// load loads the skill at a server.
func (e *elder) load(t *testing.T, i int) (handle string) {
	t.Helper()
	c := e.at(i, e.token)
	c.session = e.session
	return handleIn(t, c.tool("load_skill", map[string]any{"name": "demo"}))
}

// states returns the states of the sessions by their ids.
func (f *fronts) states(t *testing.T) map[string]string {
	t.Helper()
	var sessions []struct{ ID, State string }
	if err := json.Unmarshal(f.session(t, "list", "--json"), &sessions); err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, s := range sessions {
		states[s.ID] = s.State
	}
	return states
}

// needKinds wants so many events of each kind in the newest session.
func (f *fronts) needKinds(t *testing.T, want map[string]int) {
	t.Helper()
	kinds := f.events(t)
	for kind, n := range want {
		if got := count(kinds, kind); got != n {
			t.Errorf("%d of %s, want %d: %v", got, kind, n, kinds)
		}
	}
}

// A session of the older revisions, too, is at any server: begun at one, used at another, asked through a third;
// it survives servers that are killed or end, and is nobody else's.
func TestClusterEras(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	f := startFrontsAt(t, clustertest.Start(t, 1), 3, demoSkill())
	for name, want := range map[string]int{"e2e": http.StatusOK, "claude-code": http.StatusBadRequest} {
		// Whose calls of 2026-07-28 are not told apart gets a session, as from one server.
		if status, got := f.at(0, "alice-token").discover(name); status != want || strings.Contains(got, "/tasks") != (status == http.StatusOK) {
			t.Errorf("server/discover of %s = %d %s", name, status, got)
		}
	}
	e := f.begin(t, 0, "alice-token")
	e.load(t, 1)

	// The call at one server is done by another, and its answer comes to a third.
	u := e.run(t, 0, "one", "")
	id := u.question()
	thief := &elder{fronts: f, token: "bob-token", session: e.session}
	altered := &elder{fronts: f, token: "alice-token", session: e.session[:len(e.session)-1] + "!"}
	for i := range 3 {
		for _, other := range []*elder{thief, altered} {
			for _, message := range []string{listCall, accepted(id), cancelCall(fmt.Sprint(e.id))} {
				if status := other.status(t, i, "POST", message); status != http.StatusNotFound {
					t.Errorf("%s of a stranger at %d = %d", message, i, status)
				}
			}
			for _, verb := range []string{"GET", "DELETE"} {
				if status := other.status(t, i, verb, ""); status != http.StatusNotFound {
					t.Errorf("%s of a stranger at %d = %d", verb, i, status)
				}
			}
		}
	}
	if status := e.status(t, 2, "POST", accepted(id)); status != http.StatusAccepted {
		t.Errorf("answer = %d", status)
	}
	u.ran("one")
	// What was answered is answered once.
	if status := e.status(t, 0, "POST", accepted(id)); status != http.StatusAccepted {
		t.Errorf("answer again = %d", status)
	}
	f.needKinds(t, map[string]int{"skill.script_executed": 1, "approval.requested": 1, "approval.answered": 1, "session.started": 1, "session.resumed": 0})

	// A cancellation finds its call.
	u = e.run(t, 2, "two", "")
	u.question()
	if status := e.status(t, 0, "POST", cancelCall(fmt.Sprint(u.id))); status != http.StatusAccepted {
		t.Errorf("cancellation = %d", status)
	}
	for a, ok := u.next(); ok; a, ok = u.next() {
		if a.Result != nil || a.Error != nil {
			t.Errorf("a cancelled call is answered: %+v", a)
		}
	}
	if err := u.scanner.Err(); err != nil {
		t.Errorf("the stream of a cancelled call: %v", err)
	}
	f.needKinds(t, map[string]int{"skill.script_executed": 1, "approval.requested": 2, "approval.answered": 2, "policy.denied": 1})
	// Streams of changes are at any server.
	if response := e.send(t, 2, "GET", ""); response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("GET = %s", response.Status)
	}

	// With the server that has the session a call is gone, and what the user answers to it counts no more.
	u = e.run(t, 0, "three", "")
	id = u.question()
	f.kill(1)
	u.failed()
	if status := e.status(t, 2, "POST", accepted(id)); status != http.StatusAccepted {
		t.Errorf("late answer = %d", status)
	}
	u = e.run(t, 0, "four", "")
	e.status(t, 2, "POST", accepted(u.question()))
	u.ran("four")
	f.needKinds(t, map[string]int{"skill.script_executed": 2, "approval.requested": 4, "approval.answered": 3, "session.started": 1, "session.resumed": 1})

	// The one that took it hands it over when it ends.
	last := 0
	if strings.Contains(f.all[0].stderr.String(), "session taken over") {
		last = 2
	}
	if err := f.all[2-last].cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	f.all[2-last].leave()
	u = e.run(t, last, "five", "")
	e.status(t, last, "POST", accepted(u.question()))
	u.ran("five")
	f.needKinds(t, map[string]int{"skill.script_executed": 3, "approval.requested": 5, "approval.answered": 4, "session.started": 1, "session.resumed": 2})

	// Its client ends it where it was taken over, too.
	if status := e.status(t, last, "DELETE", ""); status != http.StatusNoContent {
		t.Errorf("DELETE = %d", status)
	}
	eventually(t, "its end is recorded", func() bool { return slices.Equal(slices.Collect(maps.Values(f.states(t))), []string{"ended"}) })
}

// Another session of the client continues an earlier one by its handle, wherever that is; a session that its
// client ended is over at each server.
func TestClusterErasEnd(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	f := startFrontsAt(t, clustertest.Start(t, 1), 3, demoSkill())
	first := f.begin(t, 0, "alice-token")
	handle := first.load(t, 0)
	var id string
	for id = range f.states(t) {
	}
	second := f.begin(t, 1, "alice-token")
	second.load(t, 1)
	u := second.run(t, 2, "one", fmt.Sprintf(`,"activation":%q`, handle))
	second.status(t, 1, "POST", accepted(u.question()))
	u.ran("one")
	if kinds := f.events(t, id); count(kinds, "approval.answered") != 1 {
		t.Errorf("the session of the handle was not asked: %v", kinds)
	}
	if status := first.status(t, 2, "DELETE", ""); status != http.StatusNoContent {
		t.Errorf("DELETE = %d", status)
	}
	for i := range 3 {
		eventually(t, "the session has ended there", func() bool { return first.status(t, i, "POST", listCall) == http.StatusNotFound })
		if status := second.status(t, i, "POST", listCall); status != http.StatusOK {
			t.Errorf("the other session at %d = %d", i, status)
		}
	}
	eventually(t, "its end is recorded, and no other", func() bool {
		states := f.states(t)
		return len(states) == 2 && states[id] == "ended" && slices.Contains(slices.Collect(maps.Values(states)), "open")
	})

	// While NATS is away, an answer is taken by the server that has asked, and by no other.
	u = second.run(t, 1, "two", "")
	answer := accepted(u.question())
	f.nats.Stop(0)
	for _, c := range []struct{ at, want int }{{2, http.StatusServiceUnavailable}, {1, http.StatusAccepted}} {
		if status := second.status(t, c.at, "POST", answer); status != c.want {
			t.Errorf("answer at %d = %d, want %d", c.at, status, c.want)
		}
	}
}

// The official client, which knows nothing of several servers, works through a proxy that sends each request to
// the next, while they are killed and end.
func TestClusterErasClient(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	f := startFrontsAt(t, clustertest.Start(t, 1), 3, demoSkill())
	var asked atomic.Int32
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(ctx context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked.Add(1)
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "Run it once"}}, nil
		},
	})
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: f.caller.site.url, HTTPClient: &http.Client{Transport: &bearer{"alice-token"}}},
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	checkTools(t, session)
	checkCalls(t, session)
	run := func(n int) {
		t.Helper()
		for i := range n {
			argument := fmt.Sprint("run", i)
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_skill_script",
				Arguments: map[string]any{"skill": "demo", "path": "scripts/ok.sh", "args": []string{argument}}})
			if err != nil {
				t.Fatal(err)
			}
			raw, err := json.Marshal(result)
			var got toolResult
			if err != nil || json.Unmarshal(raw, &got) != nil {
				t.Fatal(err)
			}
			needRun(t, argument, got)
		}
	}
	run(6)
	f.kill(0)
	run(4)
	f.all[1].out()
	if err := f.all[1].cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	run(4)
	if n := asked.Load(); n != 14 {
		t.Errorf("asked %d times, want 14", n)
	}
	f.needKinds(t, map[string]int{"approval.requested": 14, "approval.answered": 14, "session.started": 1})
}

// A task is asked for at any server. When its server is killed, it has failed, and nothing is done again.
func TestClusterTasks(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	skill := demoSkill()
	skill["demo/scripts/ok.sh"] = "#!/bin/bash\necho begun\nsleep $1\necho done\n"
	f := startFrontsAt(t, clustertest.Start(t, 1), 3, skill, "--prompt-slot-role", "direct-command")
	at := func(i int, token string) tasker {
		return func(method, name, params string) answer {
			t.Helper()
			status, a, err := http.StatusTooManyRequests, answer{}, error(nil)
			for err == nil && status == http.StatusTooManyRequests {
				status, a, err = f.at(i, token).send(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params),
					"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method, "Mcp-Name", name)
			}
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
	}
	handle := f.load(f.at(0, "alice-token"))
	run := func(i int, seconds string) string {
		t.Helper()
		made, ran := at(i, "alice-token").tool(t, "run_skill_script", fmt.Sprintf(`{"skill":"demo","path":"scripts/ok.sh","args":[%q],"activation":%q}`, seconds, handle), tasking)
		if strings.Contains(ran.text(), `"sandbox_unavailable"`) {
			skipSandbox(t, ran.text())
		}
		if made.ResultType != "task" {
			t.Fatalf("no task at %d: %+v %s", i, made, ran.text())
		}
		return made.TaskID
	}
	get := func(id string) string { return fmt.Sprintf(`{"taskId":%q,"_meta":{%s}}`, id, tasking) }

	id := run(1, "5")
	for i := range 3 {
		if a := at(i, "bob-token")("tasks/get", id, get(id)); !unknown(a) {
			t.Errorf("a foreign principal sees the task at %d: %s", i, a.Result)
		}
		if a := at(i, "alice-token")("tasks/get", id+"x", get(id+"x")); !unknown(a) {
			t.Errorf("a task that never was, at %d: %s", i, a.Result)
		}
	}
	if done := at(2, "alice-token").until(t, id, has("completed")); done.Result == nil || !strings.Contains(done.Result.text(), "begun\ndone\n") {
		t.Errorf("completed: %+v", done)
	}
	id = run(0, "60")
	at(1, "alice-token").on(t, "tasks/cancel", id, "")
	at(2, "alice-token").until(t, id, has("cancelled"))
	id = run(2, "60")
	f.kill(0)
	for i := 1; i < 3; i++ {
		lost := at(i, "alice-token").until(t, id, has("failed"))
		if lost.Error == nil || lost.Error.Code != -32603 || lost.TTLMs == 0 {
			t.Errorf("the task of a server that is gone, at %d: %+v", i, lost)
		}
		at(i, "alice-token").on(t, "tasks/cancel", id, "")
		if a := at(i, "bob-token")("tasks/get", id, get(id)); !unknown(a) {
			t.Errorf("a foreign principal sees the task at %d: %s", i, a.Result)
		}
	}
}
