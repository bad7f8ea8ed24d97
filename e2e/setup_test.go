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

// clients is the directory into which make clients installed the clients; the Makefile pins their versions.
var clients = flag.String("clients", "", "directory where npm installed Claude Code, Codex, Gemini CLI and OpenCode")

// clientPath returns a directory in which an installed client has the name of its command.
func clientPath(t *testing.T, name string) string {
	t.Helper()
	if *clients == "" {
		t.Skipf("%s is not installed: make clients does", name)
	}
	pattern := filepath.Join(*clients, "node_modules", realClients[name].program)
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("no program of %s below %s: %v", name, *clients, err)
	}
	dir := t.TempDir()
	if err := os.Symlink(found[0], filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestSetupRealClients sets up the clients themselves. They list the servers, and Claude Code starts one and
// connects to both. A change of an entry keeps it working, and another server of the same name is not touched.
func TestSetupRealClients(t *testing.T) {
	tokens := written(t, "tokens", "alice: "+fmt.Sprintf("%x", sha256.Sum256([]byte("sesame")))+"\n")
	remote := serveHTTP(t, "--skills-root", exampleSkills(t), "--auth-token-file", tokens).url
	for _, tt := range []struct {
		client        string
		flags         []string
		stdio, listed string // in the line of a server that the client starts, and of one at a URL
		file, holds   string // the client's file below the home directory, and a part of it
		foreign       []string
	}{
		{"claude", nil, "✔ Connected", "✔ Connected", ".claude.json", "Bearer ${SETUP_TEST_TOKEN}",
			[]string{"mcp", "add", "--scope", "user", "other", "--", "npx", "serve"}},
		{"codex", []string{"--approve-scripts"}, "enabled", "SETUP_TEST_TOKEN", ".codex/config.toml", `approval_mode = "approve"`,
			[]string{"mcp", "add", "other", "--", "npx", "serve"}},
	} {
		t.Run(tt.client, func(t *testing.T) {
			path, home := clientPath(t, tt.client), t.TempDir()
			try := func(words ...string) (string, error) {
				cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
				cmd.Dir = home
				cmd.Env = []string{"PATH=" + path + ":" + os.Getenv("PATH"), "HOME=" + home, "SETUP_TEST_TOKEN=sesame", "DISABLE_TELEMETRY=1",
					"DISABLE_AUTOUPDATER=1", "DISABLE_ERROR_REPORTING=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			run := func(words ...string) string {
				t.Helper()
				out, err := try(words...)
				if err != nil {
					t.Fatalf("%q: %v\n%s", words, err, out)
				}
				return out
			}
			setup := func(words ...string) string {
				t.Helper()
				return run(slices.Concat([]string{binary, "setup", tt.client}, words)...)
			}
			list := func() string { return run(filepath.Join(path, tt.client), "mcp", "list") }
			local := []string{"--", "--skills-root", exampleSkills(t), "--state", t.TempDir()}

			if out := setup(slices.Concat(tt.flags, []string{"--write"}, local)...); !strings.Contains(out, "running: "+tt.client+" mcp add") {
				t.Errorf("setup ran no command of %s:\n%s", tt.client, out)
			}
			setup("--write", "--name", "team", "--http", remote, "--token-env", "SETUP_TEST_TOKEN")
			listed := list()
			if !listedAs(listed, "skills", tt.stdio) || !listedAs(listed, "team", tt.listed) || strings.Contains(listed, "sesame") {
				t.Errorf("%s lists\n%s", tt.client, listed)
			}

			if out := setup(slices.Concat([]string{"--write"}, local)...); !strings.Contains(out, "is up to date") {
				t.Errorf("the second setup prints\n%s", out)
			}
			setup(slices.Concat([]string{"--write"}, local, []string{"--no-watch"})...)
			if listed := list(); !listedAs(listed, "skills", tt.stdio) {
				t.Errorf("after a change %s lists\n%s", tt.client, listed)
			}
			text, err := os.ReadFile(filepath.Join(home, tt.file))
			if err != nil || !strings.Contains(string(text), tt.holds) || !strings.Contains(string(text), "--no-watch") {
				t.Errorf("%s holds %v\n%s", tt.file, err, text)
			}
			run(slices.Concat([]string{filepath.Join(path, tt.client)}, tt.foreign)...)
			if out, err := try(binary, "setup", tt.client, "--name", "other", "--write"); err == nil || !strings.Contains(out, "other exists and is not skillsd's") {
				t.Errorf("setup of another server's name: %v\n%s", err, out)
			}

			setup("--remove")
			setup("--remove", "--name", "team", "--http", remote)
			if listed := list(); listedAs(listed, "skills", "") || listedAs(listed, "team", "") || !listedAs(listed, "other", "") {
				t.Errorf("after --remove %s lists\n%s", tt.client, listed)
			}
		})
	}
}

// TestSuiteInspectorSetup checks that the Inspector uses the catalog that setup wrote.
func TestSuiteInspectorSetup(t *testing.T) {
	modules(t)
	catalog := filepath.Join(t.TempDir(), "mcp.json")
	setup := exec.CommandContext(t.Context(), binary, "setup", "inspector", "--write", "--", "--skills-root", exampleSkills(t), "--state", t.TempDir())
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

// listedAs reports whether a line starts with a server's name and contains a text.
func listedAs(out, name, text string) bool {
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, name); ok && strings.ContainsAny(rest[:1], ": ") && strings.Contains(rest, text) {
			return true
		}
	}
	return false
}
