package signal

import (
	"slices"
	"strings"
)

// agentFile is a file that an agent or an editor obeys where it finds it.
type agentFile struct {
	dirs, bases []string // the last directory and the name, in lower case; no dirs: any
	keys        []string // a text of these and agentCommand together run a command
}

const agentCommand = `"command"`

// agentFilesOf are the files of agents and editors that run commands.
var agentFilesOf = []agentFile{
	{nil, []string{"settings.json", "settings.local.json", "hooks.json"},
		[]string{`"hooks"`, `"mcpServers"`}},
	{nil, []string{".mcp.json"}, []string{`"mcpServers"`}},
	{[]string{".cursor", ".vscode"}, []string{"mcp.json"}, []string{`ervers"`}},
	{nil, []string{"tasks.json"}, []string{`"` + onOpening + `"`}},
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

// agentSearch is the state of the search of a file that an agent or an editor obeys.
type agentSearch struct {
	file               *agentFile // nil for another file, and once a command is found
	hasKey, hasCommand bool       // the texts that were found
}

// searchAgentFile searches a line, if it is of such a file, for the command that it runs.
func (s *Scanner) searchAgentFile(line []byte) {
	a := &s.agent
	if a.file == nil {
		return
	}
	a.hasKey = a.hasKey || containsAny(line, a.file.keys...)
	a.hasCommand = a.hasCommand || containsAny(line, agentCommand)
	if a.hasKey && a.hasCommand {
		s.found.addPlain(Unasked, s.line)
		a.file = nil
	}
}
