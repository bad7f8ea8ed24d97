package signal

import (
	"bytes"
	"slices"
	"strings"
)

// agentFile is a file that an agent or an editor obeys where it finds it, and what in it runs a command.
type agentFile struct {
	dirs, bases []string // the last directory and the name, in lower case; no dirs: any
	key, runs   []byte   // texts of the file that together run a command
}

// agentFilesOf are the files of agents and editors.
var agentFilesOf = []agentFile{
	{nil, []string{"settings.json", "settings.local.json", "hooks.json"}, []byte(`"hooks"`),
		[]byte(`"command"`)},
	{nil, []string{".mcp.json"}, []byte(`"mcpServers"`), []byte(`"command"`)},
	{[]string{".cursor", ".vscode"}, []string{"mcp.json"}, []byte(`ervers"`), []byte(`"command"`)},
	{nil, []string{"tasks.json"}, []byte(`"folderOpen"`), []byte(`"command"`)},
	{nil, []string{"devcontainer.json"}, []byte(`"initializeCommand"`), []byte(`:`)},
}

// agentFileOf returns the row of a file, by its path in lower case, or nil.
func agentFileOf(path string) *agentFile {
	dir, base := "", path
	if at := strings.LastIndexByte(path, '/'); at >= 0 {
		dir, base = path[:at], path[at+1:]
		dir = dir[strings.LastIndexByte(dir, '/')+1:]
	}
	for i := range agentFilesOf {
		f := &agentFilesOf[i]
		if slices.Contains(f.bases, base) && (f.dirs == nil || slices.Contains(f.dirs, dir)) {
			return f
		}
	}
	return nil
}

// searchAgentFile searches a line of a file that an agent or an editor obeys for the command that it runs.
func (s *Scanner) searchAgentFile(line []byte) {
	s.hasKey = s.hasKey || bytes.Contains(line, s.agent.key)
	s.hasRuns = s.hasRuns || bytes.Contains(line, s.agent.runs)
	if s.hasKey && s.hasRuns {
		s.countPlain(Unasked, s.line)
		s.agent = nil
	}
}
