package environment_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// withoutSync calls f on a thread whose every fsync fails.
func withoutSync(f func()) error {
	done := make(chan error)
	go func() {
		// The thread ends with this goroutine, since it stays locked.
		runtime.LockOSThread()
		filter := []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FSYNC, Jf: 1},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EIO)},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		}
		program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}

// A list that a crash could leave in part is not put in the place of the old one: it is synced before.
func TestReferSyncs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStore(t, dir)
	if err := s.Refer("/a"); err != nil {
		t.Fatal(err)
	}
	var referred error
	if err := withoutSync(func() { referred = s.Refer("/b") }); err != nil {
		t.Skipf("missing capability: to filter system calls: %v", err)
	}
	if !errors.Is(referred, unix.EIO) {
		t.Errorf("Refer = %v where nothing can be synced", referred)
	}
	if got, err := s.References(); err != nil || !slices.Equal(got, []string{"/a"}) {
		t.Errorf("References = %q, %v", got, err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := s.Refer("/b"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.References(); err != nil || !slices.Equal(got, []string{"/a", "/b"}) {
		t.Errorf("References = %q, %v", got, err)
	}
}
