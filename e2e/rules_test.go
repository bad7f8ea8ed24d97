package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A server takes up a change of its configuration at the next call: what is allowed, taken back or given. A
// faulty one leaves the one before in force and is named in refusals; flags stay; the record has each policy.
func TestConfigurationChanges(t *testing.T) {
	t.Parallel()
	home, state, root := t.TempDir(), t.TempDir(), tree(t, map[string]string{
		"demo/SKILL.md":       "---\nname: demo\ndescription: A skill for tests.\n---\nDo it.\n",
		"demo/scripts/ok.sh":  "#!/bin/sh\necho ran-ok \"$GREETING\"\n",
		"demo/scripts/not.sh": "#!/bin/sh\n",
	})
	file := filepath.Join(home, "config.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("policy: {release: observed}\n")
	skillsd := func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, append(args, "--config", file, "--state", state)...)
		cmd.Env = append(os.Environ(), "HOME="+home, "A_SECRET=quite-secret-1", "CLAUDECODE=", "CI=")
		return cmd
	}
	p := start(t, skillsd("serve", "--log-format", "json", "--skills-root", root, "--prompt-slot-role", "direct-command"))
	p.initialize()
	p.loadDescription()
	p.tool("load_skill", map[string]any{"name": "demo"})
	run := func(id int, script string) string {
		a := p.ask("tools/call", `{"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/`+script+`"}}`)
		if a.Error != nil {
			return string(a.Error.Message)
		}
		var result toolResult
		if err := json.Unmarshal(a.Result, &result); err != nil {
			t.Fatal(err)
		}
		return result.text()
	}
	const allow = "policy: {release: observed}\nallow_tools: [run_skill_script]\nallow:\n  - {script: demo:scripts/ok.sh%}\n"
	for i, step := range []struct{ name, config, script, want, log string }{
		{"nothing is allowed", "", "ok.sh", "tool_not_allowed", ""},
		{"allowed", strings.Replace(allow, "%", "", 1), "ok.sh", "ran-ok", `"keys":"allow_tools, allow"`},
		{"another script", "", "not.sh", "script_not_allowlisted", ""},
		{"a secret", "secrets: {GREETING: {env: A_SECRET}}\n" + strings.Replace(allow, "%", ", secrets: [GREETING]", 1), "ok.sh", "ran-ok [secret", `"keys":"allow, secrets"`},
		{"a fault", allow + "nonsense: 1\n", "not.sh", "the configuration was changed, has a fault", "is not valid"},
		{"the one before counts", "", "ok.sh", "ran-ok", ""},
		{"a mode that a flag overrides", strings.Replace(strings.Replace(allow, "%", "", 1), "policy: {", "policy: {prompt_slot_role: context, ", 1), "ok.sh", "ran-ok", ""},
		{"an address", strings.Replace(allow, "%", "", 1) + "log: {level: debug}\n", "not.sh", "script_not_allowlisted", `needs a restart of the server","keys":"log.level"`},
		{"a script that is not there", strings.Replace(allow, "ok.sh%", "gone.sh", 1), "ok.sh", "script_not_allowlisted", ""},
		{"a secret that cannot be hidden", "secrets: {GREETING: {env: HOME_}}\n" + strings.Replace(allow, "%", ", network: ['*']", 1), "ok.sh", "has a fault", ""},
		{"taken back", "policy: {release: observed}\n", "ok.sh", "tool_not_allowed", ""},
	} {
		if step.config != "" {
			write(step.config)
		}
		if got := run(10+i, step.script); !strings.Contains(got, step.want) || strings.Contains(got, "quite-secret") ||
			strings.Contains(got, home) || !strings.Contains(p.stderr.String(), step.log) {
			t.Errorf("%s: %q; want %q, and a log with %s", step.name, got, step.want, step.log)
		}
	}
	p.end()
	out, err := skillsd("session", "show", "latest").CombinedOutput()
	if n := strings.Count(string(out), "configuration changed: "); err != nil || n < 4 {
		t.Errorf("the record has %d changes, %v:\n%s", n, err, out)
	}
	if out, err := skillsd("session", "verify", "latest").CombinedOutput(); err != nil {
		t.Errorf("verify: %v\n%s", err, out)
	}
}
