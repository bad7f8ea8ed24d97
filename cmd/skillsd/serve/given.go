package serve

import (
	"context"
	"maps"
	"slices"

	"github.com/skillsd/skillsd/cmd/skillsd/clients"
	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
)

// AllowRows returns the entries of the configuration, each with its state, the program that runs its script
// here, and the workspaces that are given to it.
//
// Errors: *exit.Error for an entry that cannot be read.
func (j *Judge) AllowRows(
	ctx context.Context, p *config.Process, snapshot *skills.Snapshot, installed install.Installed,
) ([]AllowRow, error) {
	rows := []AllowRow{}
	finder := p.Interpreters()
	keys, given := p.Cfg.Keys.Allow, givenWorkspaces(p)
	for i := range keys {
		entry, err := keys[i].Entry()
		if err != nil {
			return nil, err
		}
		row := j.AllowState(ctx, snapshot, entry, installed)
		if row.State == StateAllowed || row.State == StateUnpinned {
			// For entries in the sandbox SearchPath is empty.
			found, err := finder.FindOnHost(ctx, string(row.Runtime), entry.SearchPath)
			if err == nil && found != nil {
				row.Program = found.Path
			}
		}
		for _, ws := range given {
			if text := ws.to(entry); text != "" && row.Target == policy.TargetSandbox {
				row.Given = append(row.Given, text)
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// givenWorkspace is a workspace that scripts are given.
type givenWorkspace struct {
	where string // in words
	mode  sandbox.WorkspaceMode
}

// to returns what a script with an entry is given, in words; "" for nothing.
func (g givenWorkspace) to(entry policy.Entry) string {
	mode := g.mode
	switch entry.Workspace {
	case string(sandbox.WorkspaceNone):
		return ""
	case string(sandbox.WorkspaceRO):
		mode = sandbox.WorkspaceRO
	}
	words := map[sandbox.WorkspaceMode]string{sandbox.WorkspaceRO: "to read",
		sandbox.WorkspaceStaged: "changes are staged", sandbox.WorkspaceRW: "to write"}
	return "workspace: " + g.where + " (" + words[mode] + ")"
}

// givenWorkspaces returns the workspaces that the configuration and the entries of this user's clients give
// to scripts.
func givenWorkspaces(p *config.Process) (list []givenWorkspace) {
	add := func(value, client string, fromClient bool) {
		if value == "" && !fromClient {
			return
		}
		dir, mode := config.SplitWorkspace(value)
		if dir == "" {
			dir = "the directory in which " + client + " works"
		} else if client != "the client" {
			dir += ", in " + client
		}
		list = append(list, givenWorkspace{dir, mode})
	}
	add(p.Cfg.Keys.Workspace, "the client", p.Cfg.Keys.FromClient)
	for _, client := range clients.All() {
		lines := client.Commands(p.Env)
		for _, name := range slices.Sorted(maps.Keys(lines)) {
			add(clients.FlagValue(lines[name], "workspace"), client.Title,
				clients.IsSwitchedOn(lines[name], "workspace-from-client"))
		}
	}
	return list
}
