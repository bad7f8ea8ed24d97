package native

import (
	"os"
	"sync"
	"testing"

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
