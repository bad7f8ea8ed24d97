package e2e

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestSuiteInspector lets the MCP Inspector use the server over both transports in both eras. With
// --verify it holds every skill to the extension's text, and every file to its digest and size.
func TestSuiteInspector(t *testing.T) {
	modules(t)
	root := exampleSkills(t)
	for transport, server := range map[string]map[string]any{
		"stdio": {"type": "stdio", "command": binary, "args": []string{"serve", "--skills-root", root, "--state", t.TempDir(), "--log-level", "error"}},
		"http":  {"type": "streamable-http", "url": serveHTTP(t, "--skills-root", root).url},
	} {
		config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"skills": server}})
		if err != nil {
			t.Fatal(err)
		}
		file := written(t, "inspector.json", string(config))
		for _, era := range []string{"legacy", "modern"} {
			for _, tt := range []struct{ call, want string }{
				{"skills/list --verify --require-digests", `"csv-report"`},
				{"skills/get --uri skill://csv-report/SKILL.md --verify --require-digests", `"csv-report"`},
				{"resources/directory/read --uri skill://csv-report", "skill://csv-report/references"},
				{"resources/list", "skill://csv-report/SKILL.md"},
				{"resources/read --uri skill://csv-report/references/columns.md", `"contents"`},
				{"resources/templates/list", "skill://{+path}"},
				{"prompts/list", `"csv-report"`},
				{"prompts/get --prompt-name csv-report --prompt-args request=hello", `"messages"`},
				{"tools/list --strict", `"load_skill"`},
				{"tools/call --tool-name load_skill --tool-arg name=csv-report", "----- skill csv-report "},
			} {
				words := strings.Fields(tt.call)
				t.Run(transport+"/"+era+"/"+words[0], func(t *testing.T) {
					out, err := suite(t, "mcp-inspector", append([]string{"--cli", "--config", file, "--server", "skills", "--protocol-era", era, "--method"}, words...)...).CombinedOutput()
					if err != nil || !strings.Contains(string(out), tt.want) {
						t.Errorf("%s: %v, want %s in\n%s", tt.call, err, tt.want, out)
					}
				})
			}
		}
	}
}
