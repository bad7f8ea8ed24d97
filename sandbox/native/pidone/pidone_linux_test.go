package pidone

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// What another program made is not believed: each point alone must stop the helper.
func TestBuiltIsExamined(t *testing.T) {
	meant, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer meant.Close()
	examine := func(target string, readOnly bool) *stepError {
		t.Helper()
		h := &helper{spec: &Spec{Setting: Built, Mounts: []Mount{{FD: int(meant.Fd()), Target: target, ReadOnly: readOnly}}}}
		err, _ := h.examine().(*stepError)
		return err
	}
	other := t.TempDir()
	if err := examine(other, false); err == nil || err.errno != unix.ESTALE {
		t.Errorf("another directory: %v, want ESTALE", err)
	}
	if err := examine(other+"/missing", false); err == nil || err.errno != unix.ENOENT {
		t.Errorf("no directory: %v, want ENOENT", err)
	}
	if err := examine(meant.Name(), true); err == nil || err.errno != unix.EPERM {
		t.Errorf("writable: %v, want EPERM", err)
	}
	if err := examine(meant.Name(), false); err != nil && err.step != "open "+outDir {
		t.Errorf("as meant: %v", err)
	}
	if left, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_CHOWN, 0, 0, 0); err != nil || left == 0 {
		t.Skip("missing capability: a bounding set that is not empty")
	}
	for _, setting := range []Setting{Built, Guest} {
		if err := (&helper{spec: &Spec{Setting: setting}}).dropBounding(); err == nil {
			t.Errorf("setting %d: a bounding set that is not empty is taken for one that is", setting)
		}
	}
}

// The descriptors that the runtime polls with are known, and no other is taken for one.
func TestPollers(t *testing.T) {
	r, w, err := os.Pipe() // which starts the poller
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	got, err := pollers()
	if err != nil {
		t.Fatal(err)
	}
	// They may have been opened where a helper has its own descriptors.
	var want []int
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range open {
		fd, err := strconv.Atoi(entry.Name())
		link, _ := os.Readlink("/proc/self/fd/" + entry.Name())
		if err == nil && fd >= FirstFD && (link == "anon_inode:[eventpoll]" || link == "anon_inode:[eventfd]") {
			want = append(want, fd)
		}
	}
	slices.Sort(want)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("pollers() = %v, want %v", got, want)
	}
}

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
