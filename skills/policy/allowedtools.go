package policy

import (
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/pattern"
	sh "github.com/skillsd/skillsd/skills/script"
)

// The tools in a skill's allowed-tools that affect its scripts: the tool that runs them, and the agent's
// shell.
const (
	runTool   = "run_skill_script"
	shellTool = "Bash"
)

// otherTools are tools of agents that authors write in lower case like programs.
var otherTools = []string{"read", "write", "edit", "multiedit", "glob", "grep", "ls", "list", "view",
	"search", "fetch", "webfetch", "websearch", "web", "browser", "task", "todo", "todowrite",
	"todoread", "agent", "notebookedit", "notebookread", "skill", "think", "memory", "none"}

var programWord = pattern.New(`^[a-z0-9][a-z0-9.+-]*$`)

// covers reports whether a skill's allowed-tools cover one of its scripts, which runs in a runtime:
//
//   - run_skill_script, alone or with this path;
//   - the agent's shell with any pattern, since the pattern limits that shell and not the skill's scripts;
//   - the script's own interpreter, such as python;
//   - for shell scripts, another program, such as terraform: they start the programs of the skill.
func covers(tools []string, path string, runtime sh.Runtime) bool {
	in := runtime.Interpreter()
	return slices.ContainsFunc(tools, func(word string) bool {
		tool, pattern, narrowed := cutPattern(word)
		switch {
		case tool == runTool:
			// The path in parentheses is exact: allowed-tools have patterns for shells, but an entry has
			// none.
			return !narrowed || pattern == path
		case tool == shellTool:
			return true
		case in == nil:
			return false
		case in.IsCalled(tool):
			return true
		}
		// Names of tools are in lower case in many skills. Taken for programs, they would cover every shell
		// script of the skill.
		return in.Shell && programWord().MatchString(tool) && !slices.Contains(otherTools, tool) &&
			!sh.IsInterpreter(tool)
	})
}

// cutPattern splits a word of allowed-tools: "Bash(git add:*)" is the tool Bash with the pattern "git add:*".
func cutPattern(word string) (tool, pattern string, narrowed bool) {
	if call, ok := strings.CutSuffix(word, ")"); ok {
		if tool, pattern, ok := strings.Cut(call, "("); ok {
			return tool, pattern, true
		}
	}
	return word, "", false
}

var program = pattern.New(`^[A-Za-z0-9_][A-Za-z0-9._+-]*$`)

// Programs returns the programs that a skill's allowed-tools let the agent's shell start: git for "Bash(git
// add:*)". Patterns without a plain name are left out.
func Programs(tools []string) (names []string) {
	for _, word := range tools {
		tool, pattern, _ := cutPattern(word)
		name, _, _ := strings.Cut(pattern, ":")
		name, _, _ = strings.Cut(name, " ")
		if tool == shellTool && program().MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}
