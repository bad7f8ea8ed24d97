package staged

import "testing"

func TestIsProtected(t *testing.T) {
	for _, name := range []string{
		".git", ".GIT", ".Git", ".git.", ".git ", ".git . .", "GIT~1", "git~2", ".git::$INDEX_ALLOCATION",
		`x\.git`, `.git\config`, ".g\u200cit", ".ſsh", "commondir", "COMMONDIR", "gitdir", "config.worktree",
		"GITMOD~1", "lefthook.yml", "lefthook-local.yml", ".pnpmfile.cjs", ".cargo", ".mvn", ".bazelrc", ".mise.toml",
		"mise.toml", ".tool-versions", ".yarn", ".yarnrc.yml", ".gradle", ".gdbinit", ".gdbearlyinit",
		".dir-locals.el", ".Rprofile", ".rprofile", ".irbrc", ".pdbrc", ".env", ".env.local", ".envrc",
		".overcommit.yml", ".pre-commit-config.yaml", ".claude", ".claude.json", "CLAUDE.md", "claude.MD",
		"AGENTS.md", "GEMINI.md", ".windsurfrules", ".windsurf", ".cursorrules", ".clinerules", ".roo",
		".roomodes", ".continue", ".kiro", ".opencode", "opencode.json", ".zed", ".github", ".gitlab-ci.yml",
		"CLAUDE~1.MD", "__pycache__", "mod.cpython-311.pyc", "evil.pth", "sitecustomize.py", "conftest.py", ".venv",
		"venv", "node_modules", ".pnp.cjs", "my.code-workspace", "a.sublime-project", ".helix", ".trae", ".qwen",
		".junie", ".augment", ".factory", ".goosehints", ".warp", "WARP.md", ".openhands", ".devin", ".crush.json",
		".copilot", ".rules", ".ghci", ".ocamlinit", ".iex.exs", ".perldb", ".octaverc",
	} {
		if !isProtected(name) {
			t.Errorf("isProtected(%q) = false", name)
		}
	}
	for _, name := range []string{
		"git", "HEAD", "config", "main.go", "README.md", "environment", ".gitignore", "claude.txt", "agents",
		"backup~", "notes~1", "a b", "~1", "..x", ".dockerignore", "index.html:1", "Makefile", "pycache", "node_modules.txt", "rules", "a.py",
	} {
		if isProtected(name) {
			t.Errorf("isProtected(%q) = true", name)
		}
	}
}
