//go:build amd64 || arm64

package pidone

import "golang.org/x/sys/unix"

// foreign are calls that set limits or priorities of the process in argument 0.
var foreign = []uint32{
	unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR,
}

const (
	prFutexHash   = 78
	tcpAOAddKey   = 38
	ioprioProcess = 1
	mfdHugeTLB    = 4
	shmHugeTLB    = 0o4000
)

// memory adds the rules on memory that no limit counts.
func (p *program) memory(noAnonFiles bool) {
	// Pages of the machine's pool of huge pages are missing in resident sets and in limits on memory.
	p.rule(unix.SYS_MMAP, func(p *program) {
		p.load(offArg0 + 3*8)
		p.when(unix.BPF_JSET, unix.MAP_HUGETLB, retNoMem)
		if noAnonFiles {
			p.unless(unix.BPF_JSET, unix.MAP_ANONYMOUS, retAllow)
			p.unless(unix.BPF_JSET, unix.MAP_SHARED, retAllow)
			p.load(offArg0 + 8 + 4)
			p.unless(unix.BPF_JEQ, 0, retNoMem)
			p.load(offArg0 + 8)
			p.when(unix.BPF_JGT, MaxShared, retNoMem)
		}
	})
	if !noAnonFiles { // otherwise these calls are absent
		p.rule(unix.SYS_MEMFD_CREATE, func(p *program) {
			p.load(offArg0 + 8)
			p.when(unix.BPF_JSET, mfdHugeTLB, retNoMem)
		})
		p.rule(unix.SYS_SHMGET, func(p *program) {
			p.load(offArg0 + 2*8)
			p.when(unix.BPF_JSET, shmHugeTLB, retNoMem)
		})
	}
	// A filter's descriptor keeps the filter in memory after its process has ended.
	p.rule(unix.SYS_SECCOMP, func(p *program) {
		p.load(offArg0 + 8)
		p.when(unix.BPF_JSET, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, retInval)
	})
	// A process may ask for a table of its locks of any size.
	p.rule(unix.SYS_PRCTL, func(p *program) {
		p.load(offArg0)
		p.when(unix.BPF_JEQ, prFutexHash, retInval)
	})
}

// socketOption adds a rule on setting some options of a level. A call that it does not answer is judged by
// the rules that follow, which may be of another level.
func (p *program) socketOption(level, action uint32, options ...uint32) {
	var b program
	b.load(offArg0 + 8)
	var of program
	of.load(offArg0 + 16)
	for _, o := range options {
		of.when(unix.BPF_JEQ, o, action)
	}
	const isEqual = unix.BPF_JMP | unix.BPF_K | unix.BPF_JEQ
	b.code = append(b.code, unix.SockFilter{Code: isEqual, Jf: uint8(len(of.code)), K: level})
	b.code = append(b.code, of.code...)
	b.load(offNr)
	p.code = append(p.code, unix.SockFilter{Code: isEqual, Jf: uint8(len(b.code)), K: unix.SYS_SETSOCKOPT})
	p.code = append(p.code, b.code...)
}

// resources adds the rules on what a command could use up, or take from others.
func (p *program) resources(noAnonFiles bool) {
	// A lease delays whoever opens the file, on the host too, for up to a minute.
	p.rule(unix.SYS_FCNTL, func(p *program) {
		p.load(offArg0 + 8)
		p.when(unix.BPF_JEQ, unix.F_SETLEASE, retPerm)
		// The oldest way to watch a directory.
		p.when(unix.BPF_JEQ, unix.F_NOTIFY, retPerm)
		// Locks of open file descriptions do not belong to a process, and so cannot be counted.
		p.when(unix.BPF_JEQ, unix.F_OFD_SETLK, retInval)
		p.when(unix.BPF_JEQ, unix.F_OFD_SETLKW, retInval)
		if noAnonFiles {
			p.when(unix.BPF_JEQ, unix.F_SETPIPE_SZ, retPerm)
		}
	})
	// Bytes in a socket's buffers are in no process's memory. Programs that ask for larger buffers work
	// with the usual size, but some of them not with an error.
	p.socketOption(unix.SOL_SOCKET, retDone, unix.SO_RCVBUF, unix.SO_SNDBUF, unix.SO_RCVBUFFORCE,
		unix.SO_SNDBUFFORCE)
	// Keys that sign connections are not limited in number, and not counted.
	p.socketOption(unix.IPPROTO_TCP, retNoOpt, unix.TCP_MD5SIG, unix.TCP_MD5SIG_EXT, tcpAOAddKey)
	// This advice takes files of the host out of its memory. Advice may be ignored.
	p.rule(unix.SYS_FADVISE64, func(p *program) {
		p.load(offArg0 + 3*8)
		p.when(unix.BPF_JEQ, unix.FADV_DONTNEED, retDone)
	})
	// A process may set its own limits and priority as far as the kernel allows. Threads are bound to
	// processors by their numbers, so there only the helper's number can be refused.
	p.rule(unix.SYS_SCHED_SETAFFINITY, func(p *program) {
		p.load(offArg0)
		p.when(unix.BPF_JEQ, 1, retPerm)
	})
	p.rule(unix.SYS_IOPRIO_SET, func(p *program) {
		p.load(offArg0)
		p.unless(unix.BPF_JEQ, ioprioProcess, retPerm)
		p.load(offArg0 + 8)
		p.when(unix.BPF_JEQ, 1, retPerm)
	})
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
