//go:build amd64 || arm64

package pidone

import "golang.org/x/sys/unix"

// foreign are calls that set limits or priorities of the process that argument 0 names.
var foreign = []uint32{
	unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR,
}

// resources are the rules on what a command could take, or take from others.
func (p *program) resources(noAnonFiles bool) {
	// A lease holds up whoever opens the file, on the host too, for as long as a minute.
	p.rule(unix.SYS_FCNTL, func(p *program) {
		p.load(offArg0 + 8)
		p.when(unix.BPF_JEQ, unix.F_SETLEASE, retPerm)
		if noAnonFiles {
			p.when(unix.BPF_JEQ, unix.F_SETPIPE_SZ, retPerm)
			// Locks of open files belong to no process that they could be counted for.
			p.when(unix.BPF_JEQ, unix.F_OFD_SETLK, retInval)
			p.when(unix.BPF_JEQ, unix.F_OFD_SETLKW, retInval)
		}
	})
	// What waits in a socket's buffers is in no process's memory. Programs that ask for larger
	// ones do well with the usual size, but not all with an error.
	p.rule(unix.SYS_SETSOCKOPT, func(p *program) {
		p.load(offArg0 + 8)
		p.unless(unix.BPF_JEQ, unix.SOL_SOCKET, retAllow)
		p.load(offArg0 + 16)
		for _, option := range []uint32{unix.SO_RCVBUF, unix.SO_SNDBUF, unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE} {
			p.when(unix.BPF_JEQ, option, retDone)
		}
	})
	// Of its own limits and priority a process may set what the kernel allows.
	for _, nr := range foreign {
		p.rule(nr, func(p *program) {
			p.load(offArg0)
			p.unless(unix.BPF_JEQ, 0, retPerm)
		})
	}
	p.rule(unix.SYS_SETPRIORITY, func(p *program) {
		p.load(offArg0)
		p.unless(unix.BPF_JEQ, unix.PRIO_PROCESS, retPerm)
		p.load(offArg0 + 8)
		p.unless(unix.BPF_JEQ, 0, retPerm)
	})
	p.rule(unix.SYS_PRLIMIT64, func(p *program) {
		p.load(offArg0)
		p.when(unix.BPF_JEQ, 0, retAllow)
		// Both halves of the pointer to the limit to be set.
		for _, off := range []uint32{offArg0 + 16, offArg0 + 20} {
			p.load(off)
			p.unless(unix.BPF_JEQ, 0, retPerm)
		}
	})
}
