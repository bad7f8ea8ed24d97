//go:build unix && !linux

package install

import (
	"os/exec"
	"syscall"
)

// killTree makes the end of its context kill a command and all processes that it started.
func killTree(cmd *exec.Cmd) {
	// git starts programs such as ssh, which must end together with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
