package fsys_test

import (
	"os"
	"testing"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// A file system that may hand the bytes to somebody else is not synced as a whole, and then nothing is.
func TestSyncWhole(t *testing.T) {
	open := func(name string) *os.File {
		dir, err := os.Open(name)
		if err != nil {
			t.Skipf("missing capability: %v", err)
		}
		t.Cleanup(func() { dir.Close() })
		return dir
	}
	memory, processes := open("/dev/shm"), open("/proc")
	for _, test := range []struct {
		dirs []*os.File
		done bool
	}{
		{[]*os.File{memory, memory}, true}, {[]*os.File{processes}, false},
		{[]*os.File{memory, processes}, false},
	} {
		if done, err := fsys.SyncWhole(test.dirs); done != test.done || err != nil {
			t.Errorf("SyncWhole(%v) = %t, %v", test.dirs, done, err)
		}
	}
	closed := open("/dev/shm")
	closed.Close()
	if done, err := fsys.SyncWhole([]*os.File{closed}); done || err == nil {
		t.Errorf("SyncWhole of a closed directory = %t, %v", done, err)
	}
}
