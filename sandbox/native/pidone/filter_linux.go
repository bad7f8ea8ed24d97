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
	retDone  = unix.SECCOMP_RET_ERRNO // 0, and nothing was done

	offNr   = 0
	offArch = 4
	offArg0 = 16

	setIDBits = 0o6000
	// creates is O_CREAT or O_TMPFILE without the O_DIRECTORY that is part of it: only then does
	// open look at its mode.
	creates = unix.O_CREAT | (unix.O_TMPFILE &^ unix.O_DIRECTORY)

	newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
		unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWTIME

	// lastKnown is the newest system call that is judged here. Calls that later kernels add do not
	// exist for the command.
	lastKnown    = 469
	fileSetattr  = 469
	openTreeAttr = 467
	setxattrat   = 463
)

// denied are refused with EPERM whatever their arguments: scripts do not need them for what they are
// written for, and each has been a way out of a sandbox, or could show or change what belongs to others.
var denied = []uint32{
	// Other processes: their memory, descriptors and identity. Only the command's own are there, and
	// the helper, which must not be looked into.
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
	unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_PROCESS_MRELEASE, unix.SYS_LSM_SET_SELF_ATTR,
	// On which nodes of the machine memory lies: moving it costs the kernel time that no limit counts.
	unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES, unix.SYS_MBIND, unix.SYS_SET_MEMPOLICY,
	unix.SYS_SET_MEMPOLICY_HOME_NODE,
	// The mount tree and the namespaces, by the old interface and all of the new one.
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_SETNS,
	unix.SYS_UNSHARE, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG,
	unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, openTreeAttr, unix.SYS_STATMOUNT,
	unix.SYS_LISTMOUNT,
	// Large parts of the kernel that run the caller's programs or let it hold the kernel up half-way.
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	// Keyrings do not belong to a namespace: the host user's keyrings would be in reach.
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	// The machine: modules, another kernel, power, swap, accounting, clocks, names.
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD,
	unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	// Files by other means than paths below the root: watching whole mounts, and handles, which name
	// any inode of a file system.
	unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK, unix.SYS_NAME_TO_HANDLE_AT,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	// The kernel's log, memory that it hides from itself, and calls without users for years.
	unix.SYS_SYSLOG, unix.SYS_MEMFD_SECRET, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_VHANGUP, unix.SYS_NFSSERVCTL,
	// Modes and flags of files behind a pointer, where the filter cannot see them.
	fileSetattr,
}

// absent answer ENOSYS, so that callers fall back to older calls. The filter cannot see the arguments of
// clone3 and openat2, which lie behind pointers, and io_uring makes calls past it. Rings of asynchronous
// input and output, and pages that were given to a pipe, are memory that belongs to no process. Watching
// files would show what everybody on the host does below /usr, such as which programs they start, and so
// would which pages of a file are in memory; watchers fall back to polling. The messages of POSIX queues are
// memory that outlives the processes.
var absent = []uint32{
	unix.SYS_CLONE3, unix.SYS_OPENAT2,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_IO_SETUP, unix.SYS_IO_SUBMIT, unix.SYS_IO_GETEVENTS, unix.SYS_IO_PGETEVENTS,
	unix.SYS_IO_CANCEL, unix.SYS_IO_DESTROY, unix.SYS_VMSPLICE,
	unix.SYS_INOTIFY_INIT1, unix.SYS_CACHESTAT, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
}

// unowned make memory that belongs to no process, and so is missing in a sum over processes. A ruleset of
// Landlock is held by a descriptor alone; the helper makes its own before the filter.
var unowned = []uint32{
	unix.SYS_MEMFD_CREATE, unix.SYS_SHMGET, unix.SYS_MSGGET, unix.SYS_SEMGET,
	unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_ADD_RULE, unix.SYS_LANDLOCK_RESTRICT_SELF,
}

// attributes set extended attributes, access lists among them. On files in memory they take memory without
// a limit. Programs that copy files accept that a file system has none.
var attributes = []uint32{unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, setxattrat}

// A modeArg is a call whose argument arg is a file mode, looked at when argument flags (unless
// negative) has one of the bits of creates.
type modeArg struct {
	nr         uint32
	arg, flags int
}

// assemble returns the filter program. Every rule leaves the call's number in the accumulator.
func assemble(noAnonFiles bool) []unix.SockFilter {
	p := program{}
	// The numbers below mean other calls to a program of another architecture.
	p.load(offArch)
	p.unless(unix.BPF_JEQ, auditArch, retNoSys)
	p.load(offNr)
	p.when(unix.BPF_JGT, lastKnown, retNoSys) // the x32 calls have bit 30 set
	p.memory(noAnonFiles)                     // first, because it is called most
	p.whole(noAnonFiles)
	// Processes and threads, but without namespaces of their own: inside a new one the command would hold
	// capabilities, and with them reach more of the kernel.
	p.rule(unix.SYS_CLONE, func(p *program) {
		p.load(offArg0)
		p.when(unix.BPF_JSET, newNamespaces, retPerm)
		// A thread with descriptors of its own would hold what nobody counts.
		p.unless(unix.BPF_JSET, unix.CLONE_THREAD, retAllow)
		p.unless(unix.BPF_JSET, unix.CLONE_FILES, retInval)
	})
	// Typing into a terminal that somebody else reads.
	p.rule(unix.SYS_IOCTL, func(p *program) {
		p.load(offArg0 + 8) // the kernel looks at the low half only, and so must the filter
		p.when(unix.BPF_JEQ, unix.TIOCSTI, retPerm)
		p.when(unix.BPF_JEQ, unix.TIOCLINUX, retPerm)
	})
	// Personalities switch protections of memory off; asking, and the usual one, are harmless.
	p.rule(unix.SYS_PERSONALITY, func(p *program) {
		p.load(offArg0)
		p.when(unix.BPF_JEQ, 0, retAllow)
		p.unless(unix.BPF_JEQ, 0xffffffff, retPerm)
	})
	// Pairs are connected to nothing else. A UNIX socket by itself could reach one that a mount shows, or
	// the host's abstract ones, and vsock the host of a virtual machine: neither depends on the network
	// namespace.
	p.rule(unix.SYS_SOCKETPAIR, func(p *program) {
		p.load(offArg0)
		p.unless(unix.BPF_JEQ, unix.AF_UNIX, retNoFam)
	})
	// The resolver uses netlink to ask for interfaces and routes.
	p.rule(unix.SYS_SOCKET, func(p *program) {
		p.load(offArg0)
		p.when(unix.BPF_JEQ, unix.AF_INET, retAllow)
		p.when(unix.BPF_JEQ, unix.AF_INET6, retAllow)
		p.unless(unix.BPF_JEQ, unix.AF_NETLINK, retNoFam)
		p.load(offArg0 + 16)
		p.unless(unix.BPF_JEQ, unix.NETLINK_ROUTE, retNoFam)
	})
	p.resources(noAnonFiles)
	// A set-id file in a writable workspace would be one on the host.
	for _, m := range append(modeArgs, modeArgsArch...) {
		p.rule(m.nr, func(p *program) { p.mode(m) })
	}
	p.ret(retAllow)
	return p.code
}

// A verdict is the answer to a call whatever its arguments.
type verdict struct{ nr, action uint32 }

// whole adds the rules on calls that are refused whatever their arguments. When the filter is installed,
// the kernel runs it on every number there is, so the rules form a binary search.
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

// among judges by verdicts, which are sorted by number.
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

// load puts the 32 bits at off of struct seccomp_data into the accumulator.
func (p *program) load(off uint32) { p.stmt(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, off) }

func (p *program) ret(action uint32) { p.stmt(unix.BPF_RET|unix.BPF_K, action) }

// when returns action if the accumulator meets a condition.
func (p *program) when(cond uint16, k, action uint32) {
	p.code = append(p.code, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | cond, Jf: 1, K: k})
	p.ret(action)
}

// unless returns action if the accumulator does not meet a condition.
func (p *program) unless(cond uint16, k, action uint32) {
	p.code = append(p.code, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | cond, Jt: 1, K: k})
	p.ret(action)
}

// rule judges the arguments of one call. If its body refuses nothing, the call is allowed.
func (p *program) rule(nr uint32, body func(*program)) {
	var b program
	body(&b)
	b.ret(retAllow)
	p.code = append(p.code, unix.SockFilter{
		Code: unix.BPF_JMP | unix.BPF_K | unix.BPF_JEQ, Jf: uint8(len(b.code)), K: nr,
	})
	p.code = append(p.code, b.code...)
}

// mode refuses set-id bits in an argument that is a file's mode.
func (p *program) mode(m modeArg) {
	if m.flags >= 0 {
		p.load(offArg0 + uint32(m.flags)*8)
		p.unless(unix.BPF_JSET, creates, retAllow)
	}
	p.load(offArg0 + uint32(m.arg)*8)
	p.when(unix.BPF_JSET, setIDBits, retPerm)
}
