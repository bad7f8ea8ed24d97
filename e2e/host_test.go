package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A script runs on the host only when its entry and the operator both say so, agent-browser only with
// the client's lease, whose endpoint it is given and nobody is shown.
func TestHostTarget(t *testing.T) {
	t.Parallel()
	const endpoint = "http://127.0.0.1:9222"
	lease := func(url string, life time.Duration) string {
		raw, err := json.Marshal(map[string]string{"leaseId": "l1", "cdpUrl": url, "expiresAt": time.Now().Add(life).UTC().Format(time.RFC3339)})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`"skillsd/browser-lease":%s`, raw)
	}
	root := tree(t, map[string]string{
		"agent-browser/SKILL.md": "---\nname: agent-browser\ndescription: Drives a browser.\n---\nDrive.\n",
		"agent-browser/scripts/form-automation.sh": "#!/bin/sh\necho \"on $CF_HARNESS_SKILL_SCRIPT_EXECUTION_TARGET with $AGENT_BROWSER_CDP args $*\"\n" +
			"echo \"secret ${HOST_SECRET:-none}\"\n",
	})
	begin := func(flags ...string) *process {
		config := written(t, "config.yaml", `
roots: [{dir: `+root+`, tier: org}]
scan: {no_default_roots: true}
allow_tools: [run_skill_script]
allow: [{script: "agent-browser:scripts/form-automation.sh", target: host, release: observed}]
policy: {prompt_slot_role: direct-command}
`)
		p := serveWith(t, []string{"HOST_SECRET=hunter2"}, append([]string{"--config", config}, flags...)...)
		p.initialize()
		p.tool("load_skill", map[string]any{"name": "agent-browser"})
		return p
	}
	run := func(p *process, meta string, args ...string) toolResult {
		return p.toolWith("run_skill_script", map[string]any{"skill": "agent-browser", "path": "scripts/form-automation.sh", "args": args}, "{"+meta+"}")
	}
	if got := run(begin(), lease(endpoint, time.Minute)); got.code() != "permission_denied" {
		t.Errorf("without the operator's second word: %s", got.text())
	}
	for _, flags := range [][]string{{"--skill-script-execution-target", "host"}, {"--profile", "browser"}} {
		p := begin(flags...)
		for name, meta := range map[string]string{"no lease": "", "expired": lease(endpoint, -time.Minute), "another host": lease("http://192.0.2.1:9222", time.Minute),
			"a path": lease(endpoint+"/json", time.Minute), "https": lease("https://127.0.0.1:9222", time.Minute)} {
			if got := run(p, meta); got.code() != "lease_invalid" {
				t.Errorf("%v, %s: %s", flags, name, got.text())
			}
		}
		if got := run(p, lease(endpoint, time.Minute), "--cdp", "http://127.0.0.1:1"); got.code() != "lease_invalid" {
			t.Errorf("another browser than the lease: %s", got.text())
		}
		got := run(p, lease(endpoint, time.Minute), "--cdp", endpoint, "fill")
		if got.IsError || !strings.Contains(got.text(), "on host with ") || !strings.Contains(got.text(), "args fill\n") || !strings.Contains(got.text(), "secret none\n") {
			t.Errorf("%v: %s", flags, got.text())
		}
		if strings.Contains(got.text(), endpoint) || strings.Contains(got.text(), "hunter2") {
			t.Errorf("the endpoint or the server's environment is shown: %s", got.text())
		}
	}
	if got := run(begin(), `"skillsd/profile":"browser",`+lease(endpoint, time.Minute)); !got.IsError {
		t.Errorf("a client turned the host on: %s", got.text())
	}
}
