package native

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// The process stays where its mounts are, whichever of its threads attaches others: /proc/self shows what the
// first one sees.
func TestAttachedLeavesTheProcess(t *testing.T) {
	sandboxtest.Need(t, "root")
	where := func() string {
		name, err := os.Readlink("/proc/self/ns/mnt")
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	before := where()
	const many = 64 // more than the threads that are idle, so that the first one is among them
	var all sync.WaitGroup
	arrived, leave := make(chan error, many), make(chan struct{})
	for range many {
		all.Go(func() {
			err := attached(func() error {
				arrived <- nil
				<-leave
				return nil
			})
			if err != nil {
				arrived <- err
			}
		})
	}
	for range many {
		if err := <-arrived; err != nil {
			t.Error(err)
		}
	}
	close(leave)
	all.Wait()
	if after := where(); after != before {
		t.Errorf("the process is in %s, and was in %s", after, before)
	}
}

// A layer that cannot be completed is closed at once: its descriptor would keep a file system in memory.
func TestOverlayClosesItsLayer(t *testing.T) {
	sandboxtest.Need(t, "root")
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lower, err := os.Open(name) // only a directory can be copied from
	if err != nil {
		t.Fatal(err)
	}
	defer lower.Close()
	layers := func() (n int) {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && to == "/upper" {
				n++
			}
		}
		return n
	}
	before := layers()
	l := &launch{limits: sandbox.DefaultLimits()}
	for range 3 {
		if mount, upper, err := l.overlay(lower); err == nil {
			t.Fatal(mount, upper)
		}
	}
	if after := layers(); after != before {
		t.Errorf("%d layers are open, and were %d before", after, before)
	}
}
