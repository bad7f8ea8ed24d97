//go:build amd64 || arm64

package pidone

import (
	"encoding/binary"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// judge runs the filter as the kernel does, on one system call.
func judge(t *testing.T, code []unix.SockFilter, arch, nr uint32, args ...uint64) uint32 {
	t.Helper()
	var data [64]byte
	binary.LittleEndian.PutUint32(data[offNr:], nr)
	binary.LittleEndian.PutUint32(data[offArch:], arch)
	for i, a := range args {
		binary.LittleEndian.PutUint64(data[offArg0+8*i:], a)
	}
	var acc uint32
	for pc := 0; pc < len(code); pc++ {
		in := code[pc]
		var met bool
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = binary.LittleEndian.Uint32(data[in.K:])
			continue
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(in.K)
			continue
		case unix.BPF_JMP | unix.BPF_K | unix.BPF_JEQ:
			met = acc == in.K
		case unix.BPF_JMP | unix.BPF_K | unix.BPF_JGT:
			met = acc > in.K
		case unix.BPF_JMP | unix.BPF_K | unix.BPF_JSET:
			met = acc&in.K != 0
		default:
			t.Fatalf("unknown instruction %#x", in.Code)
		}
		if met {
			pc += int(in.Jt)
		} else {
			pc += int(in.Jf)
		}
	}
	t.Fatal("the filter ends without a verdict")
	return 0
}

func TestFilter(t *testing.T) {
	code := assemble(false)
	if len(code) > 4096 {
		t.Fatalf("%d instructions", len(code))
	}
	const high = 1 << 32
	tests := []struct {
		name string
		nr   uint32
		args []uint64
		want uint32
	}{
		{"read", unix.SYS_READ, nil, retAllow},
		{"execve", unix.SYS_EXECVE, nil, retAllow},
		{"ptrace", unix.SYS_PTRACE, nil, retPerm},
		{"mount", unix.SYS_MOUNT, nil, retPerm},
		{"unshare", unix.SYS_UNSHARE, nil, retPerm},
		{"bpf", unix.SYS_BPF, nil, retPerm},
		{"file_setattr", fileSetattr, nil, retPerm},
		{"mbind", unix.SYS_MBIND, nil, retPerm},
		{"mq_open", unix.SYS_MQ_OPEN, nil, retNoSys},
		{"clone3", unix.SYS_CLONE3, nil, retNoSys},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, nil, retNoSys},
		{"a later call", lastKnown + 1, nil, retNoSys},
		{"x32", 0x40000000 + unix.SYS_GETPID, nil, retNoSys},
		{"negative", 0xffffffff, nil, retNoSys},
		{"fork", unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, retAllow},
		{"new user namespace", unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, retPerm},
		{"thread", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD}, retAllow},
		{"thread with descriptors of its own", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_SIGHAND | unix.CLONE_THREAD}, retInval},
		{"process with descriptors of others", unix.SYS_CLONE, []uint64{unix.CLONE_FILES}, retAllow},
		{"new time namespace is a signal bit of clone", unix.SYS_CLONE, []uint64{unix.CLONE_NEWTIME}, retPerm},
		{"TIOCSTI", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, retPerm},
		{"TIOCSTI with high bits", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI | high}, retPerm},
		{"TIOCLINUX", unix.SYS_IOCTL, []uint64{0, unix.TIOCLINUX}, retPerm},
		{"TCGETS", unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, retAllow},
		{"inet", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM}, retAllow},
		{"unix", unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_STREAM}, retNoFam},
		{"unix with high bits", unix.SYS_SOCKET, []uint64{unix.AF_UNIX | high}, retNoFam},
		{"vsock", unix.SYS_SOCKET, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, retNoFam},
		{"packet", unix.SYS_SOCKET, []uint64{unix.AF_PACKET, unix.SOCK_RAW}, retNoFam},
		{"rtnetlink", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, retAllow},
		{"netfilter", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, retNoFam},
		{"unix pair", unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX, unix.SOCK_STREAM}, retAllow},
		{"vsock pair", unix.SYS_SOCKETPAIR, []uint64{unix.AF_VSOCK}, retNoFam},
		{"personality query", unix.SYS_PERSONALITY, []uint64{0xffffffff}, retAllow},
		{"personality", unix.SYS_PERSONALITY, []uint64{0x0040000}, retPerm},
		{"chmod", unix.SYS_FCHMODAT, []uint64{0, 0, 0o755}, retAllow},
		{"chmod set-uid", unix.SYS_FCHMODAT, []uint64{0, 0, 0o4755}, retPerm},
		{"chmod set-gid", unix.SYS_FCHMOD, []uint64{0, 0o2755}, retPerm},
		{"chmod by the newer call", unix.SYS_FCHMODAT2, []uint64{0, 0, 0o6755}, retPerm},
		{"mknod set-uid", unix.SYS_MKNODAT, []uint64{0, 0, 0o104755}, retPerm},
		{"open for reading ignores the mode", unix.SYS_OPENAT, []uint64{0, 0, unix.O_RDONLY, 0o4755}, retAllow},
		{"create", unix.SYS_OPENAT, []uint64{0, 0, unix.O_CREAT, 0o644}, retAllow},
		{"create set-uid", unix.SYS_OPENAT, []uint64{0, 0, unix.O_CREAT, 0o4755}, retPerm},
		{"temporary set-uid", unix.SYS_OPENAT, []uint64{0, 0, unix.O_TMPFILE, 0o4755}, retPerm},
		{"open a directory", unix.SYS_OPENAT, []uint64{0, 0, unix.O_DIRECTORY, 0o4755}, retAllow},
		{"memfd_create", unix.SYS_MEMFD_CREATE, nil, retAllow},
		{"vmsplice", unix.SYS_VMSPLICE, nil, retNoSys},
		{"splice", unix.SYS_SPLICE, nil, retAllow},
		{"io_setup", unix.SYS_IO_SETUP, nil, retNoSys},
		{"io_submit", unix.SYS_IO_SUBMIT, nil, retNoSys},
		{"io_getevents", unix.SYS_IO_GETEVENTS, nil, retNoSys},
		{"io_pgetevents", unix.SYS_IO_PGETEVENTS, nil, retNoSys},
		{"io_cancel", unix.SYS_IO_CANCEL, nil, retNoSys},
		{"io_destroy", unix.SYS_IO_DESTROY, nil, retNoSys},
		{"lock", unix.SYS_FCNTL, []uint64{0, unix.F_SETLK}, retAllow},
		{"lease", unix.SYS_FCNTL, []uint64{0, unix.F_SETLEASE}, retPerm},
		{"lease with high bits", unix.SYS_FCNTL, []uint64{0, unix.F_SETLEASE | high}, retPerm},
		{"lock of an open file", unix.SYS_FCNTL, []uint64{0, unix.F_OFD_SETLK}, retInval},
		{"wait for the lock of an open file", unix.SYS_FCNTL, []uint64{0, unix.F_OFD_SETLKW}, retInval},
		{"directory notification", unix.SYS_FCNTL, []uint64{0, unix.F_NOTIFY | high}, retPerm},
		{"inotify", unix.SYS_INOTIFY_INIT1, nil, retNoSys},
		{"setxattr", unix.SYS_SETXATTR, nil, retNoSup},
		{"lsetxattr", unix.SYS_LSETXATTR, nil, retNoSup},
		{"fsetxattr", unix.SYS_FSETXATTR, nil, retNoSup},
		{"setxattrat", setxattrat, nil, retNoSup},
		{"getxattr", unix.SYS_GETXATTR, nil, retAllow},
		{"mmap", unix.SYS_MMAP, []uint64{0, 1 << 40, 0, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS}, retAllow},
		{"shared mmap", unix.SYS_MMAP, []uint64{0, 1 << 40, 0, unix.MAP_SHARED | unix.MAP_ANONYMOUS}, retAllow},
		{"huge pages", unix.SYS_MMAP, []uint64{0, 1, 0, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_HUGETLB}, retNoMem},
		{"huge pages of a file in memory", unix.SYS_MEMFD_CREATE, []uint64{0, unix.MFD_CLOEXEC | mfdHugeTLB}, retNoMem},
		{"huge pages of a segment", unix.SYS_SHMGET, []uint64{0, 0, 0o1600 | shmHugeTLB}, retNoMem},
		{"segment", unix.SYS_SHMGET, []uint64{0, 0, 0o1600}, retAllow},
		{"filter with a descriptor", unix.SYS_SECCOMP, []uint64{unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | high}, retInval},
		{"filter", unix.SYS_SECCOMP, []uint64{unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC}, retAllow},
		{"table of locks", unix.SYS_PRCTL, []uint64{prFutexHash | high, 1}, retInval},
		{"name of a thread", unix.SYS_PRCTL, []uint64{unix.PR_SET_NAME}, retAllow},
		{"landlock", unix.SYS_LANDLOCK_CREATE_RULESET, nil, retAllow},
		{"key of a connection", unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_TCP, unix.TCP_MD5SIG}, retNoOpt},
		{"key of a prefix", unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_TCP, unix.TCP_MD5SIG_EXT}, retNoOpt},
		{"newer key of a connection", unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_TCP | high, tcpAOAddKey}, retNoOpt},
		{"no delay", unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_TCP, unix.TCP_NODELAY}, retAllow},
		{"the number of a key elsewhere", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.TCP_MD5SIG}, retAllow},
		{"advice to forget", unix.SYS_FADVISE64, []uint64{3, 0, 0, unix.FADV_DONTNEED}, retDone},
		{"advice to read ahead", unix.SYS_FADVISE64, []uint64{3, 0, 0, unix.FADV_WILLNEED}, retAllow},
		{"own processors", unix.SYS_SCHED_SETAFFINITY, []uint64{0}, retAllow},
		{"a thread's processors", unix.SYS_SCHED_SETAFFINITY, []uint64{17}, retAllow},
		{"the helper's processors", unix.SYS_SCHED_SETAFFINITY, []uint64{1}, retPerm},
		{"own priority of input and output", unix.SYS_IOPRIO_SET, []uint64{ioprioProcess, 0}, retAllow},
		{"the helper's priority of input and output", unix.SYS_IOPRIO_SET, []uint64{ioprioProcess, 1}, retPerm},
		{"a user's priority of input and output", unix.SYS_IOPRIO_SET, []uint64{3, 0}, retPerm},
		{"pipe size", unix.SYS_FCNTL, []uint64{0, unix.F_SETPIPE_SZ}, retAllow},
		{"receive buffer", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_RCVBUF}, retDone},
		{"send buffer", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_SNDBUF | high}, retDone},
		{"send buffer by force", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE}, retDone},
		{"receive buffer by force", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE}, retDone},
		{"the same number elsewhere", unix.SYS_SETSOCKOPT, []uint64{3, unix.IPPROTO_TCP, unix.SO_RCVBUF}, retAllow},
		{"reuse address", unix.SYS_SETSOCKOPT, []uint64{3, unix.SOL_SOCKET, unix.SO_REUSEADDR}, retAllow},
		{"own limit", unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_NOFILE, 0x7fff0000, 0}, retAllow},
		{"a process's limit", unix.SYS_PRLIMIT64, []uint64{1, unix.RLIMIT_NOFILE, 0, 0x7fff0000}, retAllow},
		{"another's limit", unix.SYS_PRLIMIT64, []uint64{1, unix.RLIMIT_NOFILE, 0x7fff0000, 0}, retPerm},
		{"another's limit from high memory", unix.SYS_PRLIMIT64, []uint64{1, unix.RLIMIT_NOFILE, high, 0}, retPerm},
		{"own priority", unix.SYS_SETPRIORITY, []uint64{unix.PRIO_PROCESS, 0, 5}, retAllow},
		{"another's priority", unix.SYS_SETPRIORITY, []uint64{unix.PRIO_PROCESS, 1, 5}, retPerm},
		{"a user's priority", unix.SYS_SETPRIORITY, []uint64{unix.PRIO_USER, 0, 5}, retPerm},
		{"own scheduler", unix.SYS_SCHED_SETSCHEDULER, []uint64{0, 3}, retAllow},
		{"another's scheduler", unix.SYS_SCHED_SETSCHEDULER, []uint64{1, 3}, retPerm},
		{"another's scheduling parameters", unix.SYS_SCHED_SETPARAM, []uint64{1}, retPerm},
		{"another's scheduling attributes", unix.SYS_SCHED_SETATTR, []uint64{1}, retPerm},
		{"semget", unix.SYS_SEMGET, nil, retAllow},
	}
	for _, tt := range tests {
		if got := judge(t, code, auditArch, tt.nr, tt.args...); got != tt.want {
			t.Errorf("%s on %s: verdict %#x, want %#x", tt.name, runtime.GOARCH, got, tt.want)
		}
	}
	for _, mode := range []bool{false, true} {
		want := map[uint32]uint32{}
		for action, lists := range map[uint32][][]uint32{retNoSys: {absent, absentArch}, retNoSup: {attributes}, retPerm: {denied, deniedArch}} {
			for _, nr := range slices.Concat(lists...) {
				if _, again := want[nr]; again {
					t.Errorf("call %d is in two lists", nr)
				}
				want[nr] = action
			}
		}
		filter := assemble(mode)
		for nr := range uint32(lastKnown + 1) {
			got := judge(t, filter, auditArch, nr)
			if action, listed := want[nr]; listed && got != action {
				t.Errorf("call %d: verdict %#x, want %#x", nr, got, action)
			} else if !listed && got == retNoSys && !(mode && slices.Contains(unowned, nr)) {
				t.Errorf("call %d does not exist, and nothing lists it", nr)
			}
		}
	}
	if got := judge(t, code, unix.AUDIT_ARCH_I386, unix.SYS_READ); got != retNoSys {
		t.Errorf("foreign architecture: verdict %#x, want %#x", got, retNoSys)
	}
	if got := judge(t, assemble(true), auditArch, unix.SYS_FCNTL, 0, unix.F_SETPIPE_SZ); got != retPerm {
		t.Errorf("larger pipe without a memory cgroup: verdict %#x, want %#x", got, retPerm)
	}
	const shared, private = unix.MAP_SHARED | unix.MAP_ANONYMOUS, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	for _, tt := range []struct {
		length, flags uint64
		want          uint32
	}{
		{MaxShared, shared, retAllow}, {MaxShared + 1, shared, retNoMem}, {high, shared, retNoMem},
		{high, private, retAllow}, {high, unix.MAP_SHARED, retAllow}, {1, private | unix.MAP_HUGETLB, retNoMem},
	} {
		if got := judge(t, assemble(true), auditArch, unix.SYS_MMAP, 0, tt.length, 0, tt.flags); got != tt.want {
			t.Errorf("mapping of %d bytes with flags %#x without a memory cgroup: verdict %#x, want %#x", tt.length, tt.flags, got, tt.want)
		}
	}
	for _, nr := range unowned {
		if got := judge(t, assemble(true), auditArch, nr); got != retNoSys {
			t.Errorf("memory of no process by call %d without a memory cgroup: verdict %#x, want %#x", nr, got, retNoSys)
		}
	}
}
