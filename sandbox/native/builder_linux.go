package native

import (
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

// A Builder lets another program make the sandbox. The helper of this package is then started inside
// it as process 1, finds out whether the sandbox is what was asked for, gives up what rights are left
// and starts the command; this package supervises both. A Builder must be safe for concurrent use.
type Builder interface {
	// Check refuses a command that the program could not isolate as asked, before anything is made.
	Check(cmd *sandbox.Cmd) error

	// Setting is what the helper finds.
	Setting() pidone.Setting

	// Build says how the program is started. What it makes beside is the Command's to remove.
	Build(p *Plan) (*Command, error)
}

// A Command starts the program of a [Builder].
type Command struct {
	Path string
	Argv []string
	Env  []string
	Attr *syscall.SysProcAttr // with Setsid: its group is ended with it

	// Cause returns what the program wrote where it reports failures: private, and at most a few
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

// Pass gives the started program f under the number that is returned, and closes f afterwards here.
func (p *Plan) Pass(f *os.File) int {
	p.launch.opened = append(p.launch.opened, f)
	p.launch.files = append(p.launch.files, f)
	return len(p.launch.files) - 1
}

// PassText gives the started program a file with text in it, at its beginning.
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

// Self names this program's own file, which the helper is.
const Self = "/proc/self/exe"

// PassProgram gives the started program the file of a program, which it finds under that number
// whatever its mount namespace shows.
func (p *Plan) PassProgram(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	return p.Pass(os.NewFile(uintptr(fd), path)), nil
}

// ProgramPath is where a program finds its descriptor fd.
func ProgramPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// MoveStreams gives the started program in and out for its own standard streams, and the command's
// under the numbers from the one that is returned on.
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

// Identity are the host's user and group that a command of a root server is to run as.
func (p *Plan) Identity() (uid, gid int) { return p.launch.runner.opts.UID, p.launch.runner.opts.GID }

// A process is known by a descriptor, which no other process can come to have.
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

// arrived notes the process that sent the message in which a helper says that it is ready: only the
// kernel knows what its number is out here.
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
	if e.cause.Load() != nil { // the run was ended before anyone knew this process
		if p := e.inside.Load(); p != nil {
			p.kill()
		}
	}
}

// members are the processes whose descendants are the command's.
func (e *execution) members() ([]int, error) {
	if e.runner.builder == nil {
		return []int{e.child.proc.Pid}, nil
	}
	<-e.ready
	p := e.inside.Load()
	if p == nil {
		return nil, unix.ESRCH
	}
	if e.spec.Setting != pidone.Guest {
		return []int{p.pid}, nil
	}
	e.guest.Store(newGuest(p.pid))
	return append([]int{p.pid}, descendants(p.pid)...), nil
}

// sample adds up what the command uses.
func (e *execution) sample() usage {
	if e.runner.builder == nil {
		return sample(e.child.proc.Pid, e.limits.Memory, e.mounted(), e.done)
	}
	p := e.inside.Load()
	if p == nil {
		return usage{}
	}
	if g := e.guest.Load(); g != nil {
		return usage{memory: g.memory()}
	}
	return sample(p.pid, e.limits.Memory, e.mounted(), e.done)
}

// unpack judges the files that a guest sent as collect does those of a directory.
func unpack(data []byte, res *sandbox.Result) {
	if len(data) == 0 {
		return
	}
	files, skips, err := pidone.Unpack(data)
	if err != nil {
		skip(res, ".")
		return
	}
	slices.SortFunc(files, func(a, b pidone.File) int { return strings.Compare(a.Name, b.Name) })
	size := 0
	for i, f := range files {
		size += len(f.Data)
		if i > 0 && files[i-1].Name == f.Name || !fs.ValidPath(f.Name) || f.Name == "." || !sandbox.Printable(f.Name) || len(res.Out) == maxOutFiles || size > maxOutBytes {
			skip(res, f.Name)
			continue
		}
		res.Out = append(res.Out, sandbox.OutFile{Name: f.Name, Data: f.Data})
	}
	res.OutSkips += skips // whose names the guest does not send
}

// Identity says who the program of a [Plan.Enter] is to the host.
type Identity int

// The identities. A server that is not root has Mapped alone: its own user takes the command's place.
const (
	Dropped Identity = iota // the command's user and group
	Mapped                  // the same, who are root in a user namespace of the program's own
	Kept                    // root, like the server
)

// Enter returns the command that runs the program of n in a mount namespace of its own, where it
// finds the mounts and files that n names, and which is gone with it. It sets the user of n.
func (p *Plan) Enter(n *pidone.Entry, as Identity) (*Command, error) {
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Setsid: true, Pdeathsig: syscall.SIGKILL}
	uid, gid := p.Identity()
	n.UID, n.GID = 0, 0
	if !p.Root {
		as, uid, gid = Mapped, os.Geteuid(), os.Getegid()
	}
	switch as {
	case Dropped:
		n.UID, n.GID = uid, gid
	case Mapped:
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: gid, Size: 1}}
		attr.GidMappingsEnableSetgroups = p.Root
		attr.Credential = &syscall.Credential{NoSetGroups: !p.Root} // root's own groups must not come along
	}
	fd, err := p.PassText("entry", string(n.Encode()))
	if err != nil {
		return nil, unavailable("the entry's instructions could not be written", "", err)
	}
	return &Command{
		Path: "/proc/self/exe", Argv: []string{"sandbox-enter"}, Attr: attr,
		Env: []string{pidone.Marker + "=" + pidone.EntryMarker(fd), "GOGC=off", "GOMAXPROCS=1", "GOTRACEBACK=none"},
	}, nil
}
