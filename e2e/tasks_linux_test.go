package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A run of a client that cannot ask its user is a task that waits until the user approves it elsewhere, if the
// client takes tasks; it is over when the client cancels it.
func TestTaskWaitsForApproval(t *testing.T) {
	t.Parallel()
	state, next := t.TempDir(), 0
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("allow: [demo:scripts/ok.sh]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, exec.Command(binary, "serve", "--state", state, "--config", config, "--skills-root", "builtin="+tree(t, taskSkill()),
		"--allow-tool", "run_skill_script"))
	send := tasker(func(method, _, params string) answer {
		next++
		return p.request(next, method, params)
	})
	meta := strings.Replace(modernMeta, `clientCapabilities":{`, `clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}`, 1)
	const args = `{"skill":"demo","path":"scripts/ok.sh","args":["one"]}`
	send.tool(t, "load_skill", `{"name":"demo"}`, meta)
	made, refused := send.tool(t, "run_skill_script", args, meta)
	if strings.Contains(refused.text(), `"sandbox_unavailable"`) {
		skipSandbox(t, refused.text())
	}
	if made.ResultType != "task" || made.Status != "working" {
		t.Fatalf("created: %+v", made)
	}
	code := regexp.MustCompile(`skillsd approve ([A-Z2-7]{4}-[A-Z2-7]{4})$`)
	waits := send.until(t, made.TaskID, func(v taskView) bool { return code.MatchString(v.StatusMessage) || v.Status != "working" })
	found := code.FindStringSubmatch(waits.StatusMessage)
	if found == nil {
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
	if err := p.leave(); err != nil {
		t.Error(err)
	}
}
