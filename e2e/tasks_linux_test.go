package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// A run of a client that cannot ask its user is a task that waits until the user approves it elsewhere, if the
// client takes tasks; it is over when the client cancels it.
func TestTaskWaitsForApproval(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"stdio", "http"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			config := written(t, "config.yaml", "allow: [demo:scripts/ok.sh]\n")
			flags := []string{"--config", config, "--skills-root", "builtin=" + tree(t, taskSkill()), "--allow-tool", "run_skill_script"}
			state, next := t.TempDir(), 0
			var p *process
			var send tasker
			if transport == "stdio" {
				p = serve(t, append([]string{"--state", state}, flags...)...)
				send = func(method, _, params string) answer {
					next++
					return p.ask(method, params)
				}
			} else {
				s := serveHTTP(t, append(flags, "--auth-token-file", tokenFile(t, "alice"))...)
				p, state = s.process, s.state
				send = func(method, name, params string) answer {
					status, a, err := http.StatusTooManyRequests, answer{}, error(nil)
					for err == nil && status == http.StatusTooManyRequests {
						status, a, err = s.as("alice-token").send(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params),
							"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method, "Mcp-Name", name)
					}
					if err != nil {
						t.Fatal(err)
					}
					return a
				}
			}
			meta := strings.Replace(modernMeta, `clientCapabilities":{`, `clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}`, 1)
			_, loaded := send.tool(t, "load_skill", `{"name":"demo"}`, meta)
			args := fmt.Sprintf(`{"skill":"demo","path":"scripts/ok.sh","args":["one"],"activation":%q}`, handleIn(t, loaded))
			made, refused := send.tool(t, "run_skill_script", args, meta)
			if strings.Contains(refused.text(), `"sandbox_unavailable"`) {
				skipSandbox(t, refused.text())
			}
			if made.ResultType != "task" || made.Status != "working" {
				t.Fatalf("created: %+v", made)
			}
			code := regexp.MustCompile(`skillsd approve ([A-Z2-7]{4}-[A-Z2-7]{4})(, where the server runs, or on its page)?$`)
			waits := send.until(t, made.TaskID, func(v taskView) bool { return code.MatchString(v.StatusMessage) || v.Status != "working" })
			found := code.FindStringSubmatch(waits.StatusMessage)
			if found == nil || (found[2] != "") != (transport == "http") {
				t.Fatalf("the task waits for %+v", waits)
			}
			cmd := exec.Command(binary, "approve", found[1], "--state", state)
			if out, err := onTerminal(cmd, 80, typing{Answer: "y"}); err != nil || cmd.ProcessState.ExitCode() != 0 {
				t.Fatalf("approve: %v\n%s", err, out)
			}
			if done := send.until(t, made.TaskID, has("completed")); done.Result == nil || done.Result.IsError || !strings.Contains(done.Result.text(), "ran-ok") {
				t.Errorf("completed: %+v", done)
			}

			// A task of a server that no longer offers scripts is still there.
			made, _ = send.tool(t, "run_skill_script", args, meta)
			if err := os.WriteFile(config, []byte("allow: []\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			p.untilLogged("configuration changed")
			send.on(t, "tasks/cancel", made.TaskID, "")
			send.until(t, made.TaskID, has("cancelled"))
		})
	}
}
