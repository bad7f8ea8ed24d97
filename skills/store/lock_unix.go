//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package store

import (
	"os"
	"syscall"
)

// lockDir locks the store's directory and reports whether no other process has it locked. The lock
// ends with the process, however that ends. On a file system without locks no process is alone.
func lockDir(root *os.Root) (lock *os.File, alone bool) {
	lock, err := root.Open(".")
	if err != nil {
		return nil, false
	}
	return lock, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// shareLock lets other processes in. It waits for a process that has the lock alone.
func shareLock(lock *os.File) { _ = syscall.Flock(int(lock.Fd()), syscall.LOCK_SH) }

// lockAlone changes the lock so that no other process has it, and reports whether that could be done.
func lockAlone(lock *os.File) bool {
	return syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
