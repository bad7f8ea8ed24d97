package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// taskView is the answer that creates or shows a task.
type taskView struct {
	ResultType, TaskID, Status, StatusMessage string
	TTLMs                                     int64
	InputRequests                             map[string]struct{ Method string }
	Result                                    *toolResult
	Error                                     *struct{ Code int }
}

// tasking is the _meta of a request by a client that takes tasks, and answers questions.
var tasking = strings.Replace(modernAble, `clientCapabilities":{`, `clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}},`, 1)

// tasker sends one request of 2026-07-28, with name in the headers of HTTP.
type tasker func(method, name, params string) answer

func (send tasker) tool(t *testing.T, tool, args, meta string) (v taskView, plain toolResult) {
	t.Helper()
	a := send("tools/call", tool, fmt.Sprintf(`{"name":%q,"arguments":%s,"_meta":{%s}}`, tool, args, meta))
	if a.Error != nil {
		t.Fatalf("%s: %+v", tool, a.Error)
	}
	if err := json.Unmarshal(a.Result, &v); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(a.Result, &plain); err != nil {
		t.Fatal(err)
	}
	return v, plain
}

// on sends a method of tasks.
func (send tasker) on(t *testing.T, method, id, more string) taskView {
	t.Helper()
	a := send(method, id, fmt.Sprintf(`{"taskId":%q,"_meta":{%s}%s}`, id, tasking, more))
	if a.Error != nil {
		t.Fatalf("%s: %+v", method, a.Error)
	}
	var v taskView
	if err := json.Unmarshal(a.Result, &v); err != nil {
		t.Fatal(err)
	}
	if v.ResultType != "complete" {
		t.Errorf("%s: %s", method, a.Result)
	}
	return v
}

// until asks for a task until it is as is says.
func (send tasker) until(t *testing.T, id string, is func(taskView) bool) taskView {
	t.Helper()
	var v taskView
	eventually(t, "the task is as it should be", func() bool { v = send.on(t, "tasks/get", id, ""); return is(v) })
	return v
}

func has(status string) func(taskView) bool {
	return func(v taskView) bool { return v.Status == status }
}

// unknown reports whether an answer is that of an id that never was.
func unknown(a answer) bool { return a.Error != nil && a.Error.Code == -32602 }

func taskSkill() map[string]string {
	skill := demoSkill()
	skill["demo/scripts/slow.sh"] = "#!/bin/bash\necho page 1 of 2\nsleep 5\necho page 2 of 2\n"
	return skill
}

// A run that lasts is a task for a client that takes tasks, and for no other: its status, its last line, its
// result later, its end when it is cancelled and when the server ends.
func TestTasks(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"stdio", "http"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			args := allowRun(tree(t, taskSkill()), "ok.sh", "slow.sh", "sleep.sh")
			var p *process
			var send, bob tasker
			var state, handle string
			if transport == "stdio" {
				state = t.TempDir()
				p = serve(t, append([]string{"--state", state}, args...)...)
				next := 0
				send = func(method, _, params string) answer {
					next++
					return p.ask(method, params)
				}
			} else {
				s := serveHTTP(t, append(args, "--auth-token-file", tokenFile(t, "alice", "bob"))...)
				p, state = s.process, s.state
				as := func(token string) tasker {
					return func(method, name, params string) answer {
						// A principal has a rate, and until asks as often as it can.
						status, a, err := http.StatusTooManyRequests, answer{}, error(nil)
						for err == nil && status == http.StatusTooManyRequests {
							status, a, err = s.as(token).send(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params),
								"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method, "Mcp-Name", name)
						}
						if err != nil {
							t.Fatal(err)
						}
						return a
					}
				}
				send, bob = as("alice-token"), as("bob-token")
			}
			_, loaded := send.tool(t, "load_skill", `{"name":"demo"}`, tasking)
			handle = handleIn(t, loaded)
			script := func(name string) string {
				return fmt.Sprintf(`{"skill":"demo","path":"scripts/%s","activation":%q}`, name, handle)
			}
			_, ran := send.tool(t, "run_skill_script", script("slow.sh"), modernAble)
			if strings.Contains(ran.text(), `"sandbox_unavailable"`) {
				skipSandbox(t, ran.text())
			}
			if !strings.Contains(ran.text(), "page 2 of 2") {
				t.Errorf("a client without tasks: %s", ran.text())
			}
			// A machine may be too busy for a short run a few times, not always.
			var quick taskView
			for tries := 0; tries < 10 && quick.ResultType != "complete"; tries++ {
				quick, ran = send.tool(t, "run_skill_script", script("ok.sh"), tasking)
			}
			if quick.ResultType != "complete" || !strings.Contains(ran.text(), "ran-ok") {
				t.Errorf("a short run: %+v %s", quick, ran.text())
			}

			made, _ := send.tool(t, "run_skill_script", script("slow.sh"), tasking)
			if made.ResultType != "task" || made.Status != "working" || len(made.TaskID) < 26 || made.TTLMs != 3_600_000 {
				t.Fatalf("created: %+v", made)
			}
			send.until(t, made.TaskID, func(v taskView) bool {
				return strings.HasSuffix(v.StatusMessage, "page 1 of 2") || v.Status != "working"
			})
			get := fmt.Sprintf(`{"taskId":%q,"_meta":{%s}}`, made.TaskID, tasking)
			if bob != nil && !unknown(bob("tasks/get", made.TaskID, get)) {
				t.Error("a foreign principal sees the task")
			}
			if a := send("tasks/get", made.TaskID, strings.Replace(get, `"_meta":{`, `"_meta":{"skillsd/session":"other",`, 1)); !unknown(a) {
				t.Errorf("another session sees the task: %s", a.Result)
			}
			if a := send("tasks/get", made.TaskID, fmt.Sprintf(`{"taskId":%q,"_meta":{%s}}`, made.TaskID, modernAble)); a.Error == nil || a.Error.Code != -32021 {
				t.Errorf("a request without the extension: %s", a.Result)
			}
			done := send.until(t, made.TaskID, has("completed"))
			if done.Result == nil || done.Result.IsError || !strings.Contains(done.Result.text(), "page 1 of 2\npage 2 of 2\n") {
				t.Errorf("completed: %+v", done)
			}

			made, _ = send.tool(t, "run_skill_script", script("sleep.sh"), tasking)
			send.on(t, "tasks/cancel", made.TaskID, "")
			done = send.until(t, made.TaskID, has("cancelled"))
			if done.Result != nil || done.Error != nil {
				t.Errorf("cancelled: %+v", done)
			}
			made, _ = send.tool(t, "run_skill_script", script("sleep.sh"), tasking)
			if transport == "http" {
				(&site{process: p}).interrupt()
			} else if err := p.leave(); err != nil {
				t.Error(err)
			}
			out := skillsd(t, 0, "session", "show", "latest", "--state", state)
			if strings.Count(out, "canceled") < 2 {
				t.Errorf("the record lacks the cancelled runs%s", out)
			}
			if transport == "http" {
				return
			}
			p = serve(t, append([]string{"--state", state}, args...)...)
			if !unknown(send("tasks/get", made.TaskID, fmt.Sprintf(`{"taskId":%q,"_meta":{%s}}`, made.TaskID, tasking))) {
				t.Error("the server knows a task of an earlier process")
			}
		})
	}
}

// A run that needs the user is asked about before it is a task.
func TestTaskApproval(t *testing.T) {
	t.Parallel()
	p := serve(t, "--skills-root", "builtin="+tree(t, taskSkill()), "--allow-tool", "run_skill_script", "--allow-skill-script", "demo:scripts/slow.sh")
	next := 0
	send := tasker(func(method, _, params string) answer {
		next++
		return p.ask(method, params)
	})
	send.tool(t, "load_skill", `{"name":"demo"}`, tasking)
	const args = `{"skill":"demo","path":"scripts/slow.sh"}`
	a := send("tools/call", "", fmt.Sprintf(`{"name":"run_skill_script","arguments":%s,"_meta":{%s}}`, args, tasking))
	var asked struct{ ResultType, RequestState string }
	if err := json.Unmarshal(a.Result, &asked); err != nil || asked.ResultType != "input_required" {
		t.Fatalf("%v: %s", err, a.Result)
	}
	a = send("tools/call", "", fmt.Sprintf(`{"name":"run_skill_script","arguments":%s,"_meta":{%s}%s}`, args, tasking, reply(asked.RequestState, "accept")))
	if strings.Contains(string(a.Result), "sandbox_unavailable") {
		skipSandbox(t, string(a.Result))
	}
	var made taskView
	if err := json.Unmarshal(a.Result, &made); err != nil || made.ResultType != "task" {
		t.Fatalf("%v: %s", err, a.Result)
	}
	if done := send.until(t, made.TaskID, has("completed")); !strings.Contains(done.Result.text(), "page 2 of 2") {
		t.Errorf("completed: %s", done.Result.text())
	}
}
