package main

import (
	"slices"
	"testing"

	"github.com/skillsd/skillsd/cmd/skillsd/clients"
)

// Each client that runs commands for its model, and that skillsd sets up, is recognized by a variable.
func TestAgentVariables(t *testing.T) {
	variables := map[string]string{"claude": "CLAUDECODE", "codex": "CODEX_CI", "gemini": "GEMINI_CLI", "opencode": "OPENCODE",
		"copilot": "COPILOT_CLI", "qwen": "QWEN_CODE", "cursor": "CURSOR_AGENT", "antigravity": "ANTIGRAVITY_AGENT",
		"cline": "CLINE_ACTIVE", "goose": "GOOSE_TERMINAL"}
	// Their shells set no variable that is known, or they have none.
	unknown := []string{"vscode", "inspector", "claude-desktop", "kiro", "zed"}
	for _, client := range clients.All() {
		variable := variables[client.Name]
		if variable == "" && !slices.Contains(unknown, client.Name) {
			t.Errorf("it is not decided how the shell of %s is recognized", client.Name)
		}
		if variable == "" {
			continue
		}
		a := &app{}
		a.Env = func(name string) (string, bool) { return map[string]string{variable: "1"}[name], name == variable }
		if a.agentShell() != variable || a.byUser("x") == nil {
			t.Errorf("the shell of %s is not recognized by %s", client.Name, variable)
		}
	}
}
