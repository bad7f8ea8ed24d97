package host

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Disinherit prevents programs started later from inheriting this process's current descriptors, except the
// three standard ones. Go marks the descriptors that this process opened itself, but not those it inherited.
// Disinherit does nothing before Linux 5.11, which cannot mark all descriptors at once.
func Disinherit() { _ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) }

// attributes make a command the leader of a session without a terminal, which ends with the server. The
// command inherits no descriptors, even if the server's main did not call Disinherit.
func attributes() *syscall.SysProcAttr {
	Disinherit()
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitEnd returns when a child has ended, without reaping it, and reports whether it could.
func awaitEnd(pid int) bool {
	err := unix.EINTR
	for err == unix.EINTR {
		err, _ = unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil).(unix.Errno)
	}
	return err == 0
}

// maxSweeps limits the attempts to kill a session that starts processes meanwhile.
const maxSweeps = 100

// killSession kills the processes of a session, including those in process groups of their own.
func killSession(sid int) {
	// The group may be empty.
	_ = unix.Kill(-sid, unix.SIGKILL)
	for range maxSweeps {
		found := false
		for _, pid := range members(sid) {
			found = true
			// The process may have ended.
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if !found {
			return
		}
	}
}

// members returns the living processes of a session.
func members(sid int) (pids []int) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = d.Close() }()
	// The list is empty if the process has ended meanwhile.
	names, _ := d.Readdirnames(-1)
	want := []byte(strconv.Itoa(sid))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		// The name in parentheses may contain any characters; state, parent, group and session follow it.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 3 && fields[0][0] != 'Z' && fields[0][0] != 'X' && bytes.Equal(fields[3], want) {
			pids = append(pids, pid)
		}
	}
	return pids
}
