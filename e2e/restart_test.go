package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A server that was killed and started again knows the handles it gave out, for whom it gave them.
func TestHandleSurvivesKill(t *testing.T) {
	t.Parallel()
	args := append(demo(t, "ok.sh"), "--auth-token-file", tokenFile(t, "alice", "bob"))
	first := serveHTTP(t, args...)
	handle := handleIn(t, first.as("alice-token").tool("load_skill", map[string]any{"name": "demo"}))
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.leave()

	args = append(args, "--state", first.state)
	again := serveHTTP(t, args...)
	run := func(token string) toolResult {
		return again.as(token).tool("run_skill_script", map[string]any{"skill": "demo", "path": "scripts/ok.sh", "activation": handle})
	}
	if got := run("bob-token"); got.code() != "activation_unknown" {
		t.Errorf("another principal: %s", got.text())
	}
	got := run("alice-token")
	if got.code() == "sandbox_unavailable" {
		t.Skipf("missing capability: a sandbox backend that can isolate: %s", got.text())
	}
	if !strings.Contains(got.text(), "ran-ok") {
		t.Errorf("after the restart: %s", got.text())
	}
	again.interrupt()
	out := skillsd(t, 0, "session", "list", "--json", "--state", first.state)
	if !strings.Contains(out, `"parent"`) {
		t.Errorf("session list%s", out)
	}
}

// A client that starts a dead server again goes on with what it had loaded.
func TestClientGoesOnAfterKill(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	args := append([]string{"serve", "--state", state, "--log-format", "json"}, demo(t, "ok.sh")...)
	begin := func(id string) *process {
		cmd := exec.Command(binary, args...)
		cmd.Env = append(os.Environ(), "CLAUDE_CODE_SESSION_ID="+id)
		p := start(t, cmd)
		p.initialize()
		return p
	}
	run := func(p *process) toolResult {
		return p.script("ok.sh")
	}
	p := begin("one")
	p.tool("load_skill", map[string]any{"name": "demo"})
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.leave()
	p = begin("one")
	if got := run(p); got.code() == "sandbox_unavailable" {
		t.Skipf("missing capability: a sandbox backend that can isolate: %s", got.text())
	} else if !strings.Contains(got.text(), "ran-ok") {
		t.Errorf("the client's session: %s", got.text())
	}
	p = begin("two")
	if got := run(p); got.code() != "skill_not_activated" {
		t.Errorf("another session of the client: %s", got.text())
	}
}
