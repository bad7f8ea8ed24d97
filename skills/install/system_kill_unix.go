//go:build unix && !linux

package install

import (
	"os/exec"
	"syscall"
)

// killTree makes a command end with everything it started when its context ends.
func killTree(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
