package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	diff "github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// toolServers are the servers whose tools the table has: one that only serves skills, and one with all that
// operators can add.
var toolServers = []struct {
	title string
	args  []string
}{
	{"By default", nil},
	{"With search, and a script that is allowed",
		[]string{"--search", "always", "--allow-tool", "run_skill_script", "--allow-skill-script",
			"notes:scripts/add.sh"}},
}

// TestTools compares what models are shown with testdata/tools.md, where a change is seen in a review: names,
// descriptions and arguments of the tools, and the instructions of the server. With -update it rewrites the file.
func TestTools(t *testing.T) {
	root := tree(t, map[string]string{
		"notes/SKILL.md":       "---\nname: notes\ndescription: Keeps notes. Use it to write one down.\n---\nWrite.\n",
		"notes/scripts/add.sh": "#!/bin/sh\necho added\n",
	})
	var out strings.Builder
	out.WriteString("# What models are shown\n\nWritten by `go test ./e2e -run TestTools -update`. The catalogue in " +
		"the description of load_skill\nhas one skill of the test.\n")
	for _, server := range toolServers {
		args := append([]string{"--skills-root", root, "--no-default-roots"}, server.args...)
		writeTools(t, &out, server.title, args)
	}
	const golden = "testdata/tools.md"
	if *update {
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != out.String() {
		t.Errorf("models are shown something else than %s has; if that is meant, run this test with -update\n%s",
			golden, diff.Diff(strings.Split(string(want), "\n"), strings.Split(out.String(), "\n")))
	}
}

// writeTools writes what the clients of a server get from initialize and tools/list.
func writeTools(t *testing.T, out *strings.Builder, title string, args []string) {
	t.Helper()
	session := officialClient(t, args...)
	fmt.Fprintf(out, "\n## %s\n\nInstructions:\n\n%s\n", title, quoted(session.InitializeResult().Instructions))
	listed, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range listed.Tools {
		writeTool(t, out, tool)
	}
}

// officialClient connects the official SDK to a server on stdio.
func officialClient(t *testing.T, args ...string) *mcp.ClientSession {
	t.Helper()
	all := append([]string{"serve", "--state", t.TempDir(), "--log-format", "json"}, args...)
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: exec.Command(binary, all...)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

// writeTool writes one tool, with a row for each argument.
func writeTool(t *testing.T, out *strings.Builder, tool *mcp.Tool) {
	t.Helper()
	fmt.Fprintf(out, "\n### %s\n\n%s\n", tool.Name, quoted(tool.Description))
	var schema struct {
		Properties map[string]map[string]any
		Required   []string
	}
	raw, err := json.Marshal(tool.InputSchema)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &schema); err != nil {
		t.Fatal(err)
	}
	if len(schema.Properties) > 0 {
		out.WriteString("\n| argument | schema | description |\n|---|---|---|\n")
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		about, _ := property["description"].(string)
		delete(property, "description")
		form, err := json.Marshal(property)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(schema.Required, name) {
			name += " (required)"
		}
		fmt.Fprintf(out, "| %s | `%s` | %s |\n", name, cell(string(form)), cell(about))
	}
	output := "none"
	if tool.OutputSchema != nil {
		text, err := json.Marshal(tool.OutputSchema)
		if err != nil {
			t.Fatal(err)
		}
		output = shape(t, text)
	}
	annotations, err := json.Marshal(tool.Annotations)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(out, "\nAnnotations `%s`; input schema %s, output schema %s.\n", annotations, shape(t, raw), output)
}

// quoted returns a text as a quotation of Markdown, with its lines as they are.
func quoted(text string) string {
	return strings.TrimRight("> "+strings.ReplaceAll(cmp.Or(text, "(none)"), "\n", "\n> "), " ")
}

// cell returns a text for a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("\n", " ", "|", `\|`).Replace(text)
}
