//go:build unix && !linux

package host

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Disinherit does nothing: this system cannot mark all descriptors at once.
func Disinherit() {}

// attributes make a command the leader of a session, without a terminal. It outlives a server that is
// killed.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// awaitEnd reports false: this system cannot wait for the end of a child without forgetting the child.
func awaitEnd(int) bool { return false }

// killSession kills the process group of a session's leader.
func killSession(sid int) {
	_ = unix.Kill(-sid, unix.SIGKILL) // there may be none left
}
