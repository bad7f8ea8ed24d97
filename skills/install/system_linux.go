package install

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// killTree makes the end of its context kill a command and all processes that it started. The command is also
// killed when the thread that started it exits.
func killTree(cmd *exec.Cmd) {
	// git starts programs such as ssh, which must end together with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// umask returns the file mode creation mask of the process, 0 if it cannot be read.
func umask() (mask int64) {
	// The system call cannot read the mask without a change of it for all threads.
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "Umask:"); ok {
			mask, _ = strconv.ParseInt(strings.TrimSpace(text), 8, 32) // the kernel prints octal digits
			return mask
		}
	}
	return 0
}

// limitFiles keeps a process and its later children from writing a file longer than most bytes.
func limitFiles(pid int, most int64) error {
	var now unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &now)
	if errors.Is(err, unix.ESRCH) {
		// The process has exited already.
		return nil
	}
	if err != nil {
		return err
	}
	// An ordinary user cannot raise a limit (prlimit(2)).
	limit := min(uint64(most), now.Cur, now.Max)
	err = unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: limit}, nil)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// exchange swaps two files atomically. Not every file system supports it.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}
