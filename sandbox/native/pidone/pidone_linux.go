// Package pidone is process 1 of a native sandbox: the program's own binary, executed again in new
// namespaces. It builds the file tree, drops every privilege, starts one command, reaps orphaned processes
// and exits when that command ends; the kernel then kills the remaining processes.
//
// The command is started only if every step before it succeeded. The package does not validate the Spec, and
// does not limit memory, time or output; the parent does both.
//
// # Protocol
//
// The helper has the command's descriptors 0 to 2; [SpecFD], with an encoded [Spec]; [ControlFD], a packet
// socket to its parent; and, from [FirstFD] on, the descriptors that the Spec names. The messages on that
// socket are, in this order:
//
//	helper  MsgFiles  the tree is built; with descriptors for the parent to read after the run
//	parent  MsgGo     from here on usage is charged: the helper is in its control groups, or
//	                  receives the files by which it enters them
//	helper  MsgExit   the command ended, with its wait status and the processor time it used
//
// A helper that was started [Ahead] first sends MsgReady and waits for MsgSpec. By then, the Spec is in the
// file of SpecFD, and MsgSpec has the descriptors that the Spec names. While it waits, the helper already has
// its namespaces, the host's programs, /proc and everything else that is equal in all sandboxes; its bounding
// set is empty, and the filter is assembled. Everything that differs between runs is set up afterwards, in
// the order below, by the same code as in other helpers.
//
// Instead of any message, the helper may send MsgError, with an errno and the failed step, or MsgCwd, and
// exit. Without MsgExit, the parent has no result of the command. Between MsgGo and MsgExit there are no
// messages, and the command has no end of the socket. The parent kills the helper to end the run, and the
// kernel kills the helper if its parent dies. All processes in the helper's PID namespace end with it;
// mounts, network and layers are released with the last of them.
//
// # Order
//
// Mounts and limits come first. Then privileges are dropped in an order in which no step needs a
// privilege that is already gone: first capabilities; then no_new_privs, which the next two require; then
// Landlock, which opens files; and last the filter, which forbids most of the earlier steps. The filter is
// tested with calls that it must refuse. Only then is the working directory entered, with the command's own
// rights.
//
// The package imports little more than raw system calls. Go initializes packages in the order of their paths,
// each after its imports. The helper therefore starts its work before most packages of a server are
// initialized, which would take 2 to 4 ms in every run.
package pidone

import (
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This is the only init in this module; the package comment explains what it saves. It does nothing in a
// process that is not a helper.
func init() { Main() }

// Main does not return in a helper, and does nothing in any other process.
func Main() {
	mark, marked := syscall.Getenv(Marker)
	if !marked {
		return
	}
	if fd, entering := entry(mark); entering {
		enter(fd)
	}
	if mark == EntryAhead {
		fd, err := awaitEntry()
		if err != nil {
			(&helper{}).report(err)
			unix.Exit(1)
		}
		enter(fd)
	}
	if unix.Getpid() != 1 {
		if mark == Starter {
			if err := startOthers(); err != nil {
				(&helper{}).report(err)
				unix.Exit(1)
			}
			unix.Exit(0)
		}
		if mark == Inside {
			// The program that should have built a sandbox did not. This process must not become a second
			// server.
			_, _ = unix.Write(2, []byte("enter: not inside a sandbox\n"))
			unix.Exit(1)
		}
		return
	}
	h := &helper{ahead: mark == Ahead}
	if err := h.run(); err != nil {
		h.report(err)
	}
	unix.Exit(1)
}

// A stepError names the setup step that failed.
type stepError struct {
	step  string
	errno syscall.Errno
}

func (e *stepError) Error() string { return e.step + ": " + e.errno.Error() }

type cwdError string

func (e cwdError) Error() string { return string(e) }

// step wraps the error of a setup step. It must not use fmt, which is initialized later than this package.
func step(name string, err error) error {
	if err == nil {
		return nil
	}
	errno, ok := err.(syscall.Errno)
	if !ok {
		errno = unix.EINVAL
	}
	return &stepError{step: name, errno: errno}
}

type helper struct {
	spec  *Spec
	out   int
	upper int // -1 without an overlay
	proxy int // -1 without a network

	ahead   bool                       // started before the Spec was known
	sent    []int                      // descriptors received with the Spec
	filters map[bool][]unix.SockFilter // assembled ahead, by whether anonymous files are forbidden
	pollers []int                      // found ahead; see pollers

	host      []bind // the host's files that the root shows
	hostLinks []link
}

func (h *helper) run() error {
	h.out, h.upper, h.proxy = -1, -1, -1
	// If the parent died before this call, no signal will end the helper.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return step("set the parent death signal", err)
	}
	// The command may have the same user as the helper, and could read the memory of a dumpable process.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return step("become undumpable", err)
	}
	ignoreSignals()
	if err := h.readSpec(); err != nil {
		return err
	}
	if err := h.prepare(); err != nil {
		return err
	}
	if h.spec.Proxy {
		var err error
		h.proxy, err = listenForProxy()
		if err != nil {
			return step("listen for the proxy", err)
		}
	}
	if err := h.sendFiles(); err != nil {
		return step("hand over the output directory", err)
	}
	if err := h.awaitGo(); err != nil {
		return err
	}
	if err := h.drop(); err != nil {
		return err
	}
	if err := h.chdir(); err != nil {
		return err
	}
	pid, err := h.start()
	if err != nil {
		return step("start the interpreter", err)
	}
	return h.reap(pid)
}

// readSpec reads the Spec. A helper that was started ahead waits for it, and for its descriptors.
func (h *helper) readSpec() error {
	if h.ahead {
		if err := h.awaitSpec(); err != nil {
			return err
		}
	}
	data, err := readAll(SpecFD)
	if err != nil {
		return step("read the spec", err)
	}
	h.spec, err = decodeSpec(data)
	if err != nil {
		return step("decode the spec", unix.EBADMSG)
	}
	if h.ahead {
		return h.takeSent()
	}
	return nil
}

func readAll(fd int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	b := make([]byte, st.Size)
	for n := 0; n < len(b); {
		m, err := unix.Pread(fd, b[n:], int64(n))
		if err != nil {
			return nil, err
		}
		if m == 0 {
			return nil, unix.EIO
		}
		n += m
	}
	return b, nil
}

// outDir is the directory in which commands leave files for the caller.
const outDir = "/out"

// prepare builds the command's tree, or checks the tree that another program built.
func (h *helper) prepare() error {
	switch h.spec.Setting {
	case Built:
		return h.examine()
	case Guest:
		return h.adoptStreams()
	}
	return h.buildTree()
}

// examine compares the mounts that another program made with the descriptors of their sources, because that
// program opened the sources by path, and the paths may have changed.
func (h *helper) examine() error {
	for i := range h.spec.Mounts {
		m := &h.spec.Mounts[i]
		var want, got unix.Stat_t
		if err := unix.Fstat(m.FD, &want); err != nil {
			return step("open "+m.Target, err)
		}
		if err := unix.Stat(m.Target, &got); err != nil {
			return step("open "+m.Target, err)
		}
		if m.Over {
			fd, err := openPlain(m.Target)
			if err != nil {
				return step("open "+m.Target, err)
			}
			_ = unix.Close(fd)
		}
		if want.Dev != got.Dev || want.Ino != got.Ino {
			return step("open "+m.Target, unix.ESTALE)
		}
		var fs unix.Statfs_t
		if err := unix.Statfs(m.Target, &fs); err != nil {
			return step("open "+m.Target, err)
		}
		if m.ReadOnly && fs.Flags&unix.ST_RDONLY == 0 {
			return step("find "+m.Target+" read-only", unix.EPERM)
		}
	}
	var err error
	h.out, err = unix.Open(outDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return step("open "+outDir, err)
}

// adoptStreams makes the command's streams the standard ones. A guest is started with the streams of the
// program that built it, which reports its own failures there.
func (h *helper) adoptStreams() error {
	for fd := 0; fd < 3; fd++ {
		if fd == 0 && !h.spec.Stdin {
			continue
		}
		if err := unix.Dup3(FirstFD+fd, fd, 0); err != nil {
			return step("take over the streams", err)
		}
	}
	return nil
}

// The address of the proxy, in a sandbox with a network: 127.0.0.1:3128 in the sandbox's own network
// namespace, whose only interface is this loopback.
const (
	proxyPort    = 3128
	proxyBacklog = 128
)

// listenForProxy returns a listening socket for the proxy. The socket belongs to this network namespace even
// in another process: the parent accepts the command's connections on it, and connects to the network in its
// own namespace. Therefore no socket of the host needs to be visible in the sandbox. The command cannot
// accept connections itself, because it starts only after the address is in use and this process has closed
// the socket.
func listenForProxy() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{Port: proxyPort, Addr: [4]byte{127, 0, 0, 1}})
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	if err := unix.Listen(fd, proxyBacklog); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// maxBuffer is the usual size of the buffers of other sockets, in bytes.
const maxBuffer = "212992"

// boundBuffers limits the growth of TCP buffers, because bytes in them belong to no process's memory. It
// changes settings of the sandbox's own network namespace. If a container mounts them read-only, they stay
// unchanged.
func boundBuffers() {
	for _, s := range []struct{ name, sizes string }{
		{"tcp_rmem", "4096 131072 " + maxBuffer},
		{"tcp_wmem", "4096 16384 " + maxBuffer},
	} {
		fd, err := unix.Open("/proc/sys/net/ipv4/"+s.name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		_, _ = unix.Write(fd, []byte(s.sizes))
		_ = unix.Close(fd)
	}
}

// loopbackUp brings up the loopback interface, so that a script can use servers that it started. A failure
// has no other effect.
func loopbackUp() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	if req, err := unix.NewIfreq("lo"); err == nil {
		req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		_, _, _ = unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS,
			uintptr(unsafe.Pointer(req)))
	}
	_ = unix.Close(fd)
}

// ignoreSignals resets the runtime's signal handlers. The kernel drops signals from inside the namespace for
// which process 1 has no handler, so the command cannot kill its own init.
func ignoreSignals() {
	// A zeroed struct kernel_sigaction is SIG_DFL.
	var act [4]uint64
	for sig := uintptr(1); sig <= 64; sig++ {
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&act)), 0, 8, 0, 0)
	}
}

func (h *helper) report(err error) {
	var msg []byte
	switch e := err.(type) {
	case cwdError:
		msg = append([]byte{MsgCwd}, string(e)...)
	case *stepError:
		n := uint32(e.errno)
		msg = append([]byte{MsgError, byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}, e.step...)
	default:
		msg = append([]byte{MsgError, 0, 0, 0, 0}, err.Error()...)
	}
	_ = unix.Sendmsg(ControlFD, msg, nil, nil, unix.MSG_NOSIGNAL)
}

func (h *helper) sendFiles() error {
	var fds []int
	if h.out >= 0 {
		fds = append(fds, h.out)
	}
	if h.upper >= 0 {
		fds = append(fds, h.upper)
	}
	if h.proxy >= 0 {
		fds = append(fds, h.proxy)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if err := unix.Sendmsg(ControlFD, []byte{MsgFiles}, rights, nil, unix.MSG_NOSIGNAL); err != nil {
		return err
	}
	if h.proxy >= 0 {
		// Without standard input, its number may be 0.
		_ = unix.Close(h.proxy)
	}
	return h.closeFiles()
}

// closeFiles closes all descriptors from FirstFD on except the runtime's own. A package that was initialized
// earlier may have opened a file, which starts the runtime's poller, and the runtime crashes if the poller's
// descriptors are closed.
func (h *helper) closeFiles() error {
	if !h.ahead {
		if err := h.findPollers(); err != nil {
			return err
		}
	}
	next := FirstFD
	for _, fd := range h.pollers {
		if fd > next {
			if err := unix.CloseRange(uint(next), uint(fd-1), 0); err != nil {
				return err
			}
		}
		next = fd + 1
	}
	return unix.CloseRange(uint(next), ^uint(0), 0)
}

// findPollers sets pollers. The helper does nothing later that opens others.
func (h *helper) findPollers() (err error) {
	h.pollers, err = pollers()
	return step("find the runtime's descriptors", err)
}

// pollers returns the runtime's poller descriptors from FirstFD on, in ascending order. They refer to no file
// and are closed when the command is started, and a parent never passes such descriptors.
func pollers() (own []int, err error) {
	const dir = "/proc/self/fd"
	list, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	names, buf := []string{}, make([]byte, 8192)
	for {
		n, err := unix.ReadDirent(list, buf)
		if err != nil {
			_ = unix.Close(list)
			return nil, err
		}
		if n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
	if err := unix.Close(list); err != nil {
		return nil, err
	}
	var target [32]byte
	for _, name := range names {
		fd, ok := number(name)
		if !ok || fd < FirstFD {
			continue
		}
		n, err := unix.Readlink(dir+"/"+name, target[:])
		if err != nil {
			// This is the descriptor of the listing itself.
			continue
		}
		if link := string(target[:n]); link == "anon_inode:[eventpoll]" || link == "anon_inode:[eventfd]" {
			own = append(own, fd)
		}
	}
	slices.Sort(own)
	return own, nil
}

// awaitGo waits for MsgGo and enters the control groups in it. Only the main thread enters; it starts the
// command, which is then in the groups from its beginning.
func (h *helper) awaitGo() error {
	var b [2]byte
	oob := make([]byte, unix.CmsgSpace(maxDoors*4))
	n, oobn, flags, _, err := unix.Recvmsg(ControlFD, b[:], oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return step("wait for the limits", err)
	}
	if n != len(b) || b[0] != MsgGo || flags&unix.MSG_CTRUNC != 0 {
		return step("wait for the limits", unix.EPIPE)
	}
	return step(EnterStep, enterGroups(oob[:oobn], int(b[1])))
}

// enterGroups makes the calling thread enter a number of control groups; the message has descriptors of their
// tasks files. It closes them, so that the command does not inherit them.
func enterGroups(oob []byte, groups int) error {
	controls, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	for i := range controls {
		doors, err := unix.ParseUnixRights(&controls[i])
		if err != nil {
			return err
		}
		for _, fd := range doors {
			// In a tasks file, 0 is the thread that writes it.
			if _, err := unix.Write(fd, []byte("0")); err != nil {
				return err
			}
			if err := unix.Close(fd); err != nil {
				return err
			}
			groups--
		}
	}
	if groups != 0 {
		return unix.EPIPE
	}
	return nil
}

// chdir enters the working directory and checks its path only afterwards, when it has no symbolic links.
func (h *helper) chdir() error {
	switch err := unix.Chdir(h.spec.Cwd); err {
	case nil:
	case unix.ENOENT:
		return cwdError("no such directory")
	case unix.ENOTDIR:
		return cwdError("not a directory")
	case unix.EACCES:
		return cwdError("permission denied")
	default:
		return cwdError("cannot be entered")
	}
	var buf [unix.PathMax]byte
	n, err := unix.Getcwd(buf[:])
	if err != nil || n < 2 {
		return cwdError("cannot be resolved")
	}
	dir := string(buf[:n-1])
	for _, allowed := range []string{"/workspace", "/skill", "/mnt/skills/user", "/out", "/tmp"} {
		if dir == allowed || strings.HasPrefix(dir, allowed+"/") {
			return nil
		}
	}
	return cwdError("outside /workspace, /skill, /out and /tmp")
}

func (h *helper) start() (int, error) {
	stdin := uintptr(0)
	if !h.spec.Stdin {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, err
		}
		stdin = uintptr(fd)
	}
	// A descriptor that the command inherits could lead out of the sandbox, as in CVE-2024-21626.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return 0, err
	}
	return syscall.ForkExec(h.spec.Argv[0], h.spec.Argv, &syscall.ProcAttr{
		Env:   h.spec.Env,
		Files: []uintptr{stdin, 1, 2},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
}

// reap waits with a raw system call, so that the runtime does not start a thread: if the command has reached
// its process limit, that would crash the helper.
func (h *helper) reap(pid int) error {
	// The parent reads the streams until no process has them open.
	for fd := 0; fd < 3; fd++ {
		_ = unix.Close(fd)
	}
	var status uint32
	var used unix.Rusage
	for {
		got, _, errno := unix.RawSyscall6(unix.SYS_WAIT4, ^uintptr(0),
			uintptr(unsafe.Pointer(&status)), 0, uintptr(unsafe.Pointer(&used)), 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return step("wait for the command", errno)
		}
		if int(got) != pid {
			continue
		}
		ms := uint32((used.Utime.Sec+used.Stime.Sec)*1000 + (used.Utime.Usec+used.Stime.Usec)/1000)
		msg := [...]byte{
			MsgExit, byte(status), byte(status >> 8), byte(status >> 16), byte(status >> 24),
			byte(ms), byte(ms >> 8), byte(ms >> 16), byte(ms >> 24),
		}
		_, _, _ = unix.RawSyscall6(unix.SYS_SENDTO, ControlFD,
			uintptr(unsafe.Pointer(&msg)), uintptr(len(msg)), unix.MSG_NOSIGNAL, 0, 0)
		if h.spec.Setting == Guest {
			h.sendOut()
		}
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
}
