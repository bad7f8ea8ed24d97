package native_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

func openDir(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Where the tree lies on the host is nothing a command can learn.
func TestTreePathIsHidden(t *testing.T) {
	sandboxtest.Need(t, "userns", "bash")
	dir := filepath.Join(t.TempDir(), "private-place-of-trees")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x.sh"), []byte("cat /proc/self/mountinfo /proc/self/mounts /proc/self/mountstats\nls -l /proc/self/fd /proc/1/fd /proc/self/exe /proc/1/cwd\nreadlink -f \"$0\"\ncat /proc/self/environ /proc/self/maps\ncmp /mnt/skills/user/tree/x.sh $0 && echo the same\n! touch /mnt/skills/user/tree/x.sh /mnt/skills/user/tree/y 2>&1 && echo read-only\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []sandbox.WorkspaceMode{sandbox.WorkspaceNone, sandbox.WorkspaceStaged} {
		ws := filepath.Join(t.TempDir(), "private-workspace")
		if err := os.Mkdir(ws, 0o777); err != nil {
			t.Fatal(err)
		}
		cmd := &sandbox.Cmd{Argv: []string{"/usr/bin/bash", "/skill/x.sh"}, Name: "tree", Tree: openDir(t, dir), Env: []string{"PATH=/usr/bin:/bin"}}
		cmd.Workspace = sandbox.Workspace{Mode: mode, Dir: openDir(t, ws)}
		res, err := native.New(nil).Run(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		seen := string(res.Stdout.Head)
		if !strings.Contains(seen, " /skill ") || !strings.Contains(seen, "/skill/x.sh\n") {
			t.Fatalf("the command saw %s", seen)
		}
		if line := lineWith(seen, "private-"); line != "" {
			t.Errorf("the command sees %q", line)
		}
		if !strings.Contains(seen, "the same\n") || !strings.Contains(seen, "read-only\n") ||
			!strings.Contains(lineWith(seen, " /mnt/skills/user/tree "), " ro,nosuid,nodev,") {
			t.Errorf("in its second place the tree is not as in its first: %s", seen)
		}
	}
}

func lineWith(text, word string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			return line
		}
	}
	return ""
}

// An interpreter below a home directory that is its owner's alone runs, as version managers install
// them, and shows no more of that home than itself.
func TestInterpreterInPrivateHome(t *testing.T) {
	sandboxtest.Need(t, "userns", "bash")
	cache, err := os.UserCacheDir()
	if err != nil || strings.HasPrefix(cache, "/tmp/") || os.MkdirAll(cache, 0o700) != nil {
		t.Skipf("missing capability: a home directory outside /tmp: %v", err)
	}
	home, err := os.MkdirTemp(cache, "skillsd-test-")
	if err != nil {
		t.Skipf("missing capability: a home directory that can be written: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	prefix := filepath.Join(home, ".versions/shell/v5.2")
	if err := os.MkdirAll(prefix+"/bin", 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("/usr/bin/bash")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{prefix + "/bin/bash": program, home + "/secret": []byte("PLANTED"), filepath.Dir(prefix) + "/other": []byte("PLANTED")} {
		if err := os.WriteFile(name, text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	in := &sandbox.Interpreter{Name: "bash", Path: prefix + "/bin/bash", Mounts: []string{prefix}}
	script := `echo "$BASH"; cat "$1/secret" "$1/.versions/shell/other" 2>/dev/null; (: >"$2/new") 2>/dev/null && echo written; ls -A "$1" "$1/.versions/shell"`
	cmd := &sandbox.Cmd{Argv: []string{in.Path, "-c", script, "x", home, prefix}, Interpreter: in, Tree: openDir(t, t.TempDir()), Env: []string{"PATH=/usr/bin:/bin"}}
	res, err := native.New(nil).Run(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	want := in.Path + "\n" + home + ":\n.versions\n\n" + filepath.Dir(prefix) + ":\nv5.2\n"
	if got := string(res.Stdout.Head); got != want {
		t.Errorf("the command printed %q, %q; want %q", got, res.Stderr.Head, want)
	}
}
