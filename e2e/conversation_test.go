package e2e

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// runs calls the script of the demo skill, and reports whether it ran.
func (c *caller) runs(args map[string]any) bool {
	c.t.Helper()
	all := demoScript("ok.sh")
	for name, value := range args {
		all[name] = value
	}
	got := c.tool("run_skill_script", all)
	switch {
	case got.code() == "sandbox_unavailable":
		c.t.Skipf("missing capability: a sandbox backend that can isolate: %s", got.text())
	case got.code() == "skill_not_activated" && c.session == "" && !strings.Contains(got.text(), "activation"):
		c.t.Errorf("the refusal does not say how to go on: %s", got.text())
	}
	return strings.Contains(got.text(), "ran-ok")
}

// What a client without a session loaded counts while its principal has one conversation, and is marked; the
// handle counts always.
func TestHTTPOneConversation(t *testing.T) {
	t.Parallel()
	args := append(demo(t, "ok.sh"), "--auth-token-file", tokenFile(t, "alice", "bob"))
	s := serveHTTP(t, args...)
	alice := s.as("alice-token")
	loaded := alice.tool("load_skill", map[string]any{"name": "demo"})
	if !strings.Contains(loaded.text(), "Pass this handle on") {
		t.Errorf("the load does not say to pass the handle on:\n%s", loaded.text())
	}
	if !alice.runs(nil) {
		t.Error("what the only conversation loaded does not count")
	}
	if again := alice.tool("load_skill", map[string]any{"name": "demo"}); !strings.Contains(again.text(), "# Demo") {
		t.Errorf("the next conversation gets no instructions:\n%s", again.text())
	}
	if s.as("bob-token").runs(nil) {
		t.Error("what one principal loaded counts for another")
	}
	s.open("alice-token")
	if !alice.runs(nil) {
		t.Error("with one session what was loaded does not count")
	}
	named := s.open("alice-token")
	if strings.Contains(named.tool("load_skill", map[string]any{"name": "demo"}).text(), "Pass this handle on") {
		t.Error("a client with a session is asked to pass the handle on")
	}
	if alice.runs(nil) {
		t.Error("with two sessions what was loaded counts")
	}
	if !alice.runs(map[string]any{"activation": handleIn(t, loaded)}) {
		t.Error("the handle does not count")
	}
	s.interrupt()
	out := skillsd(t, 0, "session", "list", "--json", "--state", s.state)
	guessed := 0
	for _, id := range regexp.MustCompile(`"ses_[^"]+`).FindAllString(out, -1) {
		shown := skillsd(t, 0, "session", "show", id[1:], "--json", "--state", s.state)
		guessed += strings.Count(shown, "calls that name no session")
	}
	if guessed == 0 {
		t.Errorf("no record says that its session is guessed:\n%s", out)
	}
}

// With http.activation handle nothing is guessed.
func TestHTTPOnlyHandles(t *testing.T) {
	s := serveHTTP(t, append(demo(t, "ok.sh"), "--http-activation", "handle")...)
	c := s.as("")
	loaded := c.tool("load_skill", map[string]any{"name": "demo"})
	if c.runs(nil) {
		t.Error("a call without a handle counts for a session")
	}
	if !c.runs(map[string]any{"activation": handleIn(t, loaded)}) {
		t.Error("the handle does not count")
	}
	if status, got := c.discover("claude-code"); status != http.StatusOK {
		t.Errorf("claude-code is not offered the revision: %d %s", status, got)
	}
}

// discover sends server/discover in the name of a client.
func (c *caller) discover(name string) (int, string) {
	meta := strings.Replace(modernMeta, `"name":"e2e"`, `"name":"`+name+`"`, 1)
	status, got, err := c.send(c.t.Context(), `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{`+
		meta+`}}}`, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "server/discover")
	if err != nil {
		c.t.Error(err)
	}
	if got.Error != nil {
		return status, string(got.Error.Data)
	}
	return status, string(got.Result)
}

// Claude Code is not offered the revision in which it names no session.
func TestHTTPOnlySessions(t *testing.T) {
	s := serveHTTP(t, "--skills-root", tree(t, demoSkill()))
	c := s.as("")
	if status, got := c.discover("claude-code"); status != http.StatusBadRequest ||
		!strings.Contains(got, `"supported":["2025-11-25"`) {
		t.Errorf("claude-code: %d %s", status, got)
	}
	if status, got := c.discover("another"); status != http.StatusOK {
		t.Errorf("another client: %d %s", status, got)
	}
}

// A protocol session goes on after a restart, for its principal, and what it loaded with it.
func TestSessionIDSurvivesKill(t *testing.T) {
	t.Parallel()
	args := append(demo(t, "ok.sh"), "--auth-token-file", tokenFile(t, "alice", "bob"))
	first := serveHTTP(t, args...)
	alice, ended := first.open("alice-token"), first.open("alice-token")
	alice.tool("load_skill", map[string]any{"name": "demo"})
	if response, err := ended.do(t.Context(), "DELETE", ""); err != nil || response.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE: %v %v", response, err)
	}
	if status, _, err := ended.request(t.Context(), "tools/list", "", ""); err != nil || status != http.StatusNotFound {
		t.Errorf("an ended session answers %d, %v", status, err)
	}
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.leave()

	again := serveHTTP(t, append(args, "--state", first.state)...)
	for name, c := range map[string]*caller{
		"another principal": {site: again, token: "bob-token", session: alice.session},
		"another id":        {site: again, token: "alice-token", session: "x" + alice.session},
		"an id of a server's own form": {site: again, token: "alice-token",
			session: "eyJyIjoiQSIsInQiOjQxMDAwMDAwMDB9.AAAA"},
	} {
		if status, _, err := c.request(t.Context(), "tools/list", "", ""); err != nil || status != http.StatusNotFound {
			t.Errorf("%s: %d, %v", name, status, err)
		}
	}
	if !(&caller{site: again, token: "alice-token", session: alice.session}).runs(nil) {
		t.Error("what the session loaded before the restart does not count")
	}
}

// OpenCode cancels each call that was answered; its record has no word of it.
func TestClientsLateCancel(t *testing.T) {
	if *clients == "" {
		t.Skip("no client is installed: make clients does")
	}
	for name, overHTTP := range map[string]bool{"stdio": false, "http": true} {
		t.Run(name, func(t *testing.T) {
			o := runRealClient(t, "opencode", overHTTP, clientRun{
				serve: demo(t, "ok.sh"),
				turns: []turn{
					{{tool: "load_skill", args: map[string]any{"name": "demo"}}},
					{{tool: "run_skill_script", args: demoScript("ok.sh")}},
				},
			})
			if got := o.result(t, 1, 0).text; !strings.Contains(got, "ran-ok") {
				t.Errorf("run_skill_script = %s", got)
			}
			if got := o.skillsd("session", "show", "latest", "--json"); strings.Contains(got, "cancel") {
				t.Errorf("the record says that a call was canceled:\n%s", got)
			}
		})
	}
}
