package native

import (
	"debug/elf"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

// A Builder lets another program make the sandbox. The helper of this package is then started inside
// it as process 1, finds out whether the sandbox is what was asked for, gives up the rights that are
// left and starts the command; this package supervises both. A Builder must be safe for concurrent use.
type Builder interface {
	// Check refuses a command that the program could not isolate as asked, before anything is made.
	Check(cmd *sandbox.Cmd) error

	// Setting returns what the helper is to find.
	Setting() pidone.Setting

	// Enters reports whether Build calls [Plan.Enter], last and as [Mapped], for a server of root.
	Enters() bool

	// Build returns how the program is started. The Command removes what else Build made.
	Build(p *Plan) (*Command, error)
}

// A Command starts the program of a [Builder].
type Command struct {
	Path string
	Argv []string
	Env  []string
	Attr *syscall.SysProcAttr // with Setsid: its group is ended with it

	// Cause returns what the program wrote to where it reports failures: private, and at most a few
	// kilobytes. It may be nil.
	Cause func() string

	// Close removes what was made for this run. It is called once, when no process of the run is
	// left, and may be nil.
	Close func() error
}

// A Plan is one run, for a [Builder] to look at and to add to.
type Plan struct {
	Cmd    *sandbox.Cmd
	Limits sandbox.Limits
	Spec   *pidone.Spec // Mounts is filled, with descriptors as in the started program
	Root   bool         // this process is root

	launch *launch
}

// Pass gives f to the started program, under the number that it returns. This process's f is closed
// afterwards.
func (p *Plan) Pass(f *os.File) int {
	p.launch.opened = append(p.launch.opened, f)
	p.launch.files = append(p.launch.files, f)
	return len(p.launch.files) - 1
}

// PassText gives a file with text in it to the started program, positioned at its beginning.
func (p *Plan) PassText(name, text string) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return 0, err
	}
	f := os.NewFile(uintptr(fd), name)
	n := p.Pass(f)
	if _, err := f.WriteString(text); err != nil {
		return 0, err
	}
	_, err = f.Seek(0, 0)
	return n, err
}

// Self is the path of this program's own file, which is also the helper's.
const Self = "/proc/self/exe"

// PassProgram gives the file of a program to the started program, which finds it under that number
// whatever its mount namespace shows.
func (p *Plan) PassProgram(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	return p.Pass(os.NewFile(uintptr(fd), path)), nil
}

// ProgramPath returns the path under which a program finds its descriptor fd.
func ProgramPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// MoveStreams makes in and out the standard streams of the started program, and passes the command's
// under the three numbers that begin with the one it returns.
func (p *Plan) MoveStreams(in, out *os.File) int {
	l := p.launch
	first := len(l.files)
	command := slices.Clone(l.files[:3])
	if command[0] == nil {
		command[0] = in
	}
	l.files = append(l.files, command...)
	l.files[0], l.files[1], l.files[2] = in, out, out
	l.opened = append(l.opened, in, out)
	return first
}

// User returns the host's user and group that the command of a root server runs as.
func (p *Plan) User() (uid, gid int) { return p.launch.uid, p.launch.gid }

// CheckRoot refuses a command on a root file system if this program, which is process 1 in the sandbox, would
// need shared libraries there: whether it starts must not depend on what an image has.
func CheckRoot(cmd *sandbox.Cmd) error {
	if cmd.Root == nil || static() {
		return nil
	}
	return unavailable("this program needs shared libraries, which a root file system need not have",
		"use --sandbox native, or a skillsd that was built with CGO_ENABLED=0, as releases are", nil)
}

// static reports whether this program needs no loader.
var static = sync.OnceValue(func() bool {
	program, err := elf.Open(Self)
	if err != nil {
		return false
	}
	defer program.Close()
	return !slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
})

// A process is identified by a descriptor, since its number may become another process's.
type process struct {
	pid int
	fd  *os.File
}

func (p *process) kill() { _ = unix.PidfdSendSignal(int(p.fd.Fd()), unix.SIGKILL, nil, 0) }

// wait returns when the process, and the namespace or guest that it is the first of, is gone.
func (p *process) wait() {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd.Fd()), Events: unix.POLLIN}}, -1)
		if err != unix.EINTR || n > 0 {
			return
		}
	}
}

// arrived notes the process that sent the message in which a helper says that it is ready. Only the
// kernel knows its number in this process's namespace, and adds it to the message.
func (e *execution) arrived(oob []byte) {
	defer e.once.Do(func() { close(e.ready) })
	if e.runner.builder == nil || e.inside.Load() != nil {
		return
	}
	controls, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	for i := range controls {
		cred, err := unix.ParseUnixCredentials(&controls[i])
		if err != nil || cred.Pid <= 0 {
			continue
		}
		fd, err := unix.PidfdOpen(int(cred.Pid), 0)
		if err != nil {
			continue
		}
		e.inside.Store(&process{pid: int(cred.Pid), fd: os.NewFile(uintptr(fd), "process")})
	}
	// A run that was ended before this process was known did not end it.
	if e.cause.Load() != nil {
		if p := e.inside.Load(); p != nil {
			p.kill()
		}
	}
}

// first returns the process that every other process of the sandbox descends from, or 0 if that is not
// known yet.
func (e *execution) first() int {
	if e.runner.builder == nil {
		return e.child.proc.Pid
	}
	if p := e.inside.Load(); p != nil {
		return p.pid
	}
	return 0
}

// members waits until the sandbox is there and returns the processes that must be in its control group:
// the first, and of a guest all that its kernel has started by then.
func (e *execution) members() ([]int, error) {
	if e.runner.builder != nil {
		<-e.ready
	}
	pid := e.first()
	if pid == 0 {
		return nil, unix.ESRCH
	}
	if e.spec.Setting != pidone.Guest {
		return []int{pid}, nil
	}
	e.guest.Store(newGuest(pid))
	return append([]int{pid}, descendants(pid)...), nil
}

// Identity is the user that the program of [Plan.Enter] has on the host.
type Identity int

// The identities. A server that is not root can only use Mapped, with its own user as the command's.
const (
	// Mapped is the command's user and group, which are root in a user namespace of the program's own. If
	// the server is root, that namespace is root's: another process of the same user has no rights in it.
	Mapped Identity = iota
	Kept            // root, like the server
)

// entryAttributes are the namespaces of a process that enters, and its user in them.
func (l *launch) entryAttributes(as Identity) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Setsid: true, Pdeathsig: syscall.SIGKILL}
	if as == Mapped || !l.root {
		uid, gid := l.ids()
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: gid, Size: 1}}
		attr.GidMappingsEnableSetgroups = l.root
		attr.Credential = &syscall.Credential{NoSetGroups: !l.root} // root's own groups must not come along
	}
	return attr
}

// Enter returns the command that runs the program of n in a mount namespace of its own, where it
// finds the mounts and files that n names, and which ends with it.
func (p *Plan) Enter(n *pidone.Entry, as Identity) (*Command, error) {
	attr := p.launch.entryAttributes(as)
	fd, err := p.PassText("entry", string(n.Encode()))
	if err != nil {
		return nil, unavailable("the entry's instructions could not be written", "", err)
	}
	return &Command{
		Path: Self, Argv: []string{"sandbox-enter"}, Attr: attr,
		Env: pidone.Environ(pidone.EntryMarker(fd)),
	}, nil
}
