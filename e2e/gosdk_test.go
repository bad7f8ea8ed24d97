package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The official Go SDK, an implementation of the protocol that shares no code with the server,
// lists, loads, reads, is denied, and finds every resource.
func TestOfficialClient(t *testing.T) {
	ctx := t.Context()
	root := tree(t, demoSkill())
	args := append([]string{"serve", "--state", stateDir(t), "--log-format", "json"}, allowRun(root, "ok.sh")...)
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: exec.Command(binary, args...)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	tools, err := session.ListTools(ctx, nil)
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
		{"run_skill_script", map[string]any{"skill": "demo", "path": "scripts/other.sh"}, true, "script_not_allowlisted"},
	} {
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: call.tool, Arguments: call.args})
		if err != nil {
			t.Fatalf("%s %v: %v", call.tool, call.args, err)
		}
		var text strings.Builder
		for _, content := range result.Content {
			if block, ok := content.(*mcp.TextContent); ok {
				text.WriteString(block.Text)
			}
		}
		if result.IsError != call.isError || !strings.Contains(text.String(), call.text) {
			t.Errorf("%s %v = %v %s, want %v with %q", call.tool, call.args, result.IsError, text.String(), call.isError, call.text)
		}
	}
	count := 0
	for resource, err := range session.Resources(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		read, err := session.ReadResource(ctx, &mcp.ReadResourceParams{URI: resource.URI})
		if err != nil || len(read.Contents) != 1 {
			t.Errorf("resources/read %s: %v", resource.URI, err)
		}
		count++
	}
	if count != len(demoSkill()) {
		t.Errorf("%d resources, want %d", count, len(demoSkill()))
	}
}
