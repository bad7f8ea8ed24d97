//go:build unix

package e2e

import (
	"os/exec"
	"syscall"
)

// ownGroup gives a command a group of processes, which ends as a whole.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		killGroup(cmd.Process.Pid)
		return nil
	}
}

// killGroup ends the group that a process leads, and reports whether it was there.
func killGroup(pid int) bool { return pid > 0 && syscall.Kill(-pid, syscall.SIGKILL) == nil }
