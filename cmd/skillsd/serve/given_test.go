package serve

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// What scripts are given follows from the configuration, and from the flags in the entries of clients.
func TestGivenWorkspaces(t *testing.T) {
	const cursor = "the directory in which Cursor works"
	for _, tt := range []struct {
		name       string
		workspace  string // in the configuration
		fromClient bool
		args       []string // of the entry of a client
		want       []givenWorkspace
	}{
		{"nothing", "", false, []string{"serve"}, nil},
		{"configured", "/w:rw", false, nil, []givenWorkspace{{"/w", sandbox.WorkspaceRW}}},
		{"configured from the client", "", true, nil,
			[]givenWorkspace{{"the directory in which the client works", sandbox.WorkspaceRO}}},
		{"mode alone", ":staged", true, nil,
			[]givenWorkspace{{"the directory in which the client works", sandbox.WorkspaceStaged}}},
		{"entry", "", false, []string{"serve", "--workspace", "/w:rw"}, []givenWorkspace{{"/w, in Cursor", sandbox.WorkspaceRW}}},
		{"last of an entry", "", false, []string{"serve", "--workspace=/v", "--workspace=/w"},
			[]givenWorkspace{{"/w, in Cursor", sandbox.WorkspaceRO}}},
		{"from the client", "", false, []string{"serve", "--workspace-from-client", "--workspace=:staged"},
			[]givenWorkspace{{cursor, sandbox.WorkspaceStaged}}},
		{"bare", "", false, []string{"serve", "--workspace-from-client"}, []givenWorkspace{{cursor, sandbox.WorkspaceRO}}},
		{"true", "", false, []string{"serve", "--workspace-from-client=true"}, []givenWorkspace{{cursor, sandbox.WorkspaceRO}}},
		{"1", "", false, []string{"serve", "--workspace-from-client=1"}, []givenWorkspace{{cursor, sandbox.WorkspaceRO}}},
		{"false", "", false, []string{"serve", "--workspace-from-client=false"}, nil},
	} {
		home := t.TempDir()
		if tt.args != nil {
			entry := map[string]any{"mcpServers": map[string]any{"skillsd": map[string]any{
				"command": "skillsd", "args": tt.args}}}
			text, err := json.Marshal(entry)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(home, ".cursor", "mcp.json")
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p := &config.Process{Env: func(name string) (string, bool) {
			return map[string]string{"HOME": home, "USERPROFILE": home}[name], name == "HOME" || name == "USERPROFILE"
		}}
		p.Cfg.Keys.Workspace, p.Cfg.Keys.FromClient = tt.workspace, tt.fromClient
		got := givenWorkspaces(p)
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(givenWorkspace{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// The entry of a script narrows what it is given.
func TestGivenTo(t *testing.T) {
	for _, tt := range []struct {
		mode  sandbox.WorkspaceMode
		entry string
		want  string
	}{
		{sandbox.WorkspaceRO, "", "workspace: /w (to read)"},
		{sandbox.WorkspaceStaged, "", "workspace: /w (changes are staged)"},
		{sandbox.WorkspaceRW, "", "workspace: /w (to write)"},
		{sandbox.WorkspaceRW, "ro", "workspace: /w (to read)"},
		{sandbox.WorkspaceStaged, "ro", "workspace: /w (to read)"},
		{sandbox.WorkspaceRW, "none", ""},
	} {
		got := givenWorkspace{"/w", tt.mode}.to(policy.Entry{Workspace: tt.entry})
		if got != tt.want {
			t.Errorf("%s with %q: %q, want %q", tt.mode, tt.entry, got, tt.want)
		}
	}
}
