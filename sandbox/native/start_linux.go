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

// countedFirst is how far the resource limit on processes is above the cgroup's limit. The cgroup must refuse
// first, because only it counts refusals.
const countedFirst = 8

// A child is a started helper, with this process's ends of its pipes and sockets.
type child struct {
	proc           *os.Process
	stdin          *os.File // nil without input
	stdout, stderr *os.File
	control        *os.File
}

func (c *child) close() {
	closeAll([]*os.File{c.stdin, c.stdout, c.stderr, c.control})
}

// A launch collects the arguments for starting one helper.
type launch struct {
	runner  *Runner
	cmd     *sandbox.Cmd
	limits  sandbox.Limits
	spec    pidone.Spec
	files   []*os.File // 0, 1, 2, spec, control, then the files that mounts name
	ours    []*os.File // this process's ends
	opened  []*os.File // to be closed once the child is started
	upper   *os.File   // the upper layer, if this process created the overlay
	root    bool
	uid     int      // host user of a root server's command: leased, or the FileOwner
	gid     int      // the same number if leased
	owners  *os.File // a user namespace that maps files of the FileOwner to the command's user, or nil
	command *Command // of a Builder, or nil
	spare   *spare   // the waiting helper for this run, until it is adopted or ended
	ahead   bool     // this is for a waiting helper: the command is not known yet
	adopted bool     // the run uses a waiting helper
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// start starts the helper. The caller's goroutine must stay locked to its thread until the process is reaped,
// because the kernel kills the helper when that thread ends.
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
	// A waiting helper already has its streams.
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

// setting returns the setting that the helper finds.
func (l *launch) setting() pidone.Setting {
	if l.runner == nil || l.runner.builder == nil {
		return pidone.Bare
	}
	return l.runner.builder.Setting()
}

// attributes returns the namespaces of the helper, its user in them, and the capabilities that it keeps until
// it drops them.
func (l *launch) attributes() *syscall.SysProcAttr {
	uid, gid := l.ids()
	// The supplementary groups of root must not be inherited.
	cred := &syscall.Credential{Uid: insideID, Gid: insideID, NoSetGroups: !l.root}
	caps := []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_NET_ADMIN, unix.CAP_SYS_RESOURCE}
	isLower := func(m pidone.Mount) bool { return m.Kind == pidone.Lower }
	if l.ahead && !l.root || slices.ContainsFunc(l.spec.Mounts, isLower) {
		// An overlay accesses a directory of mode 0 with the rights of the process that mounted it.
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

// streams creates the standard streams, owned by the command's user, and the control socket.
func (l *launch) streams() error {
	if err := l.pipes(); err != nil {
		return unavailable("no pipes could be made", "", err)
	}
	if err := l.giveStreams(); err != nil {
		return unavailable("the command's user cannot be made the owner of its streams",
			"run the server as an ordinary user, or as a root whose user namespace has the users of "+
				"--sandbox-uids", err)
	}
	return nil
}

// pipes creates the standard streams and the control socket.
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
	// A packet socket preserves message boundaries, and reports end of file when the helper ends.
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(pair[1]), "control")
	l.files[pidone.ControlFD] = theirs
	l.opened = append(l.opened, theirs)
	// Process 1 of a Builder's sandbox is a grandchild. The kernel adds its process ID to its messages.
	if l.runner.builder != nil {
		if err := unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
			return errors.Join(err, unix.Close(pair[0]))
		}
	}
	// Only a nonblocking descriptor uses the runtime's poller, which deadlines need.
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return errors.Join(err, unix.Close(pair[0]))
	}
	l.ours[3] = os.NewFile(uintptr(pair[0]), "control")
	return nil
}

// ids returns the command's user and group on the host.
func (l *launch) ids() (uid, gid int) {
	if l.root {
		return l.uid, l.gid
	}
	return os.Geteuid(), os.Getegid()
}

// giveStreams makes a root server's command the owner of its streams, so that it can open /dev/stdout.
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

// writeSpec writes the helper's instructions to an unnamed file.
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

// cwd makes the working directory absolute without cleaning it, because only the kernel, inside the sandbox,
// can resolve ".." after a symbolic link.
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
