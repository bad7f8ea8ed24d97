//go:build amd64 || arm64

package pidone

import "golang.org/x/sys/unix"

// foreign calls set limits or priorities of the process in argument 0.
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

// memory adds the rules on memory that no limit includes.
func (p *program) memory(noAnonFiles bool) {
	// Huge pages from the machine's pool are included neither in resident sets nor in memory limits.
	p.rule(unix.SYS_MMAP, func(p *program) {
		p.load(offArg0 + 3*8)
		p.when(unix.BPF_JSET, unix.MAP_HUGETLB, retNoMem)
		if noAnonFiles {
			p.unless(unix.BPF_JSET, unix.MAP_ANONYMOUS, retAllow)
			p.unless(unix.BPF_JSET, unix.MAP_SHARED, retAllow)
			// The length has 64 bits, and a filter loads only 32 at a time.
			p.load(offArg0 + 8 + 4)
			p.unless(unix.BPF_JEQ, 0, retNoMem)
			p.load(offArg0 + 8)
			p.when(unix.BPF_JGT, MaxShared, retNoMem)
		}
	})
	// Otherwise absent includes these calls.
	if !noAnonFiles {
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
	// A process may request a futex hash table of any size.
	p.rule(unix.SYS_PRCTL, func(p *program) {
		p.load(offArg0)
		p.when(unix.BPF_JEQ, prFutexHash, retInval)
	})
}

// socketOption adds a rule on setting some options of a level. Calls with other options are left to the
// rules that follow, which may be for another level.
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

// resources adds the rules on resources that a command could exhaust, or take from other processes.
func (p *program) resources(noAnonFiles bool) {
	// A lease delays every process that opens the file, on the host too, for up to a minute.
	p.rule(unix.SYS_FCNTL, func(p *program) {
		p.load(offArg0 + 8)
		p.when(unix.BPF_JEQ, unix.F_SETLEASE, retPerm)
		// The oldest way to watch a directory.
		p.when(unix.BPF_JEQ, unix.F_NOTIFY, retPerm)
		// Locks of open file descriptions do not belong to a process, so they cannot be measured.
		p.when(unix.BPF_JEQ, unix.F_OFD_SETLK, retInval)
		p.when(unix.BPF_JEQ, unix.F_OFD_SETLKW, retInval)
		if noAnonFiles {
			p.when(unix.BPF_JEQ, unix.F_SETPIPE_SZ, retPerm)
		}
	})
	// Bytes in socket buffers belong to no process's memory. Programs that request larger buffers work with
	// the usual size, but some fail after an error.
	p.socketOption(unix.SOL_SOCKET, retDone, unix.SO_RCVBUF, unix.SO_SNDBUF, unix.SO_RCVBUFFORCE,
		unix.SO_SNDBUFFORCE)
	// The number of keys for signing connections is neither limited nor measured.
	p.socketOption(unix.IPPROTO_TCP, retNoOpt, unix.TCP_MD5SIG, unix.TCP_MD5SIG_EXT, tcpAOAddKey)
	// This advice evicts files from the host's page cache. Advice may be ignored.
	p.rule(unix.SYS_FADVISE64, func(p *program) {
		p.load(offArg0 + 3*8)
		p.when(unix.BPF_JEQ, unix.FADV_DONTNEED, retDone)
	})
	// A process may set its own limits and priority as far as the kernel allows. Processor affinity is set
	// for threads by ID, so only the helper's ID can be refused.
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
		// Both halves of the pointer to the new limit.
		for _, off := range []uint32{offArg0 + 16, offArg0 + 20} {
			p.load(off)
			p.unless(unix.BPF_JEQ, 0, retPerm)
		}
	})
}
