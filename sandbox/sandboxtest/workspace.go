package sandboxtest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/skillsd/skillsd/sandbox"
)

// mkTree creates files below dir that all users may write; a text "-> x" is a link to x.
func mkTree(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o777); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(target, p)
		} else {
			err = os.WriteFile(p, []byte(text), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.Walk(dir, func(p string, info os.FileInfo, err error) error {
		switch {
		case err != nil || info.Mode()&os.ModeSymlink != 0:
			return err
		case info.IsDir():
			return os.Chmod(p, 0o777)
		}
		return os.Chmod(p, 0o666)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// readTree is the inverse of mkTree.
func readTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.Walk(dir, func(p string, info os.FileInfo, err error) error {
		if err != nil || p == dir {
			return err
		}
		name, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		switch {
		case info.IsDir():
			files[name+"/"] = ""
		case info.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			files[name] = string(b)
		default:
			files[name] = info.Mode().Type().String()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func testWorkspace(t *testing.T, f *fixture) {
	for _, mode := range f.modes() {
		t.Run(string(mode), func(t *testing.T) {
			base := t.TempDir()
			ws, host := filepath.Join(base, "ws"), filepath.Join(base, "host")
			mkTree(t, host, map[string]string{"secret": "TOPSECRET"})
			mkTree(t, ws, map[string]string{
				"inside": "content", "link-to-file": "-> " + host + "/secret", "link-to-dir": "-> " + host,
			})
			before := readTree(t, host)
			cmd := f.command(t, "workspace.sh", host)
			cmd.Workspace = sandbox.Workspace{Mode: mode, Dir: openDir(t, ws)}
			res := f.runOK(t, cmd)
			if got := string(res.Stdout.Head); got != "content\ndone\n" {
				t.Errorf("printed %q", got)
			}
			if diff := cmp.Diff(before, readTree(t, host)); diff != "" {
				t.Errorf("the host changed (-before +after):\n%s", diff)
			}
			write := f.script(t, "write.sh",
				"echo x >new; echo y >inside; chmod 4777 inside; mkdir d; echo done")
			write.Workspace = cmd.Workspace
			f.runOK(t, write)
			got := readTree(t, ws)
			wantNew, wantInside := "x\n", "y\n"
			if mode == sandbox.WorkspaceRO {
				wantNew, wantInside = "", "content"
			}
			if got["new"] != wantNew || got["inside"] != wantInside {
				t.Errorf("new, inside = %q, %q", got["new"], got["inside"])
			}
			if info, err := os.Stat(filepath.Join(ws, "inside")); err != nil ||
				info.Mode()&os.ModeSetuid != 0 {
				t.Errorf("inside has mode %v, %v", info.Mode(), err)
			}
		})
	}
	cmd := f.script(t, "none.sh", "[ -e /workspace ] && echo BREACH workspace; echo done")
	f.attack(t, cmd)
}

// testReadOnly attacks directories of a writable workspace that must not change.
func testReadOnly(t *testing.T, f *fixture) {
	readOnly := []string{"skills", "a/b/skills", "a/b/skills/inner"}
	for _, mode := range f.modes() {
		if mode == sandbox.WorkspaceRO {
			continue
		}
		t.Run(string(mode), func(t *testing.T) {
			if mode == sandbox.WorkspaceStaged {
				NeedDeleting(t)
			}
			ws := t.TempDir()
			mkTree(t, ws, map[string]string{"skills/demo/SKILL.md": "s", "a/b/skills/demo/SKILL.md": "s",
				"a/b/skills/inner/demo/SKILL.md": "s", "a/beside": "x", "skills-not/file": "x",
				"gone/skills/x": "x",
				"to-skills":     "-> skills"})
			want := readTree(t, ws)
			for name, text := range map[string]string{"free": "evil", "spare/": "", "spare/demo/": "",
				"a/new": "evil", "a/b/new": "evil"} {
				want[name] = text
			}
			cmd := f.command(t, "readonly.py", readOnly...)
			cmd.Workspace = sandbox.Workspace{Mode: mode, Dir: openDir(t, ws), ReadOnly: readOnly}
			f.attack(t, cmd)
			if diff := cmp.Diff(want, readTree(t, ws)); diff != "" {
				t.Errorf("workspace (-want +got):\n%s", diff)
			}
			// Everything else may be moved and deleted.
			cmd = f.script(t, "around.sh", "cd /workspace; echo y >skills-not/file; rm -r gone; mv a a2 "+
				"2>/dev/null; "+
				"rm -rf a skills 2>/dev/null; echo x >skills/x; mkdir -p a/b/skills/evil; ls a/b/skills "+
				"skills; echo done")
			cmd.Workspace = sandbox.Workspace{Mode: mode, Dir: openDir(t, ws), ReadOnly: readOnly}
			f.attack(t, cmd)
			got := readTree(t, ws)
			for name, text := range want {
				root := strings.HasPrefix(name, "skills/") || strings.HasPrefix(name, "a/b/skills/")
				if now, ok := got[name]; root && (!ok || now != text) {
					t.Errorf("%s is %q, %v; want %q", name, now, ok, text)
				}
				delete(got, name)
			}
			for name := range got {
				if strings.HasPrefix(name, "skills/") || strings.HasPrefix(name, "a/b/skills/") {
					t.Errorf("%s is new", name)
				}
			}
			if _, err := os.Stat(filepath.Join(ws, "gone")); err == nil {
				t.Error("what is not read-only cannot be deleted")
			}
			for _, missing := range []string{"none", "a/none", "to-skills", "to-skills/demo", "free",
				"../skills"} {
				cmd.Workspace.ReadOnly = append(readOnly, missing)
				var u *sandbox.UnavailableError
				if _, err := f.runner.Run(t.Context(), cmd); !errors.As(err, &u) || u.Remedy == "" {
					t.Errorf("Run with %q read-only = %v, want an UnavailableError with a remedy", missing,
						err)
				}
			}
		})
	}
}

func testStaged(t *testing.T, f *fixture) {
	f.needStaging(t)
	NeedDeleting(t)
	ws := t.TempDir()
	mkTree(t, ws, map[string]string{
		".git/HEAD": "ref", ".git/config": "[core]", "sub/.git/config": "[core]", "keep/.git/HEAD": "ref",
		"changed": "first\n", "gone": "x", "gone-dir/a/b": "x", "replaced/a": "x", "same": "same",
		"guarded/skills/SKILL.md": "s",
	})
	want := readTree(t, ws)
	cmd := f.command(t, "persist.sh")
	cmd.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceStaged, Dir: openDir(t, ws),
		Protected: []string{"guarded/skills"}}
	res := f.runOK(t, cmd)

	for _, name := range []string{"gone", "gone-dir/", "gone-dir/a/", "gone-dir/a/b", "replaced/a"} {
		delete(want, name)
	}
	for name, text := range map[string]string{
		"changed": "first\nmore\n", "fresh": "new\n", "dir/": "", "dir/below/": "",
		"dir/below/file": "deep\n", "replaced/b": "other\n",
	} {
		want[name] = text
	}
	got := readTree(t, ws)
	for name := range got { // a moved-away copy of a protected directory is an ordinary directory
		if strings.HasPrefix(name, ".git2/") || strings.HasPrefix(name, "deep/") {
			delete(got, name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("workspace (-want +got):\n%s", diff)
	}
	checkWrites(t, f, res.Writes)

	failed := f.script(t, "late.sh", "echo x >never; sleep 600")
	failed.Workspace = cmd.Workspace
	failed.Limits.Timeout = Scaled(500 * time.Millisecond)
	res = f.run(t, failed)
	if len(res.Writes) == 0 { // the limit was too short to start on a busy machine
		failed.Limits.Timeout *= 10
		res = f.run(t, failed)
	}
	if _, err := os.Stat(filepath.Join(ws, "never")); err == nil || len(res.Writes) != 1 ||
		res.Writes[0].Refused == "" {
		t.Errorf("writes of a run that was ended = %+v", res.Writes)
	}
}

// testStagedBounded leaves changes that would cost the server far more to record, copy or hash than they cost
// the script.
func testStagedBounded(t *testing.T, f *fixture) {
	f.needStaging(t)
	cmd := f.script(t, "costly.py", `
import os
os.makedirs("/workspace/.git")
for i in range(1000):
    with open("/workspace/.git/%d" % i, "wb") as s: s.truncate(60 << 20)
for d in ("/workspace", "/out"):
    os.chdir(d)
    try:
        for _ in range(2000):
            os.mkdir("d" * 250); os.chdir("d" * 250)
    except OSError as e: print(e)
print("done")`)
	ws := t.TempDir()
	mkTree(t, ws, map[string]string{"a": "x"})
	cmd.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceStaged, Dir: openDir(t, ws)}
	cmd.Limits.Timeout = Scaled(5 * time.Minute)
	begin := time.Now()
	res := f.runOK(t, cmd)
	// Without limits, it takes many minutes.
	if d := time.Since(begin); d > 2*cmd.Limits.Timeout {
		t.Errorf("took %v", d)
	}
	var size int
	for _, w := range res.Writes {
		size += len(w.Path) + len(w.Refused)
	}
	if size > 32<<20 {
		t.Errorf("%d writes take %d bytes", len(res.Writes), size)
	}
}

func checkWrites(t *testing.T, f *fixture, writes []sandbox.Write) {
	t.Helper()
	applied, refused := map[string]string{}, map[string]bool{}
	for _, w := range writes {
		if w.Refused != "" {
			refused[w.Path] = true
			continue
		}
		applied[w.Path] = w.Op
		if w.Op == "write" && !strings.HasPrefix(w.Digest, "sha256:") {
			t.Errorf("write without digest: %+v", w)
		}
	}
	for path, op := range map[string]string{"changed": "write", "fresh": "write", "dir": "mkdir",
		"gone": "delete", "gone-dir": "delete"} {
		if applied[path] != op {
			t.Errorf("%s: applied as %q, want %q", path, applied[path], op)
		}
	}
	for _, path := range []string{".bashrc", ".mcp.json", ".envrc", "link", "fifo"} {
		if !refused[path] && (path != "fifo" || !f.has(OwnKernel)) {
			t.Errorf("%s: not among the refused writes", path)
		}
	}
	if applied["same"] != "" {
		t.Errorf("an unchanged file was written")
	}
}
