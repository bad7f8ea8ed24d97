package staged

import (
	"strings"
	"unicode"
)

// protectedNames are never written, made or deleted, at any depth: tools of the host run or
// trust what is in them. They are written in the form that fold returns; a "*" matches anything.
var protectedNames = []string{
	// Repositories, and what makes git take a directory for one or look for its settings elsewhere.
	".git", ".gitmodules", ".gitconfig", ".gitattributes", "commondir", "gitdir", "config.worktree",
	".githooks", ".hg", ".svn", ".bzr", ".jj", ".husky", ".overcommit.yml", ".pre-commit-config.y*ml",
	".lefthook*", "lefthook*", ".github", ".gitlab-ci.yml",
	// Shells, editors, debuggers and interpreters, which read them where they are started.
	".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile",
	".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login",
	".inputrc", ".direnv", ".env*", ".vimrc", ".exrc", ".nvimrc", ".nvim.lua", ".dir-locals*.el",
	".gdbinit", ".gdbearlyinit", ".lldbinit", ".rprofile", ".renviron", ".irbrc", ".pryrc", ".pdbrc*",
	".xprofile", ".xinitrc", ".xsession*", ".pam_environment", ".tmux.conf", ".emacs*", ".byebugrc", ".rspec",
	".ghci", ".ocamlinit", ".iex.exs", ".perldb", ".octaverc",
	".bash_completion", ".curlrc", ".wgetrc", ".sqliterc", ".psqlrc", ".docker", ".kube", ".aws", ".gnupg",
	".vscode", ".idea", ".zed", ".devcontainer*", ".config", ".local",
	".helix", "*.code-workspace", "*.sublime-project",
	// An interpreter loads these without being asked to.
	"__pycache__", "*.pyc", "*.pyo", "*.pth", "sitecustomize.py", "usercustomize.py", "conftest.py",
	".venv*", "venv", "pyvenv.cfg", "node_modules", ".pnp.*",
	// Package managers, build tools and managers of tools' versions.
	".npmrc", ".yarn", ".yarnrc*", ".pnpmfile.*", ".pypirc", ".cargo", ".mvn", ".gradle", ".bundle",
	".bazelrc", ".mise*", "mise.toml", "mise.*.toml", ".tool-versions", ".netrc", ".ssh",
	// Agents.
	".mcp.json", ".claude*", "claude.md", "claude.local.md", ".cursor*", ".codex", ".agents", "agents.md",
	"agents.override.md", ".gemini", "gemini.md", ".windsurf*", ".clinerules*", ".roo*", ".continue*",
	".kiro", ".opencode", "opencode.json*", ".amazonq", ".aider*", ".trae", ".qwen", ".junie", ".augment*",
	".factory", ".goosehints", ".goose", ".warp", "warp.md", ".openhands", ".devin", ".crush*", "crush.json",
	".copilot", ".rules",
}

// isProtected reports whether a file system of whatever kind could take name for one of
// protectedNames.
func isProtected(name string) bool {
	// A backslash is a separator to some.
	for part := range strings.SplitSeq(fold(name), `\`) {
		part, _, _ = strings.Cut(part, ":") // a stream or attribute of the file
		part = strings.TrimRight(part, ". ")
		for _, n := range protectedNames {
			if matches(part, n) || shortName(part, n) {
				return true
			}
		}
	}
	return false
}

// fold returns what file systems compare that ignore case and invisible characters, in small letters.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		// The smallest of the runes that differ only in case: a long s and the sign for Kelvin are letters.
		least := r
		for o := unicode.SimpleFold(r); o != r; o = unicode.SimpleFold(o) {
			least = min(least, o)
		}
		return unicode.ToLower(least)
	}, name)
}

// matches compares name with a pattern that has at most one "*".
func matches(name, pattern string) bool {
	before, after, star := strings.Cut(pattern, "*")
	if !star {
		return name == pattern
	}
	return len(name) >= len(before)+len(after) && strings.HasPrefix(name, before) &&
		strings.HasSuffix(name, after)
}

// shortName reports whether part is a short name, of eight characters, that a file called n can have
// besides its own: GIT~1 is .git.
func shortName(part, n string) bool {
	head, tail, ok := strings.Cut(part, "~")
	if !ok || tail == "" || tail[0] < '0' || tail[0] > '9' {
		return false
	}
	n, _, _ = strings.Cut(strings.TrimLeft(n, "."), ".")
	n = strings.TrimSuffix(n, "*")
	return head != "" && head == n[:min(len(n), 6)]
}
