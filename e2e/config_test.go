package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// configFile writes a configuration file of one's own.
func configFile(t *testing.T, text string) string {
	t.Helper()
	path := written(t, "config.yaml", text)
	return path
}

// A configuration file alone makes the server: where it listens, who is let in, who is believed, what
// each may see and run.
func TestHTTPConfigured(t *testing.T) {
	skills := demoSkill()
	skills["other/SKILL.md"] = "---\nname: other\ndescription: Another one.\n---\nOther.\n"
	config := configFile(t, fmt.Sprintf(`
roots: [{dir: %q, tier: builtin}]
allow_tools: [run_skill_script]
allow: [{script: "demo:scripts/ok.sh", workspace: none, timeout: 20s}]
http: {auth: {token_file: %q}}
profiles:
  only-other: {skills: [other]}
  no-runs: {tools: [load_skill, read_skill_resource]}
principals:
  alice: {evidence: true}
  bob: {evidence: true, profile: only-other}
  carol: {evidence: true, profile: no-runs}
`, tree(t, skills), tokenFile(t, "alice", "bob", "carol", "dave")))
	s := serveHTTP(t, "--config", config)
	const slot = `"_meta":{"skillsd/prompt-slot":{"type":"https://commonfabric.org/cfc/atom/PromptSlotBound","source":"t","role":"direct-command","kernelName":"k","surface":"s"}}`
	for _, tt := range []struct{ principal, load, run string }{
		{"alice", "# Demo", "ran-ok"},
		{"bob", "profile_excludes", "profile_excludes"},
		{"carol", "# Demo", "profile_excludes"},
		{"dave", "# Demo", "direct_command_required"},
	} {
		t.Run(tt.principal, func(t *testing.T) {
			c := s.open(tt.principal + "-token")
			if got := c.tool("load_skill", map[string]any{"name": "demo"}); !strings.Contains(got.text(), tt.load) {
				t.Errorf("load_skill = %s, want %s", got.text(), tt.load)
			}
			_, a, err := c.request(t.Context(), "tools/call", "", `"name":"run_skill_script","arguments":{"skill":"demo","path":"scripts/ok.sh"},`+slot)
			got := fmt.Sprintf("%s %+v", a.Result, a.Error)
			if strings.Contains(got, "sandbox_unavailable") && os.Getenv("SKILLSD_REQUIRE_SANDBOX") == "" {
				return // permitted, which is what is tested here
			}
			if err != nil || !strings.Contains(got, tt.run) {
				t.Errorf("run_skill_script = %s, %v, want %s", got, err, tt.run)
			}
		})
	}
}

// What an entry of the file grants reaches the script, its limits hold, and the secret is nowhere but
// in the script: not in an answer, a log, a record, or what config show prints.
func TestConfiguredEntry(t *testing.T) {
	t.Parallel()
	const secret = "correct-horse-battery-staple"
	skills := demoSkill()
	skills["demo/scripts/ok.sh"] = "#!/bin/bash\necho \"length ${#TOKEN}, zone $ZONE, other [$OTHER]\"; echo \"$TOKEN\"; sleep 60\n"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(fmt.Sprintf(`
roots: [{dir: %q, tier: builtin}]
allow_tools: [run_skill_script]
allow: [{script: "demo:scripts/ok.sh", env: [ZONE], secrets: [TOKEN], timeout: 2s, release: observed}]
secrets: {TOKEN: {file: token}}
policy: {prompt_slot_role: direct-command}
state: state
`, tree(t, skills))), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "serve", "--config", config)
	cmd.Env = append(os.Environ(), "ZONE=here", "OTHER=there")
	p := start(t, cmd).loaded()
	ran := p.script("ok.sh")
	if strings.Contains(ran.text(), "sandbox_unavailable") {
		if os.Getenv("SKILLSD_REQUIRE_SANDBOX") != "" {
			t.Fatal(ran.text())
		}
		t.Skip("missing capability: a sandbox backend")
	}
	if want := fmt.Sprintf("length %d, zone here, other []", len(secret)); !strings.Contains(ran.text(), want) || !strings.Contains(ran.text(), "timeout") {
		t.Errorf("the run says %s, want %s and the timeout", ran.text(), want)
	}
	shown := stdoutOf(t, "config", "show", "--config", config, "--json")
	if !strings.Contains(string(shown), "TOKEN") {
		t.Errorf("config show does not name the secret: %s", shown)
	}
	told := ran.text() + p.stderr.String() + string(shown)
	err := filepath.WalkDir(filepath.Join(dir, "state"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		told += string(data)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if strings.Contains(told, secret) {
		t.Error("the secret was told")
	}
}
