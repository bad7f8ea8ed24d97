//go:build amd64 || arm64

package pidone

import (
	"slices"

	"golang.org/x/sys/unix"
)

const (
	retAllow = unix.SECCOMP_RET_ALLOW
	retPerm  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	retNoSys = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	retNoFam = unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
	retInval = unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL)
	retNoMem = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOMEM)
	retNoOpt = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOPROTOOPT)
	retNoSup = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOTSUP)
	retDone  = unix.SECCOMP_RET_ERRNO // errno 0: the call appears to succeed, without effect

	offNr   = 0
	offArch = 4
	offArg0 = 16

	setIDBits = 0o6000
	// creates is O_CREAT or O_TMPFILE without the O_DIRECTORY in it; only with one of these does open use its
	// mode.
	creates = unix.O_CREAT | (unix.O_TMPFILE &^ unix.O_DIRECTORY)

	newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
		unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWTIME

	// lastKnown is the newest system call in the tables of the filter. Calls that later kernels add fail as
	// nonexistent.
	lastKnown    = 469
	fileSetattr  = 469
	openTreeAttr = 467
	setxattrat   = 463
)

// denied calls fail with EPERM regardless of their arguments. Legitimate scripts do not need them, and each
// has been used to escape a sandbox, or could reveal or change state outside it.
var denied = []uint32{
	// Other processes: their memory, descriptors and identity. The sandbox contains only the command's own
	// processes and the helper, which must be protected.
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
	unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_PROCESS_MRELEASE, unix.SYS_LSM_SET_SELF_ATTR,
	// NUMA placement of memory: moving pages costs kernel time that no limit includes.
	unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES, unix.SYS_MBIND, unix.SYS_SET_MEMPOLICY,
	unix.SYS_SET_MEMPOLICY_HOME_NODE,
	// The mount tree and the namespaces, by the old interface and all of the new one.
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_SETNS,
	unix.SYS_UNSHARE, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG,
	unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, openTreeAttr, unix.SYS_STATMOUNT,
	unix.SYS_LISTMOUNT,
	// Large parts of the kernel that run the caller's programs or let it stall the kernel.
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	// Keyrings do not belong to a namespace, so the host user's keyrings would be accessible.
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	// The machine: modules, another kernel, power, swap, accounting, clocks, names.
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD,
	unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	// Access to files other than by paths below the root: watching whole mounts, and handles, which identify
	// any inode of a file system.
	unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK, unix.SYS_NAME_TO_HANDLE_AT,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	// The kernel log, memory that the kernel hides from itself, and calls that have been unused for years.
	unix.SYS_SYSLOG, unix.SYS_MEMFD_SECRET, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_VHANGUP, unix.SYS_NFSSERVCTL,
	// Modes and flags of files behind a pointer, which the filter cannot read.
	fileSetattr,
}

// absent calls fail with ENOSYS, so that callers fall back to older calls. The filter cannot read the
// arguments of clone3 and openat2, which are behind pointers, and io_uring makes calls that bypass it. Rings
// for asynchronous I/O and pages given to a pipe are memory that belongs to no process. Watching files, and
// querying which pages of a file are cached, would reveal the activity of all users of the host below /usr,
// such as the programs they start; watchers fall back to polling. Messages in POSIX queues are memory that
// outlives the processes.
var absent = []uint32{
	unix.SYS_CLONE3, unix.SYS_OPENAT2,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_IO_SETUP, unix.SYS_IO_SUBMIT, unix.SYS_IO_GETEVENTS, unix.SYS_IO_PGETEVENTS,
	unix.SYS_IO_CANCEL, unix.SYS_IO_DESTROY, unix.SYS_VMSPLICE,
	unix.SYS_INOTIFY_INIT1, unix.SYS_CACHESTAT, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
}

// unowned calls create memory that belongs to no process and is therefore missing in a sum over processes.
// They include Landlock rulesets, which only a descriptor holds; the helper creates its own before the
// filter.
var unowned = []uint32{
	unix.SYS_MEMFD_CREATE, unix.SYS_SHMGET, unix.SYS_MSGGET, unix.SYS_SEMGET,
	unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_ADD_RULE, unix.SYS_LANDLOCK_RESTRICT_SELF,
}

// attributes calls set extended attributes, including access lists, which use memory without limit for files
// in memory. Programs that copy files accept file systems without extended attributes.
var attributes = []uint32{unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, setxattrat}

// A modeArg is a call with a file mode in argument arg. The mode is checked if flags is negative or argument
// flags has a bit of creates.
type modeArg struct {
	nr         uint32
	arg, flags int
}

// assemble returns the filter program. Every rule leaves the system call number in the accumulator.
func assemble(noAnonFiles bool) []unix.SockFilter {
	p := program{}
	// On another architecture, the numbers below mean other calls.
	p.load(offArch)
	p.unless(unix.BPF_JEQ, auditArch, retNoSys)
	p.load(offNr)
	// The x32 calls have bit 30 set.
	p.when(unix.BPF_JGT, lastKnown, retNoSys)
	// These calls are the most frequent.
	p.memory(noAnonFiles)
	p.whole(noAnonFiles)
	// The command may start processes and threads, but not create namespaces: in a new user namespace it
	// would have capabilities, and with them access to more of the kernel.
	p.rule(unix.SYS_CLONE, func(p *program) {
		p.load(offArg0)
		p.when(unix.BPF_JSET, newNamespaces, retPerm)
		// A thread with its own descriptors could have more of them than are measured.
		p.unless(unix.BPF_JSET, unix.CLONE_THREAD, retAllow)
		p.unless(unix.BPF_JSET, unix.CLONE_FILES, retInval)
	})
	// Input injected into a terminal that another process reads.
	p.rule(unix.SYS_IOCTL, func(p *program) {
		// The kernel uses only the low half, so the filter must too.
		p.load(offArg0 + 8)
		p.when(unix.BPF_JEQ, unix.TIOCSTI, retPerm)
		p.when(unix.BPF_JEQ, unix.TIOCLINUX, retPerm)
	})
	// Personalities can disable memory protections. Querying, and the default personality, are harmless.
	p.rule(unix.SYS_PERSONALITY, func(p *program) {
		p.load(offArg0)
		p.when(unix.BPF_JEQ, 0, retAllow)
		p.unless(unix.BPF_JEQ, 0xffffffff, retPerm)
	})
	// Socket pairs are connected only to each other. A UNIX socket could reach one that a mount shows, or the
	// host's abstract sockets, and vsock the host of a virtual machine; the network namespace isolates
	// neither.
	p.rule(unix.SYS_SOCKETPAIR, func(p *program) {
		p.load(offArg0)
		p.unless(unix.BPF_JEQ, unix.AF_UNIX, retNoFam)
	})
	// The resolver uses netlink to query interfaces and routes.
	p.rule(unix.SYS_SOCKET, func(p *program) {
		p.load(offArg0)
		p.when(unix.BPF_JEQ, unix.AF_INET, retAllow)
		p.when(unix.BPF_JEQ, unix.AF_INET6, retAllow)
		p.unless(unix.BPF_JEQ, unix.AF_NETLINK, retNoFam)
		p.load(offArg0 + 16)
		p.unless(unix.BPF_JEQ, unix.NETLINK_ROUTE, retNoFam)
	})
	p.resources(noAnonFiles)
	// A set-id file in a writable workspace would be set-id on the host.
	for _, m := range append(modeArgs, modeArgsArch...) {
		p.rule(m.nr, func(p *program) { p.mode(m) })
	}
	p.ret(retAllow)
	return p.code
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

// foreign calls set limits or priorities of the process in argument 0.
var foreign = []uint32{
	unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR,
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

// A verdict is the action for a call regardless of its arguments.
type verdict struct{ nr, action uint32 }

// whole adds the rules for calls that are refused regardless of their arguments. When a filter is installed,
// the kernel evaluates it for every call number, so these rules form a binary search.
func (p *program) whole(noAnonFiles bool) {
	var verdicts []verdict
	add := func(action uint32, numbers []uint32) {
		for _, nr := range numbers {
			verdicts = append(verdicts, verdict{nr, action})
		}
	}
	add(retNoSys, absent)
	add(retNoSys, absentArch)
	if noAnonFiles {
		add(retNoSys, unowned)
	}
	add(retNoSup, attributes)
	add(retPerm, denied)
	add(retPerm, deniedArch)
	slices.SortFunc(verdicts, func(a, b verdict) int { return int(a.nr) - int(b.nr) })
	p.among(verdicts)
}

// among adds a binary search over verdicts, which are sorted by number.
func (p *program) among(verdicts []verdict) {
	if len(verdicts) <= 4 {
		for _, v := range verdicts {
			p.when(unix.BPF_JEQ, v.nr, v.action)
		}
		return
	}
	var low, high program
	half := len(verdicts) / 2
	low.among(verdicts[:half])
	high.among(verdicts[half:])
	low.stmt(unix.BPF_JMP|unix.BPF_JA, uint32(len(high.code)))
	p.code = append(p.code, unix.SockFilter{
		Code: unix.BPF_JMP | unix.BPF_K | unix.BPF_JGT, Jt: uint8(len(low.code)), K: verdicts[half].nr - 1,
	})
	p.code = append(append(p.code, low.code...), high.code...)
}

var modeArgs = []modeArg{
	{unix.SYS_FCHMOD, 1, -1}, {unix.SYS_FCHMODAT, 2, -1}, {unix.SYS_FCHMODAT2, 2, -1},
	{unix.SYS_MKNODAT, 2, -1}, {unix.SYS_OPENAT, 3, 2},
}

type program struct{ code []unix.SockFilter }

func (p *program) stmt(code uint16, k uint32) {
	p.code = append(p.code, unix.SockFilter{Code: code, K: k})
}

// load loads the 32 bits at off of struct seccomp_data into the accumulator.
func (p *program) load(off uint32) { p.stmt(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, off) }

func (p *program) ret(action uint32) { p.stmt(unix.BPF_RET|unix.BPF_K, action) }

// when returns action if the accumulator satisfies a condition.
func (p *program) when(cond uint16, k, action uint32) {
	p.code = append(p.code, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | cond, Jf: 1, K: k})
	p.ret(action)
}

// unless returns action if the accumulator does not satisfy a condition.
func (p *program) unless(cond uint16, k, action uint32) {
	p.code = append(p.code, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | cond, Jt: 1, K: k})
	p.ret(action)
}

// rule adds a rule on the arguments of one call. If its body refuses nothing, the call is allowed.
func (p *program) rule(nr uint32, body func(*program)) {
	var b program
	body(&b)
	b.ret(retAllow)
	p.code = append(p.code, unix.SockFilter{
		Code: unix.BPF_JMP | unix.BPF_K | unix.BPF_JEQ, Jf: uint8(len(b.code)), K: nr,
	})
	p.code = append(p.code, b.code...)
}

// mode refuses set-id bits in the mode argument of a call.
func (p *program) mode(m modeArg) {
	if m.flags >= 0 {
		p.load(offArg0 + uint32(m.flags)*8)
		p.unless(unix.BPF_JSET, creates, retAllow)
	}
	p.load(offArg0 + uint32(m.arg)*8)
	p.when(unix.BPF_JSET, setIDBits, retPerm)
}
