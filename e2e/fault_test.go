package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const faultySecret = "sk-live-0123456789abcdef"

// faulty starts a server whose configuration has a fault, and returns it with the configuration's path.
func faulty(t *testing.T, text string, args ...string) (p *process, path string) {
	t.Helper()
	path = written(t, "config.yaml", text)
	return serveWith(t, []string{"SERVICE_TOKEN=" + faultySecret}, append([]string{"--config", path}, args...)...), path
}

func initializeAs(client string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},` +
		`"clientInfo":{"name":"` + client + `","version":"1"}}}`
}

// The client of a server that cannot start gets the reason: as an error, or if its model would not see that,
// in the instructions and the tool of a server without skills.
func TestFaultIsTheAnswer(t *testing.T) {
	for name, tt := range map[string]struct{ config, want string }{
		"key":    {"roots: []\nallow_tols: [run_skill_script]\n", "config.yaml:2:1: unknown key allow_tols; did you mean"},
		"secret": {"log: {level: " + faultySecret + "}\n", "log.level: "},
	} {
		t.Run(name, func(t *testing.T) {
			discover := `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{` + modernMeta + `}}}`
			for _, opening := range []string{initializeAs("claude-code"), initializeAs("opencode"), discover} {
				p, _ := faulty(t, tt.config)
				p.send(opening)
				var got answer
				line := p.receive()
				if err := json.Unmarshal([]byte(line), &got); err != nil || got.Error == nil ||
					!strings.Contains(got.Error.Message, tt.want) || strings.Contains(line, faultySecret) {
					t.Errorf("%s\nwas answered %s", opening, line)
				}
				if exit, ok := errors.AsType[*exec.ExitError](p.leave()); !ok || exit.ExitCode() != 2 {
					t.Errorf("the exit code is not 2: %v", exit)
				}
			}
			for _, client := range []string{"codex-mcp-client", "gemini-cli-mcp-client"} {
				p, _ := faulty(t, tt.config)
				p.send(initializeAs(client))
				var got struct{ Result struct{ Instructions string } }
				line := p.receive()
				if err := json.Unmarshal([]byte(line), &got); err != nil || strings.Contains(line, faultySecret) {
					t.Errorf("%s: %s", client, line)
				}
				if seen := got.Result.Instructions; !strings.Contains(seen[:min(250, len(seen))], tt.want) {
					t.Errorf("%s does not see %q first:\n%s", client, tt.want, seen)
				}
				tools := string(p.ask("tools/list", "{}").Result)
				if !strings.Contains(tools, "Says why there are no skills. skillsd cannot start: ") || !strings.Contains(tools, tt.want) {
					t.Errorf("%s: tools/list = %s", client, tools)
				}
				if got := p.tool("skillsd_problem", map[string]any{}).text(); !strings.Contains(got, tt.want) {
					t.Errorf("%s: skillsd_problem = %s", client, got)
				}
				if got := p.ask("tools/call", `{"name":"load_skill","arguments":{"name":"demo"}}`); got.Error == nil {
					t.Errorf("%s: a call is served: %s", client, got.Result)
				}
				p.leave()
			}
		})
	}
}

// A server whose configuration is mended takes over the connection of a client that waits.
func TestFaultIsMended(t *testing.T) {
	p, path := faulty(t, "allow_tols: []\n", "--skills-root", tree(t, demoSkill()))
	p.send(initializeAs("gemini-cli-mcp-client"))
	p.receive()
	p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if got := p.ask("prompts/list", "{}"); string(got.Result) != `{"prompts":[]}` {
		t.Errorf("prompts/list = %s", got.Result)
	}
	if err := os.WriteFile(path, []byte("log: {level: warn}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if line := p.receive(); !strings.Contains(line, "notifications/tools/list_changed") {
		t.Errorf("not told that the tools changed: %s", line)
	}
	p.receive()
	p.receive()
	if got := p.tool("load_skill", map[string]any{"name": "demo"}).text(); !strings.Contains(got, "# Demo") {
		t.Errorf("load_skill = %s", got)
	}
	if err := p.leave(); err != nil && p.cmd.ProcessState.ExitCode() != 2 {
		t.Error(err)
	}
}

// A script that starts the server by mistake gets its exit code at once.
func TestFaultWithoutClient(t *testing.T) {
	path := written(t, "config.yaml", "allow_tols: []\n")
	open, _ := io.Pipe()
	for name, in := range map[string]io.Reader{"nothing": nil, "another text": strings.NewReader("y\n"),
		"a call": strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\n"), "HTTP": open} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(binary, "serve", "--config", path, "--state", t.TempDir())
			if name == "HTTP" {
				cmd.Args = append(cmd.Args, "--http", "127.0.0.1:0")
			} else {
				cmd.Stdin = in
			}
			var out bytes.Buffer
			cmd.Stdout = &out
			err := cmd.Run()
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 || out.Len() > 0 {
				t.Errorf("%v, printed %s", err, &out)
			}
		})
	}
}

// Each real client shows a fault: where it can, to its model.
func TestClientsFault(t *testing.T) {
	if *clients == "" {
		t.Skip("no client is installed: make clients does")
	}
	path := written(t, "config.yaml", "allow_tols: []\n")
	for _, name := range slices.Sorted(maps.Keys(realClients)) {
		t.Run(name, func(t *testing.T) {
			run := clientRun{serve: []string{"--config", path}}
			if name == "codex" || name == "gemini" {
				run.turns = []turn{{{tool: "skillsd_problem", args: map[string]any{}}}}
			}
			o := runRealClient(t, name, false, run)
			const want = "unknown key allow_tols"
			toUser := []string{"copilot", "opencode", "qwen"} // their models see nothing of a server that failed
			if !slices.Contains(toUser, name) && !strings.Contains(o.first(), want) {
				t.Error("the model does not see the fault")
			}
			if len(run.turns) > 0 && !strings.Contains(o.result(t, 0, 0).text, want) {
				t.Errorf("skillsd_problem = %s", o.result(t, 0, 0).text)
			}
		})
	}
}
