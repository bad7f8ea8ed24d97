package staged

import (
	"strings"
	"unicode"
)

// protectedNames are not written, created or deleted, at any depth, because tools on the host run or trust
// these files. The names are in the form that fold returns; a "*" matches anything.
var protectedNames = []string{
	// Repositories, and files that make git treat a directory as one or read its settings elsewhere.
	".git", ".gitmodules", ".gitconfig", ".gitattributes", "commondir", "gitdir", "config.worktree",
	".githooks", ".hg", ".svn", ".bzr", ".jj", ".husky", ".overcommit.yml", ".pre-commit-config.y*ml",
	".lefthook*", "lefthook*", ".github", ".gitlab-ci.yml",
	// Shells, editors, debuggers and interpreters, which read these files in their working directory.
	".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile",
	".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login",
	".inputrc", ".direnv", ".env*", ".vimrc", ".exrc", ".nvimrc", ".nvim.lua", ".dir-locals*.el",
	".gdbinit", ".gdbearlyinit", ".lldbinit", ".rprofile", ".renviron", ".irbrc", ".pryrc", ".pdbrc*",
	".xprofile", ".xinitrc", ".xsession*", ".pam_environment", ".tmux.conf", ".emacs*", ".byebugrc", ".rspec",
	".ghci", ".ocamlinit", ".iex.exs", ".perldb", ".octaverc",
	".bash_completion", ".curlrc", ".wgetrc", ".sqliterc", ".psqlrc", ".docker", ".kube", ".aws", ".gnupg",
	".vscode", ".idea", ".zed", ".devcontainer*", ".config", ".local",
	".helix", "*.code-workspace", "*.sublime-project",
	// Files that interpreters load automatically.
	"__pycache__", "*.pyc", "*.pyo", "*.pth", "sitecustomize.py", "usercustomize.py", "conftest.py",
	".venv*", "venv", "pyvenv.cfg", "node_modules", ".pnp.*",
	// Package managers, build tools and version managers.
	".npmrc", ".yarn", ".yarnrc*", ".pnpmfile.*", ".pypirc", ".cargo", ".mvn", ".gradle", ".bundle",
	".bazelrc", ".mise*", "mise.toml", "mise.*.toml", ".tool-versions", ".netrc", ".ssh",
	// Agents.
	".mcp.json", ".claude*", "claude.md", "claude.local.md", ".cursor*", ".codex", ".agents", "agents.md",
	"agents.override.md", ".gemini", "gemini.md", ".windsurf*", ".clinerules*", ".roo*", ".continue*",
	".kiro", ".opencode", "opencode.json*", ".amazonq", ".aider*", ".trae", ".qwen", ".junie", ".augment*",
	".factory", ".goosehints", ".goose", ".warp", "warp.md", ".openhands", ".devin", ".crush*", "crush.json",
	".copilot", ".rules",
}

// isProtected reports whether any kind of file system could treat name as one of protectedNames.
func isProtected(name string) bool {
	// Some file systems treat a backslash as a separator.
	for part := range strings.SplitSeq(fold(name), `\`) {
		// The rest is a stream or an attribute of the file.
		part, _, _ = strings.Cut(part, ":")
		part = strings.TrimRight(part, ". ")
		for _, n := range protectedNames {
			if matches(part, n) || shortName(part, n) {
				return true
			}
		}
	}
	return false
}

// fold returns name in lower case and without invisible characters, as some file systems compare names.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		// The smallest rune of those that differ only in case is used, so that a long s and the Kelvin sign
		// become letters.
		least := r
		for o := unicode.SimpleFold(r); o != r; o = unicode.SimpleFold(o) {
			least = min(least, o)
		}
		return unicode.ToLower(least)
	}, name)
}

// matches reports whether name matches a pattern with at most one "*".
func matches(name, pattern string) bool {
	before, after, star := strings.Cut(pattern, "*")
	if !star {
		return name == pattern
	}
	return len(name) >= len(before)+len(after) && strings.HasPrefix(name, before) &&
		strings.HasSuffix(name, after)
}

// shortName reports whether part can be the short name, of eight characters, of a file called n: GIT~1 is
// .git.
func shortName(part, n string) bool {
	head, tail, ok := strings.Cut(part, "~")
	if !ok || tail == "" || tail[0] < '0' || tail[0] > '9' {
		return false
	}
	n, _, _ = strings.Cut(strings.TrimLeft(n, "."), ".")
	n = strings.TrimSuffix(n, "*")
	return head != "" && head == n[:min(len(n), 6)]
}
