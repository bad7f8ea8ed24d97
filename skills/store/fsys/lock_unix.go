//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package fsys

import (
	"os"
	"syscall"
)

// Locks reports whether there are locks that end with their process.
const Locks = true

// LockAlone locks a directory and reports whether no other process has it locked. The lock ends with the
// process, however that ends. On a file system or a system without such locks no process is alone.
func LockAlone(dir *os.File) bool {
	return syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// ShareLock lets other processes in. It waits for a process that has the lock alone.
func ShareLock(dir *os.File) { _ = syscall.Flock(int(dir.Fd()), syscall.LOCK_SH) }
