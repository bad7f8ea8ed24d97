package native

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

func TestSweepKeepsWhatIsInUse(t *testing.T) {
	sandboxtest.Need(t, "memory-cgroup")
	b := findCgroups(Options{})
	if b.memory == MemorySampled {
		t.Skip("missing capability memory-cgroup: no cgroup could be made")
	}
	var groups [3]*cgroup
	for i := range groups {
		g, err := b.create(sandbox.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := g.remove(); err != nil {
				t.Error(err)
			}
		})
		groups[i] = g
	}
	used, fresh, left := groups[0], groups[1], groups[2]
	sleep := exec.Command("sleep", "60")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleep.Process.Kill(); _ = sleep.Wait() })
	if err := used.add(sleep.Process.Pid); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * stale)
	for _, g := range []*cgroup{used, left} {
		for _, d := range g.dirs {
			if err := os.Chtimes(d, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.sweep()
	for _, d := range append(used.dirs, fresh.dirs...) {
		if _, err := os.Stat(d); err != nil {
			t.Errorf("sweep removed a cgroup in use: %v", err)
		}
	}
	for _, d := range left.dirs {
		if _, err := os.Stat(d); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("sweep left %s (%v)", filepath.Base(d), err)
		}
	}
	if procs, err := os.ReadFile(filepath.Join(used.dirs[0], "cgroup.procs")); err != nil || string(procs) != strconv.Itoa(sleep.Process.Pid)+"\n" {
		t.Errorf("cgroup.procs = %q, %v", procs, err)
	}
}

// A killed server's cgroups go at the next start, not only when they have become old.
func TestSweepTakesOrphans(t *testing.T) {
	sandboxtest.Need(t, "memory-cgroup")
	b := findCgroups(Options{})
	if b.memory == MemorySampled {
		t.Skip("missing capability memory-cgroup: no cgroup could be made")
	}
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	base := b.unified
	if b.memory == MemoryCgroup1 {
		base = b.mem
	}
	orphan := filepath.Join(base, groupPrefix+pidSpace()+"-"+strconv.Itoa(dead.Process.Pid)+"-X")
	stranger := filepath.Join(base, groupPrefix+"elsewhere-"+strconv.Itoa(dead.Process.Pid)+"-X")
	for _, d := range []string{orphan, stranger} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(d) })
	}
	b.sweep()
	if _, err := os.Stat(orphan); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cgroup of a dead server is left: %v", err)
	}
	if _, err := os.Stat(stranger); err != nil {
		t.Errorf("the cgroup of a server in another namespace is gone: %v", err)
	}
}

// A server may be started in a group next to the one of its predecessor.
func TestSweepLooksBeside(t *testing.T) {
	sandboxtest.Need(t, "memory-cgroup")
	b := findCgroups(Options{})
	if b.memory == MemorySampled {
		t.Skip("missing capability memory-cgroup: no cgroup could be made")
	}
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	top := filepath.Join(b.mem+b.unified, "sweep-[test]-"+strconv.Itoa(os.Getpid()))
	orphan := filepath.Join(top, "before", groupPrefix+pidSpace()+"-"+strconv.Itoa(dead.Process.Pid)+"-X")
	for _, d := range []string{top, filepath.Join(top, "own"), filepath.Dir(orphan), orphan} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(d) })
	}
	if b.memory == MemoryCgroup1 {
		b.mem = filepath.Join(top, "own")
	} else {
		b.unified = filepath.Join(top, "own")
	}
	b.sweep()
	if _, err := os.Stat(orphan); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cgroup of a dead server next to this one's is left: %v", err)
	}
}
