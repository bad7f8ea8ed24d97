//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package fsys

import (
	"os"
	"syscall"
)

// Locks reports whether the system has locks that end with their process.
const Locks = true

// LockAlone tries to get the exclusive lock of a directory, and reports whether it did. The lock ends with
// the process. On a file system or a system without such locks it returns false.
func LockAlone(dir *os.File) bool {
	return syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// ShareLock gets a shared lock, also in exchange for an exclusive one. It waits while another process has the
// exclusive lock.
func ShareLock(dir *os.File) { _ = syscall.Flock(int(dir.Fd()), syscall.LOCK_SH) }
