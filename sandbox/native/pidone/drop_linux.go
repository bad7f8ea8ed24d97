package pidone

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ownTasks is room for the helper's own threads under limits that include them.
const ownTasks = 12

// drop drops every privilege of the main thread, which starts the command. The runtime's other threads get
// only the system call filter, and run nothing.
func (h *helper) drop() error {
	// If the processors are busy, the server takes precedence.
	if raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil {
		// The system call returns 20 minus the value.
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, min(20-raw+5, 19))
	}
	if err := h.limit(); err != nil {
		return err
	}
	// The new cgroup namespace shows the helper's control group as the root, which hides its name.
	if h.spec.Setting == Bare {
		if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
			return step("hide the control groups", err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return step("clear ambient capabilities", err)
	}
	if !h.ahead {
		if err := h.dropBounding(); err != nil {
			return err
		}
	}
	var data [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return step("drop capabilities", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return step("set no_new_privs", err)
	}
	if err := landlock("/", h.devices(), h.writable()); err != nil {
		return err
	}
	if err := h.filter(); err != nil {
		return err
	}
	return verify()
}

// filter installs the filter for all threads of this process.
func (h *helper) filter() error {
	filter := h.filters[h.spec.NoAnonFiles]
	if filter == nil {
		filter = assemble(h.spec.NoAnonFiles)
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return step("filter system calls", errno)
	}
	return nil
}

// dropBounding empties the bounding set, or checks that it is empty, because only a helper that built its
// tree has the right to change it.
func (h *helper) dropBounding() error {
	for c := uintptr(0); c < 64; c++ {
		if h.spec.Setting == Bare {
			err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
			if err == unix.EINVAL {
				// The number is beyond the last capability of the kernel.
				break
			}
			if err != nil {
				return step("drop the bounding set", err)
			}
			continue
		}
		if left, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err == nil && left != 0 {
			return step("find the bounding set empty", unix.EPERM)
		}
	}
	return nil
}

// verify makes calls that must fail from here on. A filter that was accepted but has no effect, or a wrong
// one, must be detected here.
func verify() error {
	for _, try := range []struct {
		name string
		call func() error
	}{
		{"unshare", func() error { return unix.Unshare(unix.CLONE_NEWUSER) }},
		{"mount", func() error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "") }},
		{"vsock", func() error {
			_, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
			return err
		}},
	} {
		if try.call() == nil {
			return step("filter "+try.name, unix.EBADE)
		}
	}
	return nil
}

// limit sets the resource limits, and raises none above the parent's.
func (h *helper) limit() error {
	s := h.spec
	for _, l := range []struct {
		resource int
		max      uint64
	}{
		// The limit is not 0. If core_pattern is a pipe, the kernel ignores the limit 0 and starts the host's
		// crash handler, as root, on a process that the command controls; the limit 1 prevents that. If
		// core_pattern is a socket, the kernel ignores every limit; the parent then has set the coredump
		// filter so that the dump is empty.
		{unix.RLIMIT_CORE, 1},
		{unix.RLIMIT_NOFILE, s.Files},
		{unix.RLIMIT_NPROC, s.PIDs + ownTasks},
		{unix.RLIMIT_FSIZE, s.File},
		{unix.RLIMIT_MEMLOCK, 64 << 10},
		{unix.RLIMIT_CPU, s.CPU},
		{unix.RLIMIT_MSGQUEUE, 64 << 10},
		{unix.RLIMIT_SIGPENDING, 1024},
		{unix.RLIMIT_RTPRIO, 0},
		{unix.RLIMIT_NICE, 0},
	} {
		lim := unix.Rlimit{Cur: l.max, Max: l.max}
		if l.resource == unix.RLIMIT_CPU {
			// A process that exceeds Cur gets a signal that names the reason.
			lim.Max++
		}
		var have unix.Rlimit
		if err := unix.Prlimit(0, l.resource, nil, &have); err != nil {
			if h.spec.Setting == Guest {
				continue
			}
			return step("read a resource limit", err)
		}
		lim.Cur, lim.Max = min(lim.Cur, have.Max), min(lim.Max, have.Max)
		if err := unix.Prlimit(0, l.resource, &lim, nil); err != nil && h.spec.Setting != Guest {
			return step("set a resource limit", err)
		}
	}
	return nil
}
