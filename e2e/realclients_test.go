package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// realClient is a client as npm ships it. Its model is a stub: which tools, texts and pictures a client hands
// over, and what it makes of answers, is not documented, so these runs are the test.
type realClient struct {
	// program is a pattern below node_modules.
	program string
	// env has variables with the model's URL, and configure writes the files of a home directory.
	env       func(home, model string) []string
	configure func(home, model string, server clientEntry, more string) map[string]string
	// args run the client once, without a terminal, in a working directory.
	args []string
}

// clientEntry is the server in a client's configuration: a command, or a URL with a token.
type clientEntry struct {
	command []string
	url     string
	token   string
}

// realClients are the clients that tests know. More of configure is a part of the client's own file.
var realClients = map[string]realClient{
	"claude": {
		program: "@anthropic-ai/claude-code-*/claude",
		env: func(home, model string) []string {
			return []string{"ANTHROPIC_API_KEY=sk-ant-stub", "ANTHROPIC_BASE_URL=" + model,
				"DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1", "DISABLE_AUTOUPDATER=1",
				"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "CLAUDE_CONFIG_DIR=" + home + "/.claude",
				"MCP_CONNECTION_NONBLOCKING=0"}
		},
		configure: func(_, _ string, server clientEntry, _ string) map[string]string {
			entry := map[string]any{"type": "http", "url": server.url, "headers": server.headers()}
			if server.url == "" {
				entry = map[string]any{"type": "stdio", "command": server.command[0],
					"args": server.command[1:]}
			}
			return map[string]string{"mcp.json": jsonText(
				map[string]any{"mcpServers": map[string]any{"skills": entry}})}
		},
		args: []string{"-p", "go", "--mcp-config", "HOME/mcp.json", "--strict-mcp-config", "--output-format",
			"stream-json", "--verbose",
			"--allowedTools", "mcp__skills,ListMcpResourcesTool,ReadMcpResourceTool,Skill,Read"},
	},
	"codex": {
		program: "@openai/codex/bin/codex.js",
		env: func(home, _ string) []string {
			return []string{"CODEX_HOME=" + home + "/.codex", "STUB_KEY=stub", "SKILLS_TOKEN=sesame"}
		},
		configure: func(_, model string, server clientEntry, more string) map[string]string {
			name := "gpt-5.5"
			if rest, ok := strings.CutPrefix(more, "model="); ok {
				name, more, _ = strings.Cut(rest, "\n")
			}
			entry := fmt.Sprintf("url = %q\nbearer_token_env_var = \"SKILLS_TOKEN\"\n", server.url)
			if server.url == "" {
				entry = fmt.Sprintf("command = %q\nargs = %s\n", server.command[0],
					jsonText(server.command[1:]))
			}
			return map[string]string{".codex/config.toml": fmt.Sprintf(`model = %q
model_provider = "stub"
approval_policy = "never"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.stub]
name = "stub"
base_url = %q
wire_api = "responses"
env_key = "STUB_KEY"
request_max_retries = 1
stream_max_retries = 1
supports_websockets = false
[mcp_servers.skills]
default_tools_approval_mode = "approve"
%s%s`, name, model+"/v1", entry, more)}
		},
		args: []string{"exec", "--json", "--skip-git-repo-check", "go"},
	},
	"gemini": {
		program: ".bin/gemini",
		env: func(_, model string) []string {
			return []string{"GEMINI_API_KEY=stub", "GOOGLE_GEMINI_BASE_URL=" + model,
				"GEMINI_TELEMETRY_ENABLED=false", "GEMINI_CLI_TRUST_WORKSPACE=true"}
		},
		configure: func(_, _ string, server clientEntry, _ string) map[string]string {
			entry := map[string]any{"httpUrl": server.url, "headers": server.headers(), "trust": true}
			if server.url == "" {
				entry = map[string]any{"command": server.command[0], "args": server.command[1:],
					"trust": true}
			}
			return map[string]string{".gemini/settings.json": jsonText(
				map[string]any{"mcpServers": map[string]any{"skills": entry},
					"security": map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"}},
					"general":  map[string]any{"disableAutoUpdate": true, "enableAutoUpdate": false},
					"privacy":  map[string]any{"usageStatisticsEnabled": false}})}
		},
		args: []string{"-m", "gemini-3-pro-preview", "-p", "go", "-o", "json", "--approval-mode", "yolo"},
	},
	"opencode": {
		program: "opencode-linux-x64/bin/opencode",
		env: func(home, _ string) []string {
			return []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1",
				"OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_CONFIG=" + home + "/opencode.json"}
		},
		configure: func(_, model string, server clientEntry, _ string) map[string]string {
			entry := map[string]any{"type": "remote", "url": server.url, "enabled": true,
				"headers": server.headers()}
			if server.url == "" {
				entry = map[string]any{"type": "local", "command": server.command, "enabled": true}
			}
			return map[string]string{"opencode.json": jsonText(
				map[string]any{"share": "disabled", "autoupdate": false, "model": "stub/stub",
					"small_model": "stub/stub",
					"permission":  map[string]any{"*": "allow"}, "mcp": map[string]any{"skills": entry},
					"provider": map[string]any{"stub": map[string]any{"npm": "@ai-sdk/openai-compatible",
						"name":    "stub",
						"options": map[string]any{"baseURL": model + "/v1", "apiKey": "stub"},
						"models": map[string]any{"stub": map[string]any{"name": "stub", "tool_call": true,
							"attachment": true,
							"modalities": map[string]any{"input": []string{"text", "image"},
								"output": []string{"text"}}, "limit": map[string]any{"context": 200000,
								"output": 8000}}}}}})}
		},
		args: []string{"run", "--format", "json", "go"},
	},
	"copilot": {
		program: ".bin/copilot",
		env: func(home, model string) []string {
			return []string{"COPILOT_HOME=" + home + "/.copilot", "COPILOT_PROVIDER_TYPE=openai",
				"COPILOT_PROVIDER_BASE_URL=" + model + "/v1", "COPILOT_PROVIDER_API_KEY=stub",
				"COPILOT_MODEL=stub", "COPILOT_AUTO_UPDATE=false"}
		},
		configure: func(_, _ string, server clientEntry, _ string) map[string]string {
			entry := map[string]any{"type": "http", "url": server.url, "headers": server.headers(),
				"tools": []string{"*"}}
			if server.url == "" {
				entry = map[string]any{"type": "local", "command": server.command[0],
					"args": server.command[1:], "tools": []string{"*"}}
			}
			return map[string]string{".copilot/mcp-config.json": jsonText(
				map[string]any{"mcpServers": map[string]any{"skills": entry}})}
		},
		args: []string{"-p", "go", "--allow-all-tools", "--no-color"},
	},
	"qwen": {
		program: ".bin/qwen",
		env: func(_, model string) []string {
			return []string{"OPENAI_API_KEY=stub", "OPENAI_BASE_URL=" + model + "/v1", "OPENAI_MODEL=stub",
				"QWEN_TELEMETRY_ENABLED=false"}
		},
		configure: func(_, _ string, server clientEntry, _ string) map[string]string {
			entry := map[string]any{"httpUrl": server.url, "headers": server.headers(), "trust": true,
				"alwaysLoadTools": true}
			if server.url == "" {
				entry = map[string]any{"command": server.command[0], "args": server.command[1:],
					"trust": true, "alwaysLoadTools": true}
			}
			return map[string]string{".qwen/settings.json": jsonText(
				map[string]any{"mcpServers": map[string]any{"skills": entry},
					"security": map[string]any{"auth": map[string]any{"selectedType": "openai"}},
					"general":  map[string]any{"disableAutoUpdate": true, "enableAutoUpdate": false},
					"privacy":  map[string]any{"usageStatisticsEnabled": false}})}
		},
		args: []string{"-p", "go", "-o", "json", "--approval-mode", "yolo"},
	},
}

func (e clientEntry) headers() map[string]string {
	return map[string]string{"Authorization": "Bearer " + e.token}
}

// clientRun is what a real client is to do.
type clientRun struct {
	// serve are arguments of skillsd serve, to which the state directory is added.
	serve []string
	turns []turn
	// home and work are files of the home directory and of the one in which the client works.
	home, work map[string]string
	// more is added to the client's own configuration, env to its environment, and args to its arguments.
	more      string
	env, args []string
	// terminal is called with the terminal that the client runs in, with the arguments of instead; nil runs it
	// once, without one. WORK in its files is the directory in which it works.
	terminal func(s *screen)
	instead  []string
}

// clientOutcome is what came of it.
type clientOutcome struct {
	*model
	t      *testing.T
	state  string
	home   string
	stderr string
}

// runRealClient runs a client against a server that it starts, or over HTTP against one that is there.
func runRealClient(t *testing.T, name string, overHTTP bool, run clientRun) *clientOutcome {
	t.Helper()
	client, home, work := realClients[name], t.TempDir(), tree(t, run.work)
	path := clientPath(t, name)
	o := &clientOutcome{model: newModel(t, run.turns), t: t, home: home}
	server := clientEntry{token: "sesame"}
	if overHTTP {
		tokens := filepath.Join(t.TempDir(), "tokens")
		if err := os.WriteFile(tokens, fmt.Appendf(nil, "alice: %x\n", sha256.Sum256([]byte(server.token))),
			0o600); err != nil {
			t.Fatal(err)
		}
		site := serveHTTP(t, append([]string{"--auth-token-file", tokens}, run.serve...)...)
		server.url, o.state = site.url, site.state
	} else {
		o.state = t.TempDir()
		server.command = append([]string{binary, "serve", "--state", o.state}, run.serve...)
	}
	files := client.configure(home, o.url, server, run.more)
	maps.Copy(files, run.home)
	for file, text := range files {
		file = filepath.Join(home, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		text = strings.ReplaceAll(text, "WORK", work)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	args := slices.Concat(client.args, run.args)
	if run.terminal != nil {
		args = slices.Clone(run.instead)
	}
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "HOME", home)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(path, name), args...)
	cmd.Dir = work
	// Nothing of the caller's environment, since it may have keys of real models.
	cmd.Env = slices.Concat([]string{"PATH=" + path + ":" + os.Getenv("PATH"), "HOME=" + home, "TERM=dumb",
		"LANG=C.UTF-8", "TMPDIR=" + t.TempDir()},
		client.env(home, o.url), run.env)
	if run.terminal != nil {
		run.terminal(newScreen(t, cmd))
		return o
	}
	ownGroup(cmd)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if exit, ok := err.(*exec.ExitError); ok {
		o.stderr = string(exit.Stderr)
	}
	if err != nil {
		t.Errorf("%s: %v\n%s\n%s", name, err, o.stderr, out)
	}
	return o
}

// skillsd runs a command on the records of the run.
func (o *clientOutcome) skillsd(args ...string) string {
	o.t.Helper()
	out, err := exec.CommandContext(o.t.Context(), binary,
		append(args, "--state", o.state)...).CombinedOutput()
	if err != nil {
		o.t.Errorf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

// eachClient runs a test with each client, over stdio and over HTTP.
func eachClient(t *testing.T, test func(t *testing.T, name string, overHTTP bool)) {
	if *clients == "" {
		t.Skip("no client is installed: make clients does")
	}
	for _, name := range slices.Sorted(maps.Keys(realClients)) {
		t.Run(name, func(t *testing.T) {
			t.Run("stdio", func(t *testing.T) { test(t, name, false) })
			t.Run("http", func(t *testing.T) { test(t, name, true) })
		})
	}
}

// TestClientsLoadReadRun lets each client load a skill, read a file, run a script, be refused another, and
// ask for a skill that is not there; one session has it all.
func TestClientsLoadReadRun(t *testing.T) {
	eachClient(t, func(t *testing.T, name string, overHTTP bool) {
		o := runRealClient(t, name, overHTTP, clientRun{
			serve: demo(t, "ok.sh"),
			turns: []turn{
				{{tool: "load_skill", args: map[string]any{"name": "demo"}}},
				{{tool: "read_skill_resource",
					args: map[string]any{"skill": "demo", "path": "references/notes.md"}}},
				{{tool: "run_skill_script", args: map[string]any{"skill": "demo", "path": "scripts/ok.sh",
					"args": []string{"one"}}}},
				{{tool: "run_skill_script", args: map[string]any{"skill": "demo",
					"path": "scripts/other.sh"}}},
				{{tool: "load_skill", args: map[string]any{"name": "demu"}}},
			},
		})
		for i, want := range []string{"# Demo", "Notes: äöü €", "ran-ok one", "script_not_allowlisted",
			"did you mean"} {
			if got := o.result(t, i, 0); !strings.Contains(got.text, want) || name == "claude" &&
				got.isError != (i > 2) {
				t.Errorf("turn %d: the result is an error: %v; it lacks %q:\n%s", i, got.isError, want,
					got.text)
			}
		}
		if list := o.skillsd("session", "list"); strings.Count(list, "ses_") != 1 {
			t.Errorf("not one session:\n%s", list)
		}
	})
}

// TestClientsCodeMode lets Codex call tools from a program, as it does with newer models.
func TestClientsCodeMode(t *testing.T) {
	o := runRealClient(t, "codex", false, clientRun{
		serve: demo(t, "ok.sh"),
		turns: []turn{
			{{tool: "load_skill", args: map[string]any{"name": "demo"}}},
			{{tool: "run_skill_script", args: map[string]any{"skill": "demo", "path": "scripts/ok.sh",
				"args": []string{"one"}}}},
		},
		more: "model=gpt-6.1-sol\n",
	})
	for i, want := range []string{"# Demo", "ran-ok one"} {
		if got := o.result(t, i, 0).text; !strings.Contains(got, want) {
			t.Errorf("turn %d: the result lacks %q:\n%s", i, want, got)
		}
	}
}
