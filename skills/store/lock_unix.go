//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package store

import (
	"os"
	"syscall"
)

// lockAlone locks the store's directory and reports whether no other process has it locked. The lock
// ends with the process, however that ends. On a file system without locks no process is alone.
func lockAlone(dir *os.File) bool {
	return syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// shareLock lets other processes in. It waits for a process that has the lock alone.
func shareLock(dir *os.File) { _ = syscall.Flock(int(dir.Fd()), syscall.LOCK_SH) }
