//go:build unix && !linux

package install

import (
	"os/exec"
	"syscall"
)

// killTree has a command end with all it started when its context does.
func killTree(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// limitFiles leaves a process as it is: no other one's limits can be set here.
func limitFiles(int, int64) error { return nil }
