package native

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/skillsd/skillsd/sandbox"
)

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
		"CLAUDE~1.MD",
	} {
		if !isProtected(name) {
			t.Errorf("isProtected(%q) = false", name)
		}
	}
	for _, name := range []string{
		"git", "HEAD", "config", "main.go", "README.md", "environment", ".gitignore", "claude.txt", "agents",
		"backup~", "notes~1", "a b", "~1", "..x", ".dockerignore", "index.html:1", "Makefile",
	} {
		if isProtected(name) {
			t.Errorf("isProtected(%q) = true", name)
		}
	}
}

// applied is what apply leaves of a layer's files in a workspace that has others.
func applied(t *testing.T, has, layer []string) map[string]bool {
	t.Helper()
	open := func(files []string) *os.File {
		dir := t.TempDir()
		for _, name := range files {
			p := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	ws := open(has)
	apply(open(layer), sandbox.Workspace{Dir: ws}, sandbox.Exited, 1<<20)
	left := map[string]bool{}
	err := fs.WalkDir(os.DirFS(ws.Name()), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			left[p] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func TestApplyMakesNoRepository(t *testing.T) {
	for _, tt := range []struct {
		name       string
		has, layer []string
		refused    string
	}{
		{"bare", nil, []string{"d/HEAD", "d/objects/x", "d/refs/x", "d/config"}, "d/config"},
		{"its parts elsewhere", nil, []string{"d/HEAD", "d/commondir", "d/img/config", "d/img/objects/x", "d/img/refs/x"}, "d/HEAD"},
		{"where another run wrote the rest", []string{"d/objects/x", "d/refs/x"}, []string{"d/HEAD"}, "d/HEAD"},
		{"where the workspace names the rest", []string{"d/commondir"}, []string{"d/HEAD"}, "d/HEAD"},
		{"the rest of one", []string{"d/HEAD"}, []string{"d/commondir"}, "d/commondir"},
		{"inside one", []string{"d/HEAD", "d/objects/x", "d/refs/x"}, []string{"d/hooks/post-checkout"}, "d/hooks/post-checkout"},
		{"in other letters", nil, []string{"d/head", "d/Objects/x", "d/REFS/x"}, "d/head"},
		{"a gitfile", nil, []string{"d/.git"}, "d/.git"},
		{"settings of a work tree", nil, []string{"d/config.worktree"}, "d/config.worktree"},
		{"not one", nil, []string{"d/HEAD", "d/objects/x"}, ""},
	} {
		left := applied(t, tt.has, tt.layer)
		if tt.refused != "" && left[tt.refused] {
			t.Errorf("%s: %s was applied", tt.name, tt.refused)
		}
		if tt.refused == "" && len(left) != len(tt.layer) {
			t.Errorf("%s: left is %v", tt.name, left)
		}
	}
}
