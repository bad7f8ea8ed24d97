package e2e

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// clients is where make clients installed Claude Code and Codex; the Makefile pins their versions.
var clients = flag.String("clients", "", "directory where npm installed Claude Code and Codex")

// clientCommand returns the command of an installed client, without arguments.
func clientCommand(t *testing.T, name string) []string {
	t.Helper()
	if *clients == "" {
		t.Skipf("%s is not installed: make clients does", name)
	}
	if name == "codex" {
		return []string{"node", filepath.Join(*clients, "node_modules", "@openai", "codex", "bin", "codex.js")}
	}
	found, err := filepath.Glob(filepath.Join(*clients, "node_modules", "@anthropic-ai", "claude-code-*", "claude"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no program of Claude Code below %s: %v", *clients, err)
	}
	return found[:1]
}

// TestSetupRealClients lets the clients themselves read what setup wrote: they list the server, and
// Claude Code starts it and connects as well.
func TestSetupRealClients(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("alice: "+fmt.Sprintf("%x", sha256.Sum256([]byte("sesame")))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	remote := serveHTTP(t, "--skills-root", exampleSkills(t), "--auth-token-file", tokens).url
	for _, tt := range []struct {
		client        string
		flags         []string
		stdio, listed string // what is listed of a server the client starts, and of one at a URL
	}{
		{"claude", nil, "✔ Connected", "✔ Connected"},
		{"codex", []string{"--approve-scripts"}, "enabled", "SETUP_TEST_TOKEN"},
	} {
		t.Run(tt.client, func(t *testing.T) {
			command := clientCommand(t, tt.client)
			home := t.TempDir()
			if err := os.Mkdir(filepath.Join(home, ".codex"), 0o700); err != nil {
				t.Fatal(err)
			}
			run := func(words ...string) string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
				cmd.Dir = home
				cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "SETUP_TEST_TOKEN=sesame", "DISABLE_TELEMETRY=1",
					"DISABLE_AUTOUPDATER=1", "DISABLE_ERROR_REPORTING=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%q: %v\n%s", words, err, out)
				}
				return string(out)
			}
			setup := func(words ...string) { run(slices.Concat([]string{binary, "setup", tt.client}, words)...) }
			list := func() string { return run(slices.Concat(command, []string{"mcp", "list"})...) }

			setup(slices.Concat(tt.flags, []string{"--write", "--", "--skills-root", exampleSkills(t), "--state", stateDir(t)})...)
			setup("--write", "--name", "team", "--http", remote, "--token-env", "SETUP_TEST_TOKEN")
			listed := list()
			if !listedAs(listed, "skills", tt.stdio) || !listedAs(listed, "team", tt.listed) || strings.Contains(listed, "sesame") {
				t.Errorf("%s lists\n%s", tt.client, listed)
			}
			setup("--remove")
			setup("--remove", "--name", "team", "--http", remote)
			if listed := list(); listedAs(listed, "skills", "") || listedAs(listed, "team", "") {
				t.Errorf("after --remove %s lists\n%s", tt.client, listed)
			}
		})
	}
}

// TestSuiteInspectorSetup lets the Inspector use the catalogue that setup wrote.
func TestSuiteInspectorSetup(t *testing.T) {
	modules(t)
	catalog := filepath.Join(t.TempDir(), "mcp.json")
	setup := exec.CommandContext(t.Context(), binary, "setup", "inspector", "--write", "--", "--skills-root", exampleSkills(t), "--state", stateDir(t))
	setup.Env = append(os.Environ(), "MCP_CATALOG_PATH="+catalog)
	if out, err := setup.CombinedOutput(); err != nil {
		t.Fatalf("setup: %v\n%s", err, out)
	}
	for call, want := range map[string]string{"servers/list": "skills", "tools/list": "load_skill"} {
		args := []string{"--cli", "--catalog", catalog, "--method", call}
		if call != "servers/list" {
			args = append(args, "--server", "skills")
		}
		out, err := suite(t, "mcp-inspector", args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, want %s in\n%s", call, err, want, out)
		}
	}
}

// listedAs reports whether a line begins with a server's name and holds a text.
func listedAs(out, name, text string) bool {
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, name); ok && strings.ContainsAny(rest[:1], ": ") && strings.Contains(rest, text) {
			return true
		}
	}
	return false
}
