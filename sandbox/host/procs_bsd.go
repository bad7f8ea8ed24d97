//go:build unix && !linux

package host

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Disinherit does nothing, because this system cannot mark all descriptors at once.
func Disinherit() {}

// attributes make a command the leader of a session without a terminal. It outlives a killed server.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// awaitEnd reports false, because this system cannot wait for the end of a child without reaping it.
func awaitEnd(int) bool { return false }

// killSession kills the process group of a session's leader.
func killSession(sid int) {
	// The group may be empty.
	_ = unix.Kill(-sid, unix.SIGKILL)
}
