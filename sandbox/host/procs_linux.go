package host

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Disinherit keeps every descriptor that this process has now from the programs that it starts, except for
// the three standard ones. Go keeps the descriptors that this process opened anyway, but not the inherited
// ones. Disinherit does nothing before Linux 5.11, which cannot mark them all at once.
func Disinherit() { _ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) }

// attributes make a command the leader of a session, without a terminal, that ends with the server. It
// inherits nothing, whatever the server's main did.
func attributes() *syscall.SysProcAttr {
	Disinherit()
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitEnd returns when a child has ended, without waiting for it as its parent, and reports whether it
// could.
func awaitEnd(pid int) bool {
	err := unix.EINTR
	for err == unix.EINTR {
		err, _ = unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil).(unix.Errno)
	}
	return err == 0
}

// maxSweeps bounds the rounds against a session that starts processes while it is killed.
const maxSweeps = 100

// killSession kills the processes of a session, including those in process groups of their own.
func killSession(sid int) {
	_ = unix.Kill(-sid, unix.SIGKILL) // there may be none left
	for range maxSweeps {
		found := false
		for _, pid := range members(sid) {
			found = true
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
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
	names, _ := d.Readdirnames(-1) // a process that ends meanwhile has no name
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
		// The name in parentheses may hold anything; after it come state, parent, group and session.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 3 && fields[0][0] != 'Z' && fields[0][0] != 'X' && bytes.Equal(fields[3], want) {
			pids = append(pids, pid)
		}
	}
	return pids
}
