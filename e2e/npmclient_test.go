package e2e

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// said is the text of a tool's result.
type said struct {
	Text    string `json:"text"`
	IsError bool   `json:"isError"`
}

// told is what testdata/npmclient/client.mjs was told by the server.
type told struct {
	Version      string                     `json:"version"`
	Instructions string                     `json:"instructions"`
	Tools        map[string]string          `json:"tools"`
	Load         said                       `json:"load"`
	Unknown      said                       `json:"unknown"`
	Read         said                       `json:"read"`
	Escape       said                       `json:"escape"`
	Run          said                       `json:"run"`
	Skills       map[string]map[string]bool `json:"skills"`
	Directory    []string                   `json:"directory"`
	Resources    []string                   `json:"resources"`
	Prompts      []string                   `json:"prompts"`
	Prompt       string                     `json:"prompt"`
	Missing      int                        `json:"missing"`
	Late         bool                       `json:"late"`
}

// TestSuiteNpmClient lets the official TypeScript client read the catalogue, load, verify every file,
// be denied, and hear of a change on disk, over both transports in both eras.
func TestSuiteNpmClient(t *testing.T) {
	dir := modules(t)
	for transport, server := range map[string]func(t *testing.T, args []string) map[string]any{
		"stdio": func(t *testing.T, args []string) map[string]any {
			return map[string]any{"command": binary, "args": append([]string{"serve", "--state", t.TempDir(), "--log-level", "error"}, args...)}
		},
		"http": func(t *testing.T, args []string) map[string]any {
			return map[string]any{"url": serveHTTP(t, args...).url}
		},
	} {
		for _, tt := range []struct {
			name, version string
			mode          any
			missing       int
		}{
			// The client turns the older revisions' -32002 into the code of today when the data names the URI.
			{"legacy", "2025-11-25", "legacy", -32602},
			{"modern", "2026-07-28", map[string]string{"pin": "2026-07-28"}, -32602},
			{"auto", "2026-07-28", "auto", -32602},
		} {
			t.Run(transport+"/"+tt.name, func(t *testing.T) {
				root := tree(t, demoSkill())
				request := server(t, allowRun(root, "ok.sh"))
				maps.Copy(request, map[string]any{"modules": dir, "mode": tt.mode, "root": root})
				got := runNpmClient(t, request)
				if got.Version != tt.version || got.Missing != tt.missing {
					t.Errorf("version %s, a missing resource is %d; want %s, %d", got.Version, got.Missing, tt.version, tt.missing)
				}
				got.check(t)
			})
		}
	}
}

// check holds what was told to what is the same for all clients.
func (got *told) check(t *testing.T) {
	t.Helper()
	if !strings.Contains(got.Instructions, "demo") || !strings.Contains(got.Tools["load_skill"], "demo: A skill for tests.") || len(got.Tools) != 3 {
		t.Errorf("instructions %q, tools %q", got.Instructions, got.Tools)
	}
	for _, tt := range []struct {
		name string
		got  said
		want said
	}{
		{"load", got.Load, said{"# Demo", false}},
		{"load of an unknown skill", got.Unknown, said{`did you mean \"demo\"?`, true}},
		{"read", got.Read, said{"Notes: äöü €", false}},
		{"read outside of the skill", got.Escape, said{"resource_path_invalid", true}},
		{"run of a script not allowed", got.Run, said{"script_not_allowlisted", true}},
	} {
		if tt.got.IsError != tt.want.IsError || !strings.Contains(tt.got.Text, tt.want.Text) {
			t.Errorf("%s: %+v, want %+v", tt.name, tt.got, tt.want)
		}
	}
	files := map[string]bool{}
	for path := range demoSkill() {
		files["skill://"+path] = true
	}
	if len(got.Skills) != 1 || !maps.Equal(got.Skills["skill://demo/SKILL.md"], files) {
		t.Errorf("skills/list: %v", got.Skills)
	}
	if want := []string{"skill://demo/SKILL.md"}; !slices.Equal(got.Resources, want) {
		t.Errorf("resources/list: %q, want %q", got.Resources, want)
	}
	if want := []string{"skill://demo/SKILL.md", "skill://demo/assets", "skill://demo/references", "skill://demo/scripts"}; !slices.Equal(slices.Sorted(slices.Values(got.Directory)), want) {
		t.Errorf("resources/directory/read: %q, want %q", got.Directory, want)
	}
	if !got.Late {
		t.Error("nothing was said of the skill that came later")
	}
	if !slices.Equal(got.Prompts, []string{"demo"}) || !strings.Contains(got.Prompt, "# Demo") || !strings.Contains(got.Prompt, "hello") {
		t.Errorf("prompts %q, the prompt %q", got.Prompts, got.Prompt)
	}
}

// runNpmClient runs the client with a request as it wants it.
func runNpmClient(t *testing.T, request map[string]any) *told {
	t.Helper()
	raw, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	cmd := node(t, "testdata/npmclient/client.mjs", string(raw))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the client failed: %v\n%s", err, stderr.String())
	}
	got := &told{}
	if err := json.Unmarshal(out, got); err != nil {
		t.Fatalf("the client printed %q: %v", out, err)
	}
	return got
}
