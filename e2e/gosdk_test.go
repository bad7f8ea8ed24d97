package e2e

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var activationLine = regexp.MustCompile(`(?m)^Activation: (\S+)`)

// The official Go SDK, an implementation of the protocol that shares no code with the server, lists,
// loads, reads, is denied, and finds every resource, over both transports in both eras.
func TestOfficialClient(t *testing.T) {
	t.Parallel()
	args := demo(t, "ok.sh")
	for name, transport := range map[string]func(t *testing.T) mcp.Transport{
		"stdio": func(t *testing.T) mcp.Transport {
			return &mcp.CommandTransport{Command: exec.Command(binary, append([]string{"serve", "--state", t.TempDir(), "--log-format", "json"}, args...)...)}
		},
		"http": func(t *testing.T) mcp.Transport {
			return &mcp.StreamableClientTransport{Endpoint: serveHTTP(t, args...).url}
		},
	} {
		for _, revision := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
			t.Run(name+"/"+revision, func(t *testing.T) {
				client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil)
				session, err := client.Connect(t.Context(), transport(t), &mcp.ClientSessionOptions{ProtocolVersion: revision})
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close()
				if got := session.InitializeResult().ProtocolVersion; got != revision {
					t.Errorf("the server speaks %s, want %s", got, revision)
				}
				checkTools(t, session)
				checkCalls(t, session)
				checkPrompt(t, session)
				checkResources(t, session)
			})
		}
	}
}

func checkTools(t *testing.T, session *mcp.ClientSession) {
	t.Helper()
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	descriptions := map[string]string{}
	for _, tool := range tools.Tools {
		descriptions[tool.Name] = tool.Description
	}
	if len(descriptions) != 3 || !strings.Contains(descriptions["load_skill"], "demo: A skill for tests.") {
		t.Errorf("tools/list = %v", descriptions)
	}
}

func checkPrompt(t *testing.T, session *mcp.ClientSession) {
	t.Helper()
	prompt, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "demo", Arguments: map[string]string{"request": "hello"}})
	if err != nil || len(prompt.Messages) == 0 {
		t.Errorf("prompts/get = %+v %v", prompt, err)
	}
}

func checkCalls(t *testing.T, session *mcp.ClientSession) {
	t.Helper()
	activation := ""
	for _, call := range []struct {
		tool    string
		args    map[string]any
		isError bool
		text    string
	}{
		{"load_skill", map[string]any{"name": "demo"}, false, "# Demo"},
		{"load_skill", map[string]any{"name": "demoo"}, true, `did you mean \"demo\"?`},
		{"read_skill_resource", map[string]any{"skill": "demo", "path": "references/notes.md"}, false, "Notes: äöü €"},
		{"read_skill_resource", map[string]any{"skill": "demo", "path": "../../etc/passwd"}, true, "resource_path_invalid"},
		{"run_skill_script", demoScript("other.sh"), true, "script_not_allowlisted"},
	} {
		// Without a protocol session the handle is what connects calls.
		if activation != "" {
			call.args["activation"] = activation
		}
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: call.tool, Arguments: call.args})
		if err != nil {
			t.Fatalf("%s %v: %v", call.tool, call.args, err)
		}
		var text strings.Builder
		for _, content := range result.Content {
			if block, ok := content.(*mcp.TextContent); ok {
				text.WriteString(block.Text)
			}
		}
		if found := activationLine.FindStringSubmatch(text.String()); found != nil {
			activation = found[1]
		}
		if result.IsError != call.isError || !strings.Contains(text.String(), call.text) {
			t.Errorf("%s %v = %v %s, want %v with %q", call.tool, call.args, result.IsError, text.String(), call.isError, call.text)
		}
	}
}

func checkResources(t *testing.T, session *mcp.ClientSession) {
	t.Helper()
	count := 0
	for resource, err := range session.Resources(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		read, err := session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: resource.URI})
		if err != nil || len(read.Contents) != 1 {
			t.Errorf("resources/read %s: %v", resource.URI, err)
		}
		count++
	}
	if count != 1 {
		t.Errorf("%d resources, want the SKILL.md of one skill", count)
	}
}
