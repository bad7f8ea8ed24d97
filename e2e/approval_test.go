package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// able is the capability of a client that can put a form before its user.
const able = `"elicitation":{}`

// modernAble is the _meta of a request on 2026-07-28 by such a client.
var modernAble = strings.Replace(modernMeta, `clientCapabilities":{}`, `clientCapabilities":{`+able+`}`, 1)

// asker drives a server whose scripts need an approval.
type asker struct{ *process }

func newAsker(t *testing.T, flags ...string) *asker {
	t.Helper()
	return &asker{serve(t, append([]string{"--skills-root", "builtin=" + tree(t, demoSkill()),
		"--allow-tool", "run_skill_script", "--allow-skill-script", "demo:scripts/ok.sh"}, flags...)...)}
}

// begin introduces the client on 2025-11-25 and loads the skill.
func (a *asker) begin(capabilities string) {
	a.t.Helper()
	a.initialize(capabilities)
	a.tool("load_skill", map[string]any{"name": "demo"})
}

// run calls the script and answers what the server asks with reply, a JSON-RPC result or error; it
// returns the questions too.
func (a *asker) run(args, reply string) (result toolResult, questions []string) {
	a.t.Helper()
	a.reply = func(request answer) string {
		if request.Method != "elicitation/create" {
			a.t.Errorf("asked with %s", request.Method)
		}
		questions = append(questions, string(request.Params))
		return reply
	}
	result = a.tool("run_skill_script", json.RawMessage(`{"skill":"demo","path":"scripts/ok.sh","args":`+args+`}`))
	return result, questions
}

// code is the code of a denial or a plain error.
func (r toolResult) code() string {
	var object struct{ Code string }
	json.Unmarshal(r.object(), &object)
	return object.Code
}

// needRun skips when an approved script could not run here.
func (a *asker) needRun(r toolResult) {
	a.t.Helper()
	if r.code() == "sandbox_unavailable" {
		a.t.Skipf("missing capability: a sandbox backend that can isolate: %s", r.text())
	}
}

// unasked is the code for an answer that comes sooner than a person can give it; a busy machine may be slower.
const unasked = "approval_required"

// undecided is the code for an answer that is nobody's decision, whenever it comes.
const undecided = "approval_required"

// A user of an older revision is asked while the call waits. Only an acceptance runs the script.
func TestApprovalLegacy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, capabilities, reply string
		asks                      int
		code                      string // empty: it runs
	}{
		{"accepted without a decision", able, `"result":{"action":"accept","content":{}}`, 1, undecided},
		{"accepted without content", able, `"result":{"action":"accept"}`, 1, undecided},
		{"accepted, once", able, `"result":{"action":"accept","content":{"decision":"Run it once"}}`, 1, ""},
		{"accepted, but not to run", able, `"result":{"action":"accept","content":{"decision":"Do not run it"}}`, 1, "approval_declined"},
		{"accepted, with what the form has not", able, `"result":{"action":"accept","content":{"decision":true}}`, 1, undecided},
		{"declined", able, `"result":{"action":"decline"}`, 1, unasked},
		{"cancelled", able, `"result":{"action":"cancel"}`, 1, undecided},
		{"an unknown action", able, `"result":{"action":"Accept"}`, 1, undecided},
		{"no action", able, `"result":{"content":{"approved":true}}`, 1, undecided},
		{"an error", able, `"error":{"code":-32603,"message":"no terminal"}`, 1, undecided},
		{"cannot be asked", "", "", 0, "direct_command_required"},
		{"can open a URL alone", `"elicitation":{"url":{}}`, "", 0, "direct_command_required"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAsker(t)
			a.begin(tt.capabilities)
			result, questions := a.run(`["one"]`, tt.reply)
			a.needRun(result)
			if got := result.code(); len(questions) != tt.asks || got != tt.code && (tt.name != "declined" || got != "approval_declined") {
				t.Fatalf("asked %d times, answered %s", len(questions), result.text())
			}
			if named := strings.Contains(result.text(), "the client answered with an error"); named != (tt.name == "an error") {
				t.Errorf("an error of the client is named: %v: %s", named, result.text())
			}
			if tt.code == "" && !strings.Contains(result.text(), "ran-ok one") {
				t.Errorf("run = %s", result.text())
			}
			if tt.asks > 0 {
				for _, want := range []string{`Run scripts/ok.sh of the skill demo (builtin) in a sandbox?\n`, `it can use: only the files of its skill; no project, no network\nasked because you have not yet let this script run without asking\narguments: \"one\"`} {
					if !strings.Contains(questions[0], want) {
						t.Errorf("the question lacks %q: %s", want, questions[0])
					}
				}
			}
			a.verified(t)
		})
	}
}

// verified ends the server and checks its record.
func (a *asker) verified(t *testing.T) {
	t.Helper()
	a.end()
	skillsd(t, 0, "session", "verify", "latest", "--state", a.state)
}

// What a user allows for the rest of the session is the script as it is, with any arguments, and no other.
func TestApprovalRemembered(t *testing.T) {
	t.Parallel()
	a := newAsker(t, "--allow-skill-script", "demo:scripts/fail.sh")
	a.begin(able)
	const remember = `"result":{"action":"accept","content":{"decision":"Run it, and this script for the whole session"}}`
	result, questions := a.run(`["one"]`, remember)
	a.needRun(result)
	if len(questions) != 1 || result.IsError {
		t.Fatalf("first run: asked %d times, %s", len(questions), result.text())
	}
	result, questions = a.run(`["two"]`, "")
	if len(questions) != 0 || !strings.Contains(result.text(), "ran-ok two") {
		t.Errorf("second run: asked %d times, %s", len(questions), result.text())
	}
	a.send(`{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/fail.sh"}}}`)
	if line := a.receive(); !strings.Contains(line, "elicitation/create") {
		t.Errorf("another script of the skill was not asked about: %s", line)
	}
}

// modern calls the script on 2026-07-28; more is added to the params.
func (a *asker) modern(args, more string) (result toolResult, kind, state string) {
	a.t.Helper()
	got := a.ask("tools/call", fmt.Sprintf(`{"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/ok.sh","args":%s},"_meta":{%s}%s}`, args, modernAble, more))
	var asked struct {
		ResultType    string
		RequestState  string
		InputRequests map[string]struct{ Method string }
	}
	if err := json.Unmarshal(got.Result, &asked); err != nil {
		a.t.Fatalf("%v: %+v", err, got)
	}
	if err := json.Unmarshal(got.Result, &result); err != nil {
		a.t.Fatal(err)
	}
	if asked.ResultType == "input_required" && asked.InputRequests["approval"].Method != "elicitation/create" {
		a.t.Errorf("input_required without a form: %s", got.Result)
	}
	return result, asked.ResultType, asked.RequestState
}

// reply is what a client adds to the call it repeats with an answer.
func reply(state, action string) string {
	return fmt.Sprintf(`,"requestState":%q,"inputResponses":{"approval":{"action":%q,"content":{"decision":"Run it once"}}}`, state, action)
}

// On 2026-07-28 the answer comes with the call, repeated. It counts once, for exactly that call.
func TestApprovalModern(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	a.ask("tools/call", `{"name":"load_skill","arguments":{"name":"demo"},"_meta":{`+modernAble+`}}`)
	ask := func(args string) string {
		t.Helper()
		result, kind, state := a.modern(args, "")
		if kind != "input_required" || state == "" {
			t.Fatalf("not asked: %s %s", kind, result.text())
		}
		return state
	}
	denied := func(name, args, more string) {
		t.Helper()
		if result, _, _ := a.modern(args, more); result.code() != "approval_declined" && (name != "declined" || result.code() != unasked) {
			t.Errorf("%s: %s", name, result.text())
		}
	}
	state := ask(`["one"]`)
	result, _, _ := a.modern(`["one"]`, reply(state, "accept"))
	a.needRun(result)
	if !strings.Contains(result.text(), "ran-ok one") {
		t.Errorf("accepted: %s", result.text())
	}
	denied("replayed", `["one"]`, reply(state, "accept"))
	denied("for other arguments", `["two"]`, reply(ask(`["one"]`), "accept"))
	denied("for more time", `["one"],"timeoutMs":1000`, reply(ask(`["one"]`), "accept"))
	denied("with input", `["one"],"stdin":""`, reply(ask(`["one"]`), "accept"))
	state = ask(`["one"]`)
	for name, more := range map[string]string{
		"tampered":    reply(state+"AA", "accept"),
		"made up":     reply("eyJhcHByb3ZlZCI6dHJ1ZX0", "accept"),
		"not a reply": strings.Replace(reply(state, "accept"), `{"action":"accept","content":{"decision":"Run it once"}}`, "1", 1),
	} {
		got := a.ask("tools/call", fmt.Sprintf(`{"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/ok.sh","args":["one"]},"_meta":{%s}%s}`, modernAble, more))
		if got.Error == nil || got.Error.Code != -32602 {
			t.Errorf("%s: %s %+v", name, got.Result, got.Error)
		}
	}
	denied("without a state", `["one"]`, `,"inputResponses":{"approval":{"action":"accept"}}`)
	if _, kind, _ := a.modern(`["one"]`, strings.Replace(reply(state, "accept"), "approval", "other", 1)); kind != "input_required" {
		t.Errorf("an answer to another question: %s", kind)
	}
	denied("declined", `["one"]`, reply(ask(`["one"]`), "decline"))
	a.verified(t)
	out := skillsd(t, 0, "session", "show", "latest", "--state", a.state)
	if !strings.Contains(out, "approval.requested") || !strings.Contains(out, "approval.answered") {
		t.Errorf("session show: %s", out)
	}
}

// The answer to one session's question counts in no other.
func TestApprovalForeign(t *testing.T) {
	t.Parallel()
	s := serveHTTP(t, "--skills-root", "builtin="+tree(t, demoSkill()), "--allow-tool", "run_skill_script", "--allow-skill-script", "demo:scripts/ok.sh",
		"--auth-token-file", tokenFile(t, "alice", "bob"), "--http-activation", "handle") // or both of alice's are one conversation
	call := func(token, tool, arguments, more string) (toolResult, string) {
		t.Helper()
		c := s.as(token)
		_, got, err := c.send(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{%s}%s}}`, tool, arguments, modernAble, more),
			"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool)
		if err != nil {
			t.Fatal(err)
		}
		var result toolResult
		var asked struct{ RequestState string }
		if err := json.Unmarshal(got.Result, &result); err != nil {
			t.Fatalf("%v: %+v", err, got)
		}
		if err := json.Unmarshal(got.Result, &asked); err != nil {
			t.Fatal(err)
		}
		return result, asked.RequestState
	}
	load := func(token string) string {
		t.Helper()
		loaded, _ := call(token, "load_skill", `{"name":"demo"}`, "")
		return handleIn(t, loaded)
	}
	run := func(token, handle, more string) (toolResult, string) {
		t.Helper()
		return call(token, "run_skill_script", fmt.Sprintf(`{"skill":"demo","path":"scripts/ok.sh","activation":%q}`, handle), more)
	}
	alice, other, bob := load("alice-token"), load("alice-token"), load("bob-token")
	for name, by := range map[string][2]string{"another session": {"alice-token", other}, "another principal": {"bob-token", bob}} {
		_, state := run("alice-token", alice, "")
		if state == "" {
			t.Fatal("not asked")
		}
		if result, _ := run(by[0], by[1], reply(state, "accept")); result.code() != "approval_declined" {
			t.Errorf("%s: %s", name, result.text())
		}
	}
}
