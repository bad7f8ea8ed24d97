package pidone

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// rights are the bytes in which a message brings descriptors. They are copies, which what takes them
// closes.
func rights(t *testing.T, files ...*os.File) (oob []byte, fds []int) {
	t.Helper()
	for _, f := range files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	return unix.UnixRights(fds...), fds
}

// Every list of threads that came gets the thread, and no descriptor of one is left for the command.
func TestEnterGroups(t *testing.T) {
	var lists []*os.File
	for _, name := range []string{"memory", "pids"} {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lists = append(lists, f)
	}
	oob, fds := rights(t, lists...)
	if err := enterGroups(oob, 2); err != nil {
		t.Fatal(err)
	}
	for i, f := range lists {
		if text, err := os.ReadFile(f.Name()); err != nil || string(text) != "0" {
			t.Errorf("%s: %q, %v", f.Name(), text, err)
		}
		if _, err := unix.FcntlInt(uintptr(fds[i]), unix.F_GETFD, 0); err != unix.EBADF {
			t.Errorf("descriptor %d is left: %v", fds[i], err)
		}
	}
	if err := enterGroups(nil, 0); err != nil {
		t.Errorf("without groups: %v", err)
	}
}

// A helper that one of its groups refuses starts nothing.
func TestEnterGroupsRefused(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "tasks"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	refusing, err := os.Open(f.Name()) // not for writing
	if err != nil {
		t.Fatal(err)
	}
	defer refusing.Close()
	oob, fds := rights(t, f, refusing)
	if err := enterGroups(oob, 2); err != unix.EBADF {
		t.Errorf("enterGroups = %v, want EBADF", err)
	}
	_ = unix.Close(fds[1])
	oob, _ = rights(t, f)
	if err := enterGroups(oob, 2); err == nil {
		t.Error("one of two groups is enough")
	}
	if err := enterGroups([]byte{1, 2, 3}, 1); err == nil {
		t.Error("a message without descriptors is enough")
	}
}
