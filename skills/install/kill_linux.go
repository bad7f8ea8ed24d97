package install

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// killTree has a command end with all it started when its context does, and itself when the thread
// that started it does.
func killTree(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// limitFiles has a process, and what it starts from then on, write no file longer than most bytes.
func limitFiles(pid int, most int64) error {
	var now unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &now); err != nil {
		return ended(err)
	}
	limit := min(uint64(most), now.Cur, now.Max)
	return ended(unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: limit}, nil))
}

// ended takes the error of a process that has ended already for none.
func ended(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
