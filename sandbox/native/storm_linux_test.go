package native_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// meddling changes what lies under names that the host exchanges meanwhile.
const meddling = `
import os, random, shutil, sys
rnd = random.Random(int(sys.argv[1]))
def attempt(call, *args):
    try: call(*args)
    except OSError: pass
for _ in range(60):
    p = "/".join(rnd.choice("abcd") for _ in range(rnd.randint(1, 4)))
    attempt(rnd.choice([
        lambda: os.makedirs(p), lambda: open(p, "w").write("new"), lambda: open(p, "a").write("more"), lambda: shutil.rmtree(p),
        lambda: os.remove(p), lambda: os.chmod(p, rnd.choice([0o755, 0o700, 0o555, 0o777, 0])), lambda: os.rename(p, p + "r"),
    ]))
`

// Whatever the host puts in the place of a workspace's directories while changes are applied, nothing
// is changed where links lead.
func TestApplyingFollowsNoLink(t *testing.T) {
	sandboxtest.Need(t, "userns", "python3")
	victim, ws := t.TempDir(), t.TempDir()
	fill(t, victim, 3)
	fill(t, ws, 3)
	before := described(t, victim)
	if os.Geteuid() == 0 {
		chownAll(t, ws, native.FileUID)
	}
	stop, swaps := make(chan struct{}), make(chan int)
	go func() { swaps <- exchange(t, ws, victim, stop) }()
	runner := native.New(nil)
	var runs sync.WaitGroup
	for worker := range 2 {
		runs.Go(func() {
			for seed := range 15 {
				_, err := runner.Run(t.Context(), &sandbox.Cmd{
					Argv: []string{"/usr/bin/python3", "-c", meddling, strconv.Itoa(100*worker + seed)}, Tree: openDir(t, t.TempDir()), Cwd: "/workspace",
					Env: []string{"PATH=/usr/bin:/bin"}, Workspace: sandbox.Workspace{Mode: sandbox.WorkspaceStaged, Dir: openDir(t, ws)},
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	runs.Wait()
	close(stop)
	if <-swaps == 0 {
		t.Error("nothing was exchanged")
	}
	if diff := cmp.Diff(before, described(t, victim)); diff != "" {
		t.Errorf("where the links lead:\n%s", diff)
	}
}

// exchange puts links to victim in the place of directories below dir and takes them away again, until
// stop is closed. It returns how often. It stays below dir itself.
func exchange(t *testing.T, dir, victim string, stop <-chan struct{}) (swaps int) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer root.Close()
	rnd := rand.New(rand.NewPCG(1, 2))
	for {
		select {
		case <-stop:
			return swaps
		default:
		}
		p := string("abcd"[rnd.IntN(4)])
		for range rnd.IntN(3) {
			p += "/" + string("abcd"[rnd.IntN(4)])
		}
		if info, err := root.Lstat(p); err != nil || !info.IsDir() || root.Rename(p, p+"-away") != nil {
			continue
		}
		if root.Symlink(victim, p) == nil {
			swaps++
			_ = root.Remove(p)
		}
		_ = root.Rename(p+"-away", p)
	}
}

// fill makes directories below dir, so deep, with files in the last ones.
func fill(t *testing.T, dir string, depth int) {
	t.Helper()
	for _, name := range []string{"a", "b", "c", "d"} {
		path := filepath.Join(dir, name)
		err := error(nil)
		if depth == 0 {
			err = os.WriteFile(path, []byte("old"), 0o644)
		} else if err = os.Mkdir(path, 0o755); err == nil {
			fill(t, path, depth-1)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func chownAll(t *testing.T, dir string, id int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, id, id)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// described returns everything below dir that applying could change.
func described(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := fmt.Sprint(info.Mode(), info.ModTime())
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text += " " + string(data)
		}
		all[p] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
