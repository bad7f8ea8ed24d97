package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

// testStagedGuards tries changes that the server could apply although the command itself may not make them.
func testStagedGuards(t *testing.T, f *fixture) {
	f.needStaging(t)
	t.Run("owners", func(t *testing.T) { stagedOwners(t, f) })
	t.Run("marks", func(t *testing.T) { stagedMarks(t, f) })
	t.Run("mounts", func(t *testing.T) { stagedMounts(t, f) })
	t.Run("repositories", func(t *testing.T) { stagedRepositories(t, f) })
	t.Run("updates", func(t *testing.T) { NeedDeleting(t); stagedUpdates(t, f) })
	t.Run("many", func(t *testing.T) { NeedDeleting(t); stagedMany(t, f) })
	t.Run("links", func(t *testing.T) { NeedDeleting(t); stagedLinks(t, f) })
	t.Run("sticky", func(t *testing.T) { stagedSticky(t, f) })
}

// staged runs a script over a workspace and checks that the files reported as written exist.
func (f *fixture) staged(t *testing.T, ws, script string) *sandbox.Result {
	t.Helper()
	cmd := f.script(t, "staged.sh", script+"\necho done\n")
	if strings.HasPrefix(script, "import ") {
		cmd = f.script(t, "staged.py", script)
	}
	cmd.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceStaged, Dir: openDir(t, ws)}
	if f.has(OwnKernel) {
		cmd.Limits.Timeout *= 3
	}
	res := f.runOK(t, cmd)
	for _, w := range res.Writes {
		_, err := os.Lstat(filepath.Join(ws, w.Path))
		if there := err == nil; w.Refused == "" && w.Op == "write" && !there {
			t.Errorf("%+v, and it is there: %v", w, there)
		}
	}
	return res
}

func refusals(res *sandbox.Result) map[string]string {
	refused := map[string]string{}
	for _, w := range res.Writes {
		if w.Refused != "" {
			refused[w.Path] = w.Refused
		}
	}
	return refused
}

// stagedOwners moves files of another user that the command cannot read.
func stagedOwners(t *testing.T, f *fixture) {
	if os.Geteuid() != 0 {
		t.Skip("missing capability root: files of several users")
	}
	const owner = 54321
	ws := t.TempDir()
	mkTree(t, ws, map[string]string{"private": "TOPSECRET", ".env": "TOPSECRET", "public": "x"})
	if err := errors.Join(os.Chown(ws, owner, owner), os.Chmod(ws, 0o777), os.Chmod(ws+"/private", 0o600),
		os.Chmod(ws+"/.env", 0o600), os.Chmod(ws+"/public", 0o644)); err != nil {
		t.Fatal(err)
	}
	script := `cd /workspace
for f in private .env moved env; do cat $f 2>/dev/null | grep -q TOP && echo "BREACH $f can be read"; done
[ -e private ] && {
	mv private moved; mv .env env; ln public linked 2>/dev/null; mv public open; echo x >made
}
true`
	res := f.staged(t, ws, script)
	f.staged(t, ws, script)
	for _, w := range res.Writes {
		if told := w.Digest != ""; w.Op == "write" &&
			told != (w.Path == "made" || w.Path == "open" || w.Path == "linked") {
			t.Errorf("%+v has a digest: %v", w, told)
		}
	}
	for name, want := range map[string]string{"moved": "0 -rw-------", "env": "0 -rw-------",
		"open": "0 -rw-r--r--", "made": "54321 -rw-r--r--"} {
		info, err := os.Lstat(filepath.Join(ws, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := fmt.Sprint(info.Sys().(*syscall.Stat_t).Uid, " ", info.Mode()); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// stagedMarks sets the marks that an overlay gives replaced directories by hand.
func stagedMarks(t *testing.T, f *fixture) {
	ws := t.TempDir()
	mkTree(t, ws, map[string]string{"d/keep/x": "x", "d/file": "x", "top": "x"})
	before := readTree(t, ws)
	f.staged(t, ws, `import os
for p in ("/workspace/d", "/workspace/d/keep", "/workspace"):
    for space in ("user", "trusted"):
        for name in ("opaque", "whiteout", "redirect", "metacopy"):
            try: os.setxattr(p, space + ".overlay." + name, b"y")
            except OSError: pass
    open(p + "/new", "w").close()
print("done")
`)
	after := readTree(t, ws)
	for name := range before {
		if _, ok := after[name]; !ok {
			t.Errorf("%s is gone", name)
		}
	}
}

// stagedMounts deletes and writes where other file systems are mounted, which the command did not see.
func stagedMounts(t *testing.T, f *fixture) {
	if os.Geteuid() != 0 {
		// The kernel refuses an overlay above it, and its own error would not explain that.
		cmd := f.script(t, "unmade.sh", "echo BREACH")
		cmd.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceStaged, Dir: openDir(t, "/")}
		_, err := f.runner.Run(t.Context(), cmd)
		if u, ok := errors.AsType[*sandbox.UnavailableError](err); !ok ||
			!strings.HasPrefix(u.Reason, "a file system is mounted inside the workspace, at ") {
			t.Errorf("Run with a workspace that others are mounted in = %v", err)
		}
		t.Skip("missing capability root: mounts")
	}
	ws, elsewhere := t.TempDir(), t.TempDir()
	mkTree(t, ws, map[string]string{"gone/on/covered": "x", "bound/covered": "x", "written/covered": "x",
		"file": "covered", "plain/x": "x"})
	mkTree(t, elsewhere, map[string]string{"important/deep/x": "x", "file": "important"})
	mounts := [][3]string{{"tmpfs", "gone/on", "tmpfs"}, {elsewhere, "bound", ""}, {elsewhere, "written", ""},
		{elsewhere + "/file", "file", ""}}
	for _, m := range mounts {
		at, flags := filepath.Join(ws, m[1]), uintptr(0)
		if m[2] == "" {
			flags = unix.MS_BIND
		}
		if err := unix.Mount(m[0], at, m[2], flags, ""); err != nil {
			t.Skipf("missing capability: mounts: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	}
	mkTree(t, filepath.Join(ws, "gone/on"), map[string]string{"important": "x"})
	before := readTree(t, ws)
	res := f.staged(t, ws, "cd /workspace; rm -rf gone bound plain; mkdir bound; echo evil >bound/file; "+
		"echo evil >written/file; mkdir written/made; echo evil >file")
	delete(before, "plain/")
	delete(before, "plain/x")
	after := readTree(t, ws)
	for name, text := range before {
		if got, ok := after[name]; !ok || got != text {
			t.Errorf("%s: %q before, %q after, there %v", name, text, got, ok)
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d entries before, after there are %v", len(before), after)
	}
	refused := refusals(res)
	for _, name := range []string{"gone", "bound/file", "written/file", "written/made", "file"} {
		if why := refused[name]; why != "a file system is mounted there" {
			t.Errorf("%s: refused as %q", name, why)
		}
	}
}

// stagedRepositories tries to leave git settings that the host would obey, by replacing a repository and by
// two runs that each leave a harmless half.
func stagedRepositories(t *testing.T, f *fixture) {
	ws := t.TempDir()
	repository := map[string]string{"HEAD": "ref: refs/heads/main\n", "config": "[core]\n", "objects/x": "",
		"refs/x": "", "hooks/x": ""}
	for name, text := range repository {
		mkTree(t, ws, map[string]string{"bare/" + name: text, "nested/bare/" + name: text,
			"deleted/" + name: text, "empty/x": ""})
	}
	before := readTree(t, ws)
	make := func(dir string) string {
		return "mkdir -p " + dir + "/objects " + dir + "/refs; echo evil >" + dir + "/config; echo x >" +
			dir + "/objects/x; echo x >" + dir + "/refs/x; "
	}
	f.staged(t, ws, "cd /workspace; rm -rf bare nested deleted; "+make("bare")+make("nested/bare"))
	after := readTree(t, ws)
	for name, text := range before {
		if got, ok := after[name]; !ok || got != text {
			t.Errorf("%s: %q before, %q after, there %v", name, text, got, ok)
		}
	}
	var runs sync.WaitGroup
	for _, script := range []string{make("both"),
		"mkdir -p both; for i in {1..200}; do echo >both/A$i; done; echo ref: refs/heads/main >both/HEAD"} {
		cmd := f.script(t, fmt.Sprintf("half%d.sh", len(script)), "cd /workspace; "+script)
		cmd.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceStaged, Dir: openDir(t, ws)}
		cmd.Limits.Timeout = time.Minute
		runs.Go(func() { f.run(t, cmd) })
	}
	runs.Wait()
	f.staged(t, ws, "mkdir -p /workspace/both; echo ref: refs/heads/main >/workspace/both/HEAD")
	whole := true
	for _, name := range []string{"HEAD", "objects", "refs"} {
		_, err := os.Lstat(filepath.Join(ws, "both", name))
		whole = whole && err == nil
	}
	if whole {
		t.Error("two runs made a repository")
	}
}

// stagedUpdates changes the workspace while the command does.
func stagedUpdates(t *testing.T, f *fixture) {
	ws := t.TempDir()
	mkTree(t, ws, map[string]string{"notes": "", "gone/notes": "", "gone/other": "", "replaced/notes": "",
		"same": "x"})
	stop, written := make(chan struct{}), make(chan string)
	go func() { // like a user with an editor
		text := ""
		for again := true; again; {
			text += "a line\n"
			for _, dir := range []string{"", "gone", "replaced"} {
				if err := os.WriteFile(filepath.Join(ws, dir, "notes"), []byte(text), 0o666); err != nil {
					t.Error(err)
				}
			}
			select {
			case <-stop:
				again = false
			case <-time.After(time.Millisecond):
			}
		}
		written <- text
	}()
	// A reader may see a file change twice during one write; after the third change, the other files were
	// written too.
	change := `had=$(wc -c <notes); until [ "$(wc -c <notes)" != "$had" ]; do :; done; `
	await := strings.Repeat(change, 3)
	if f.has(OwnKernel) {
		await = "" // it may not see outside changes, and is never that fast
	}
	res := f.staged(t, ws, "cd /workspace; "+await+
		"echo evil >>notes; rm -rf gone replaced; mkdir replaced; echo new >replaced/new; echo x >same")
	close(stop)
	want := <-written
	for _, name := range []string{"notes", "gone/notes", "replaced/notes"} {
		if b, err := os.ReadFile(filepath.Join(ws, name)); err != nil || string(b) != want {
			t.Errorf("%s: %d bytes of %d, %v", name, len(b), len(want), err)
		}
	}
	refused := refusals(res)
	for _, name := range []string{"notes", "gone", "replaced/notes"} {
		if why := refused[name]; why != "changed while the script ran" {
			t.Errorf("%s: refused as %q", name, why)
		}
	}
	if refused["same"] != "" || refused["replaced/new"] != "" {
		t.Errorf("refused is %v", refused)
	}
}

// stagedMany makes more changes than are applied. Each applied change must be reported.
func stagedMany(t *testing.T, f *fixture) {
	ws := t.TempDir()
	const n = 4500
	files := map[string]string{"mixed/.env": "x"}
	for i := range n {
		files[fmt.Sprintf("all/f%d", i)], files[fmt.Sprintf("mixed/f%d", i)] = "x", "x"
	}
	mkTree(t, ws, files)
	res := f.staged(t, ws, `import os, shutil
for d in ("/workspace/all", "/workspace/mixed"):
    shutil.rmtree(d)
    os.mkdir(d)
    open(d + "/new", "w").close()
print("done")
`)
	gone, refused := map[string]bool{}, refusals(res)
	for _, w := range res.Writes {
		if w.Op == "delete" && w.Refused == "" {
			gone[w.Path] = true
		}
	}
	left := readTree(t, ws)
	for name := range files {
		_, there := left[name]
		if told := gone[name] || gone[path.Dir(name)]; there == told {
			t.Fatalf("%s: there %v, told as deleted %v", name, there, told)
		}
	}
	if _, ok := left["all/new"]; !ok || !gone["all"] {
		t.Errorf("all/new is there: %v, all told as deleted: %v, refused is %v", ok, gone["all"], refused)
	}
	if len(refused) == 0 {
		t.Errorf("nothing was refused of %d changes", len(res.Writes))
	}
}

// stagedLinks deletes and changes files by one of their names. Unlinking another name changes a file too, but
// that is not a foreign change.
func stagedLinks(t *testing.T, f *fixture) {
	ws := t.TempDir()
	mkTree(t, ws, map[string]string{"target/foo": "x", "target/deps/bar": "", "a": "one\n"})
	for from, to := range map[string]string{"target/foo": "target/deps/foo", "a": "b"} {
		if err := os.Link(filepath.Join(ws, from), filepath.Join(ws, to)); err != nil {
			t.Fatal(err)
		}
	}
	res := f.staged(t, ws, "cd /workspace; rm -r target; rm a; echo more >>b")
	if refused := refusals(res); len(refused) != 0 {
		t.Errorf("refused is %v", refused)
	}
	if b, err := os.ReadFile(filepath.Join(ws, "b")); err != nil || string(b) != "one\nmore\n" {
		t.Errorf("b holds %q, %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(ws, "target")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("target: %v", err)
	}
}

// stagedSticky deletes another user's file from a directory in which only owners may delete.
func stagedSticky(t *testing.T, f *fixture) {
	if os.Geteuid() != 0 {
		t.Skip("missing capability: root, for a file of somebody else's")
	}
	ws := t.TempDir()
	mkTree(t, ws, map[string]string{"theirs": "keep"})
	if err := os.Chmod(ws, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	f.staged(t, ws, "cd /workspace; rm -f theirs 2>/dev/null; mv theirs moved 2>/dev/null; :")
	if b, err := os.ReadFile(filepath.Join(ws, "theirs")); err != nil || string(b) != "keep" {
		t.Errorf("theirs holds %q, %v", b, err)
	}
}
