package signal

import (
	"bytes"
	"slices"
	"strings"
)

// agentFile is a file that an agent or an editor obeys where it finds it, and what in it runs a command.
type agentFile struct {
	dirs, bases []string // the last directory and the name, in lower case; no dirs: any
	keys        []string // a text of these
	runs        string   // and this one together run a command
}

// agentFilesOf are the files of agents and editors.
var agentFilesOf = []agentFile{
	{nil, []string{"settings.json", "settings.local.json", "hooks.json"}, []string{`"hooks"`, `"mcpServers"`},
		`"command"`},
	{nil, []string{".mcp.json"}, []string{`"mcpServers"`}, `"command"`},
	{[]string{".cursor", ".vscode"}, []string{"mcp.json"}, []string{`ervers"`}, `"command"`},
	{nil, []string{"tasks.json"}, []string{`"folderOpen"`}, `"command"`},
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
	has := func(text string) bool { return bytes.Contains(line, []byte(text)) }
	s.hasKey = s.hasKey || slices.ContainsFunc(s.agent.keys, has)
	s.hasRuns = s.hasRuns || has(s.agent.runs)
	if s.hasKey && s.hasRuns {
		s.countPlain(Unasked, s.line)
		s.agent = nil
	}
}
