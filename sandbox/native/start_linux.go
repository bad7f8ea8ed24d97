package native

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

const insideID = 1000

// countedFirst is how far the resource limit on processes lies above the cgroup's. Only the cgroup
// counts what it refuses, and so it must be the first of the two to refuse.
const countedFirst = 8

// A child is a helper that was started and its ends of pipes and sockets.
type child struct {
	proc           *os.Process
	stdin          *os.File // nil without input
	stdout, stderr *os.File
	control        *os.File
}

func (c *child) close() {
	closeAll([]*os.File{c.stdin, c.stdout, c.stderr, c.control})
}

// A launch collects what one helper is started with.
type launch struct {
	runner  *Runner
	cmd     *sandbox.Cmd
	limits  sandbox.Limits
	spec    pidone.Spec
	files   []*os.File // 0, 1, 2, spec, control, then what mounts name
	ours    []*os.File // the parent's ends
	opened  []*os.File // to be closed once the child has them
	upper   *os.File   // the upper layer, when the parent made the overlay
	root    bool
	uid     int      // of the command of a root server on the host: leased, or the FileOwner
	gid     int      // the same number if leased
	owners  *os.File // a user namespace in which files of the FileOwner are the command's, or nil
	command *Command // of a Builder, or nil
	spare   *spare   // a helper that waits for this run, until it is adopted or ended
	ahead   bool     // the command is not known yet
	adopted bool     // the helper waited for it
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// start starts the helper. The caller's goroutine must be locked to its thread until the process is
// reaped: the kernel kills the helper when that thread ends.
func (l *launch) start() (_ *child, err error) {
	defer func() {
		closeAll(l.opened)
		if err != nil {
			closeAll(l.ours)
		}
	}()
	l.files = make([]*os.File, pidone.FirstFD)
	l.ours = make([]*os.File, 4)
	if err := l.mounts(); err != nil {
		return nil, err
	}
	// The streams of a helper that waited are made.
	if l.spare == nil {
		if err := l.streams(); err != nil {
			return nil, err
		}
	}
	command := &Command{
		Path: Self, Argv: []string{"sandbox-init"}, Attr: l.attributes(),
		Env: pidone.Environ("1"),
	}
	if b := l.runner.builder; b != nil {
		l.spec.Setting = l.setting()
		plan := &Plan{Cmd: l.cmd, Limits: l.limits, Spec: &l.spec, Root: l.root, launch: l}
		command, err = b.Build(plan)
		if err != nil {
			return nil, err
		}
		l.command = command
	}
	if l.spare != nil {
		if c := l.adopt(); c != nil {
			l.adopted = true
			return c, nil
		}
		if err := l.streams(); err != nil {
			return nil, err
		}
	}
	if err := l.writeSpec(); err != nil {
		return nil, unavailable("the helper's instructions could not be written", "", err)
	}
	proc, err := os.StartProcess(command.Path, command.Argv, &os.ProcAttr{
		Env: command.Env, Files: l.files, Sys: command.Attr,
	})
	runtime.KeepAlive(l.cmd)
	if err != nil {
		return nil, startError(err)
	}
	return &child{proc: proc, stdin: l.ours[0], stdout: l.ours[1], stderr: l.ours[2], control: l.ours[3]}, nil
}

// setting returns what is there when the helper starts.
func (l *launch) setting() pidone.Setting {
	if l.runner == nil || l.runner.builder == nil {
		return pidone.Bare
	}
	return l.runner.builder.Setting()
}

// attributes are the helper's namespaces, its user in them, and the rights that it keeps until it drops
// them.
func (l *launch) attributes() *syscall.SysProcAttr {
	uid, gid := l.ids()
	// Root's own groups must not come along.
	cred := &syscall.Credential{Uid: insideID, Gid: insideID, NoSetGroups: !l.root}
	caps := []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_NET_ADMIN, unix.CAP_SYS_RESOURCE}
	isLower := func(m pidone.Mount) bool { return m.Kind == pidone.Lower }
	if l.ahead && !l.root || slices.ContainsFunc(l.spec.Mounts, isLower) {
		// An overlay works in a directory of mode 0, with the rights of whoever mounted it.
		caps = append(caps, unix.CAP_DAC_OVERRIDE)
	}
	return &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
			unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: insideID, HostID: uid, Size: 1}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: insideID, HostID: gid, Size: 1}},
		GidMappingsEnableSetgroups: l.root,
		Credential:                 cred,
		AmbientCaps:                caps,
		Setsid:                     true,
		Pdeathsig:                  syscall.SIGKILL,
	}
}

// streams makes the standard streams, as the command's own, and the control socket.
func (l *launch) streams() error {
	if err := l.pipes(); err != nil {
		return unavailable("no pipes could be made", "", err)
	}
	if err := l.giveStreams(); err != nil {
		return unavailable("the command's streams cannot be its own",
			"run the server as an ordinary user, or as a root whose user namespace has the users of "+
				"--sandbox-uids", err)
	}
	return nil
}

// pipes makes the standard streams and the control socket.
func (l *launch) pipes() error {
	if l.cmd.Stdin != nil {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		l.files[0], l.ours[0] = r, w
		l.opened = append(l.opened, r)
	}
	for i := 1; i <= 2; i++ {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		l.files[i], l.ours[i] = w, r
		l.opened = append(l.opened, w)
	}
	// Packets keep messages apart, and the end of the helper is the end of the file.
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(pair[1]), "control")
	l.files[pidone.ControlFD] = theirs
	l.opened = append(l.opened, theirs)
	// Process 1 of a Builder's sandbox is a grandchild: the kernel adds its number to what it sends.
	if l.runner.builder != nil {
		if err := unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
			return errors.Join(err, unix.Close(pair[0]))
		}
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return errors.Join(err, unix.Close(pair[0]))
	}
	l.ours[3] = os.NewFile(uintptr(pair[0]), "control")
	return nil
}

// ids returns the host's user and group of the command.
func (l *launch) ids() (uid, gid int) {
	if l.root {
		return l.uid, l.gid
	}
	return os.Geteuid(), os.Getegid()
}

// giveStreams gives the command of a root server the rights on its streams that their owner has, which it
// needs to open /dev/stdout.
func (l *launch) giveStreams() error {
	if !l.root {
		return nil
	}
	for _, f := range l.files[:3] {
		if f == nil {
			continue
		}
		if err := f.Chown(l.uid, l.gid); err != nil {
			return err
		}
	}
	return nil
}

// writeSpec writes the helper's instructions into a file without a name.
func (l *launch) writeSpec() error {
	f, err := memoryFile("spec", l.encodeSpec())
	if err != nil {
		return err
	}
	l.opened = append(l.opened, f)
	l.files[pidone.SpecFD] = f
	return nil
}

// encodeSpec returns the helper's instructions.
func (l *launch) encodeSpec() []byte {
	l.spec.Argv, l.spec.Env = l.cmd.Argv, l.cmd.Env
	l.spec.Cwd = l.cwd()
	l.spec.Tmp, l.spec.Inodes = uint64(l.limits.Scratch), uint64(l.limits.Inodes)
	l.spec.Files = uint64(l.limits.Files)
	l.spec.PIDs = uint64(l.limits.PIDs)
	if l.runner.Processes() != MemorySampled {
		l.spec.PIDs += countedFirst
	}
	l.spec.File = uint64(l.limits.File)
	l.spec.CPU = uint64((l.limits.CPU + time.Second - 1) / time.Second)
	l.spec.Stdin = l.cmd.Stdin != nil
	l.spec.Proxy = !l.cmd.Network.Off()
	return l.spec.Encode()
}

// cwd makes the working directory absolute without cleaning it: only the kernel, inside the sandbox, knows
// where ".." leads after a link.
func (l *launch) cwd() string {
	base := sandbox.TmpDir
	if l.cmd.Workspace.Mode != "" && l.cmd.Workspace.Mode != sandbox.WorkspaceNone {
		base = sandbox.WorkspaceDir
	}
	switch cwd := l.cmd.Cwd; {
	case cwd == "":
		return base
	case strings.HasPrefix(cwd, "/"):
		return cwd
	default:
		return base + "/" + cwd
	}
}
