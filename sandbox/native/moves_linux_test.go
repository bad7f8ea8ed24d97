package native_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// What a script moves is never gone from both of its places, whatever keeps it from the new one.
func TestMovesLoseNothing(t *testing.T) {
	sandboxtest.Need(t, "userns", "bash")
	many := func(ws string) {
		for i := range 4200 {
			name := strconv.Itoa(i)
			writeFile(t, filepath.Join(ws, "a", name), name)
		}
	}
	for _, tt := range []struct {
		name, script string
		fill         func(ws string)
		scratch      int64
		gone         []string // that are deleted nevertheless
	}{
		{name: "to a protected name", script: "mv notes .envrc; rm other", gone: []string{"other"}},
		{name: "to a name that is refused", script: "mv notes $'a\\tb'"},
		{name: "into a directory that is closed then", script: "mkdir c; mv notes c/; chmod 0 c"},
		{name: "below too many changes", script: "mkdir z; mv a/* z/", fill: many},
		{name: "next to a file that is too large", script: "truncate -s 3M a0; mv big g1", fill: func(ws string) {
			writeFile(t, filepath.Join(ws, "big"), strings.Repeat("b", 2<<20))
		}, scratch: 4 << 20},
		{name: "a link", script: "mv link .envrc", fill: func(ws string) {
			if err := os.Symlink("notes", filepath.Join(ws, "link")); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "a directory's files", script: "mkdir .git; mv notes .git/; rm -r dir", gone: []string{"dir/file"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if strings.Contains(tt.script, "rm -r") {
				sandboxtest.NeedDeleting(t)
			}
			ws := t.TempDir()
			writeFile(t, filepath.Join(ws, "notes"), "what somebody wrote")
			writeFile(t, filepath.Join(ws, "other"), "what somebody else wrote")
			writeFile(t, filepath.Join(ws, "dir", "file"), "in a directory")
			if tt.fill != nil {
				tt.fill(ws)
			}
			if os.Geteuid() == 0 {
				chownAll(t, ws, native.FileUID)
			}
			before := texts(t, ws)
			res, err := native.New(nil).Run(t.Context(), &sandbox.Cmd{
				Argv: []string{"/usr/bin/bash", "-c", tt.script}, Tree: openDir(t, t.TempDir()), Cwd: "/workspace", Env: []string{"PATH=/usr/bin:/bin"},
				Limits: sandbox.Limits{Scratch: tt.scratch}, Workspace: sandbox.Workspace{Mode: sandbox.WorkspaceStaged, Dir: openDir(t, ws)},
			})
			if err != nil || res.ExitCode != 0 {
				t.Fatalf("%v %s", err, res.Stderr.Head)
			}
			after := map[string]bool{}
			for _, text := range texts(t, ws) {
				after[text] = true
			}
			for path, text := range before {
				if want := !slices.Contains(tt.gone, path); after[text] != want {
					t.Fatalf("what was in %s is somewhere: %v, want %v: %+v", path, after[text], want, res.Writes[:min(len(res.Writes), 8)])
				}
			}
		})
	}
}

// texts are what the files below dir hold, and what links name.
func texts(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		if d.Type() == os.ModeSymlink {
			all[rel], err = os.Readlink(p)
			all[rel] = "-> " + all[rel]
			return err
		}
		data, err := os.ReadFile(p)
		all[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
