package native_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// staged runs a script of bash over a workspace that it may change, and returns what it printed and
// what is said of its changes, sorted.
func staged(t *testing.T, ws, script string) (printed, said string) {
	t.Helper()
	cmd := &sandbox.Cmd{
		Argv: []string{"/usr/bin/bash", "-c", script}, Tree: openDir(t, t.TempDir()), Env: []string{"PATH=/usr/bin:/bin"}, Cwd: "/workspace",
		Workspace: sandbox.Workspace{Mode: sandbox.WorkspaceStaged, Dir: openDir(t, ws)},
	}
	res, err := native.New(nil).Run(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, w := range res.Writes {
		all = append(all, strings.TrimRight(w.Op+" "+w.Path+" "+w.Refused, " "))
	}
	slices.Sort(all)
	return string(res.Stdout.Head) + string(res.Stderr.Head), strings.Join(all, ", ")
}

// Ordinary tools do in a staged workspace what they do elsewhere: mv copies a directory that cannot be
// renamed, chmod of files and touch have their effects; a directory that was there keeps its mode.
func TestToolsInAStagedWorkspace(t *testing.T) {
	sandboxtest.Need(t, "userns", "bash")
	sandboxtest.NeedDeleting(t)
	ws := t.TempDir()
	for _, p := range []string{"d/sub/file", "d/closed/file", "chmod/file", "copied/up/file", "program"} {
		p = filepath.Join(ws, p)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 { // the command is another user
		if err := os.Chown(ws, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		err := filepath.WalkDir(ws, func(p string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Chown(p, 65534, 65534)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	printed, said := staged(t, ws, `mv d moved; chmod u-w moved/closed
chmod 700 chmod; chmod 755 program; echo y >>copied/up/file; touch -d "2020-02-02 00:00 UTC" dated; echo $?`)
	if printed != "0\n" {
		t.Errorf("printed %q", printed)
	}
	want := "chmod chmod a directory that was there keeps its mode, delete d, mkdir moved, mkdir moved/closed, mkdir moved/sub, write copied/up/file, write dated, write moved/closed/file, write moved/sub/file, write program"
	if said != want {
		t.Errorf("said  %s\nwant %s", said, want)
	}
	for name, want := range map[string]os.FileMode{"chmod": 0o755, "program": 0o755} {
		if info, err := os.Stat(filepath.Join(ws, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if info, err := os.Stat(filepath.Join(ws, "dated")); err != nil || !info.ModTime().Equal(time.Date(2020, 2, 2, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("dated: %v, %v", info.ModTime(), err)
	}
	if _, err := os.Stat(filepath.Join(ws, "d")); !os.IsNotExist(err) {
		t.Errorf("d: %v", err)
	}
}
