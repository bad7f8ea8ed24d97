package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The workspace of a client that names no directory with its calls is its first root, else the directory in
// which it started the server; a home is not, and the log has that.
func TestWorkspaceOfAnyClient(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"demo/SKILL.md":       "---\nname: demo\ndescription: A skill for tests.\n---\nDo it.\n",
		"demo/scripts/cat.sh": "#!/bin/sh\ncat here.txt\n",
	})
	home := tree(t, map[string]string{"here.txt": "in the home", "project/here.txt": "in the project", "other/here.txt": "in the root"})
	for _, tt := range []struct{ name, dir, root, want string }{
		{"neither", filepath.Join(home, "project"), "", "in the project"},
		{"a root", filepath.Join(home, "project"), filepath.Join(home, "other"), "in the root"},
		{"a root, started in the home", home, filepath.Join(home, "other"), "in the root"},
		{"a root that is no file", filepath.Join(home, "project"), "https://example.com/x", "in the project"},
		{"the home", home, "", ""},
		{"above the home", filepath.Dir(home), "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd, _ := serving(t, "--skills-root", root, "--allow-tool", "run_skill_script", "--allow-skill-script", "demo:scripts/cat.sh",
				"--prompt-slot-role", "direct-command", "--workspace-from-client", "--release", "observed")
			cmd.Dir, cmd.Env = tt.dir, append(os.Environ(), "HOME="+home, "CLAUDE_PROJECT_DIR=")
			p := start(t, cmd)
			var capabilities []string
			if tt.root != "" {
				capabilities = append(capabilities, `"roots":{}`)
			}
			p.reply = func(request answer) string {
				uri := tt.root
				if filepath.IsAbs(uri) {
					uri = "file://" + uri
				}
				if request.Method != "roots/list" {
					t.Errorf("asked with %s", request.Method)
				}
				return fmt.Sprintf(`"result":{"roots":[{"uri":%q}]}`, uri)
			}
			p.initialize(capabilities...)
			p.tool("load_skill", map[string]any{"name": "demo"})
			text := p.script("cat.sh").text()
			warned := strings.Contains(p.stderr.String(), "--workspace-from-client has no effect")
			if tt.want != "" && !strings.Contains(text, tt.want) || tt.want == "" && strings.Contains(text, "in the ") || warned != (tt.dir == home || tt.dir == filepath.Dir(home)) {
				t.Errorf("the run says %q, want %q; the log warned: %v", text, tt.want, warned)
			}
		})
	}
}

// The files that a client's run changed come back: the directory of the run is the one that its client works in.
func TestUndoOfClientRun(t *testing.T) {
	t.Parallel()
	if !canIsolate(t) {
		t.Skip("no sandbox isolates here")
	}
	root := tree(t, map[string]string{
		"demo/SKILL.md":         "---\nname: demo\ndescription: A skill for tests.\n---\nDo it.\n",
		"demo/scripts/write.sh": "#!/bin/sh\necho changed >here.txt\n",
	})
	home := tree(t, map[string]string{"project/here.txt": "as before\n"})
	// The server of root runs scripts as another user.
	file, state := filepath.Join(home, "project", "here.txt"), t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(file), 0o777), os.Chmod(file, 0o666)); err != nil {
		t.Fatal(err)
	}
	cmd, _ := serving(t, "--state", state, "--skills-root", root,
		"--allow-tool", "run_skill_script", "--allow-skill-script", "demo:scripts/write.sh", "--prompt-slot-role",
		"direct-command", "--workspace-from-client", "--workspace", ":staged", "--release", "observed")
	cmd.Dir = filepath.Join(home, "project")
	cmd.Env = append(os.Environ(), "HOME="+home, "CLAUDE_PROJECT_DIR=")
	last := start(t, cmd).loaded().script("write.sh").text()
	if text, err := os.ReadFile(file); err != nil || string(text) != "changed\n" {
		t.Fatalf("after the run: %q, %v\n%s", text, err, last)
	}
	undo := exec.Command(binary, "undo", "--yes", "--state", state)
	undo.Env = append(os.Environ(), "HOME="+home)
	out, err := undo.CombinedOutput()
	if text, unread := os.ReadFile(file); err != nil || unread != nil || string(text) != "as before\n" {
		t.Errorf("after undo: %q, %v, %v\n%s", text, err, unread, out)
	}
}
