package native_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// changing changes its working directory at random, in ways that are all applied, and prints what it
// sees then: of each directory its mode, of each file also what is in it.
const changing = `
import errno, json, os, random, shutil, stat, sys
rnd = random.Random(int(sys.argv[1]))
names = ["a", "b", "c", "d", "e" * 255, "é ü", "-rf", "x y"]
def entries():
    dirs, files = ["."], []
    for at, ds, fs in os.walk("."):
        dirs += [os.path.join(at, d) for d in ds]
        files += [os.path.join(at, f) for f in fs]
    return dirs, files
def open_all(p):
    for at, ds, _ in os.walk(p):
        for d in ds: os.chmod(os.path.join(at, d), 0o755)
def fresh(dirs): return os.path.join(rnd.choice([d for d in dirs if d.count("/") < 5]), rnd.choice(names))
def gone(p):
    if os.path.isdir(p): open_all(p); shutil.rmtree(p)
    elif os.path.lexists(p): os.remove(p)
def write(dirs, files):
    p = fresh(dirs)
    if os.path.isdir(p) and rnd.random() < .7: return
    gone(p)
    with open(p, "w") as f: f.write(str(rnd.random()) * rnd.randrange(3))
def append(dirs, files):
    if files:
        p = rnd.choice(files); os.chmod(p, 0o644)
        with open(p, "a") as f: f.write("more")
def mkdir(dirs, files):
    p = fresh(dirs)
    gone(p); os.mkdir(p)
def chmod(dirs, files):
    if files: os.chmod(rnd.choice(files), rnd.choice([0o600, 0o644, 0o755, 0o444]))
def remove(dirs, files):
    p = rnd.choice(dirs + files)
    if p != ".": gone(p)
def replace(dirs, files):
    try:
        if len(files) > 1: os.replace(rnd.choice(files), rnd.choice(files))
    except OSError as e: # overlays do not know all names of a file that has several
        if e.errno != errno.ESTALE: raise
def move(dirs, files):
    p, to = rnd.choice(dirs), fresh(dirs)
    if p != "." and not os.path.lexists(to) and not (to + "/").startswith(p + "/"): open_all(p); shutil.move(p, to)
def link(dirs, files):
    if files:
        to = fresh(dirs)
        if not os.path.lexists(to): os.link(rnd.choice(files), to)
def touch(dirs, files):
    if files: os.utime(rnd.choice(files), (1e9, rnd.randrange(10**9)))
open_all(".")
for _ in range(60): rnd.choice([write, write, append, mkdir, chmod, remove, replace, move, link, touch])(*entries())
dirs, files = entries()
view = {p: "%o" % stat.S_IMODE(os.lstat(p).st_mode) for p in dirs + files if p != "."}
for p in files: view[p] += " " + open(p).read()
print(json.dumps(view))
`

// The workspace is, when all is applied, what the script saw of it last.
func TestWorkspaceIsWhatTheScriptSaw(t *testing.T) {
	sandboxtest.Need(t, "userns", "python3")
	sandboxtest.NeedDeleting(t)
	ws := t.TempDir()
	if os.Geteuid() == 0 { // the command is another user
		if err := os.Chown(ws, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	for seed := range 25 {
		cmd := &sandbox.Cmd{
			Argv: []string{"/usr/bin/python3", "-c", changing, strconv.Itoa(seed)}, Tree: openDir(t, t.TempDir()), Cwd: "/workspace",
			Env: []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}, Workspace: sandbox.Workspace{Mode: sandbox.WorkspaceStaged, Dir: openDir(t, ws)},
			Limits: sandbox.Limits{Timeout: sandboxtest.Scaled(time.Minute)},
		}
		res, err := native.New(nil).Run(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		want, got := map[string]string{}, map[string]string{}
		if err := json.Unmarshal(res.Stdout.Head, &want); err != nil {
			t.Fatalf("seed %d: %v, %s", seed, err, res.Stderr.Head)
		}
		for _, w := range res.Writes {
			if w.Refused != "" {
				t.Errorf("seed %d: %+v", seed, w)
			}
		}
		err = filepath.WalkDir(ws, func(p string, d fs.DirEntry, err error) error {
			if err != nil || p == ws {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			text := strconv.FormatUint(uint64(info.Mode().Perm()), 8)
			if !d.IsDir() {
				b, err := os.ReadFile(p)
				if err != nil {
					return err
				}
				text += " " + string(b)
			}
			got["."+p[len(ws):]] = text
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d (-seen +applied): %s\nsaid %+v", seed, diff, res.Writes)
		}
	}
}
