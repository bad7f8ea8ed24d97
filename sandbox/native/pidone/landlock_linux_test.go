package pidone

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// The layer is tried alone, on a thread that ends with it, in directories that nothing else protects.
func TestLandlock(t *testing.T) {
	version, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || version < landlockLeast {
		t.Skipf("missing capability: landlock of version %d: %v", landlockLeast, errno)
	}
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, name) }
	for _, d := range []string{"read", "write", "write/a", "write/b", "dev", "outside"} {
		if err := os.Mkdir(at(d), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"read/f", "write/a/f", "dev/f", "outside/f"} {
		if err := os.WriteFile(at(f), []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	open := func(name string, flags int) func() error {
		return func() error {
			fd, err := unix.Open(at(name), flags|unix.O_CLOEXEC, 0o600)
			if err == nil {
				err = unix.Close(fd)
			}
			return err
		}
	}
	tests := []struct {
		name   string
		try    func() error
		denied bool
	}{
		{"read", open("read/f", unix.O_RDONLY), false},
		{"write what may be read", open("read/f", unix.O_WRONLY), true},
		{"make a file where one may read", open("read/g", unix.O_WRONLY|unix.O_CREAT), true},
		{"remove where one may read", func() error { return unix.Unlink(at("read/f")) }, true},
		{"truncate what may be read", func() error { return unix.Truncate(at("read/f"), 0) }, version >= landlockTruncate},
		{"write", open("write/a/f", unix.O_WRONLY), false},
		{"make", open("write/a/g", unix.O_WRONLY|unix.O_CREAT), false},
		{"make a FIFO", func() error { return unix.Mkfifo(at("write/p"), 0o600) }, false},
		{"make a device", func() error { return unix.Mknod(at("write/d"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) }, true},
		{"move between directories", func() error { return unix.Rename(at("write/a/f"), at("write/b/f")) }, false},
		{"move out", func() error { return unix.Rename(at("write/b/f"), at("read/h")) }, true},
		{"write and truncate a device", open("dev/f", unix.O_WRONLY|unix.O_TRUNC), false},
		{"make a device's neighbour", open("dev/g", unix.O_WRONLY|unix.O_CREAT), true},
		{"read outside", open("outside/f", unix.O_RDONLY), true},
	}
	results := make(chan []error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its restriction
		var errs []error
		if err := errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), landlock(at("read"), []string{at("dev")}, []string{at("write")})); err != nil {
			results <- []error{err}
			return
		}
		for _, tt := range tests {
			errs = append(errs, tt.try())
		}
		results <- errs
	}()
	errs := <-results
	if len(errs) != len(tests) {
		t.Fatal(errs)
	}
	for i, tt := range tests {
		// A device needs a right of its own that only root has.
		denied := errs[i] == unix.EACCES || errs[i] == unix.EXDEV || errs[i] == unix.EPERM
		if denied != tt.denied || errs[i] != nil && !denied {
			t.Errorf("%s = %v, want denied %t", tt.name, errs[i], tt.denied)
		}
	}
}
