package native

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
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
	child   *child
	opened  []*os.File // to be closed once the child is started
	upper   *os.File   // the upper layer, if this process created the overlay
	root    bool
	uid     int      // host user of the command: the server's or, of a root server, leased or the FileOwner
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
func (l *launch) start() (err error) {
	l.files, l.child = make([]*os.File, pidone.FirstFD), &child{}
	defer func() {
		closeAll(l.opened)
		if err != nil {
			l.child.close()
		}
	}()
	if err := l.mounts(); err != nil {
		return err
	}
	// A waiting helper already has its streams.
	if l.spare == nil {
		if err := l.streams(); err != nil {
			return err
		}
	}

	if b := l.runner.builder; b != nil {
		plan := &Plan{Cmd: l.cmd, Limits: l.limits, Spec: &l.spec, Root: l.root, launch: l}
		l.command, err = b.Build(plan)
		if err != nil {
			return err
		}
	}

	spec := l.encodeSpec()
	if l.spare != nil {
		l.adopted = l.adopt(spec)
		if l.adopted {
			return nil
		}
		if err := l.streams(); err != nil {
			return err
		}
	}
	return l.startOwn(spec)
}

// startOwn starts a helper for this run alone.
func (l *launch) startOwn(spec []byte) error {
	f, err := memoryFile("spec", spec)
	if err != nil {
		return unavailable("the helper's instructions could not be written", "", err)
	}
	l.opened = append(l.opened, f)
	l.files[pidone.SpecFD] = f
	command := l.command
	if command == nil {
		command = &Command{
			Path: Self, Argv: []string{"sandbox-init"}, Attr: l.attributes(),
			Env: pidone.Environ("1"),
		}
	}
	l.child.proc, err = os.StartProcess(command.Path, command.Argv, &os.ProcAttr{
		Env: command.Env, Files: l.files, Sys: command.Attr,
	})
	runtime.KeepAlive(l.cmd)
	if err != nil {
		return startError(err)
	}
	return nil
}

// mounts adds the mounts of the sandbox. A server with the right to mount creates the mounts itself, because
// it can reach directories that the helper's user cannot.
func (l *launch) mounts() error {
	for _, add := range []func() error{
		l.addTree, l.addInterpreter, l.addRoot, l.addPackages, l.addCache, l.workspace,
	} {
		if err := add(); err != nil {
			return err
		}
	}
	return nil
}

// addTree adds the tree, also under the name of its skill.
func (l *launch) addTree() error {
	if err := l.add(l.cmd.Tree, sandbox.SkillDir, unchanging); err != nil {
		return err
	}
	if at := l.cmd.TreeDir(); at != sandbox.SkillDir {
		return l.add(l.cmd.Tree, at, unchanging)
	}
	return nil
}

// addInterpreter adds the interpreter's directories and the targets of its links.
func (l *launch) addInterpreter() error {
	in := l.cmd.Interpreter
	if in == nil {
		return nil
	}
	dirs := maps.Clone(in.Links)
	if dirs == nil {
		dirs = map[string]string{}
	}
	for _, path := range in.Mounts {
		dirs[path] = path
	}
	// Sorted, so that a directory is mounted before those inside it.
	for _, at := range slices.Sorted(maps.Keys(dirs)) {
		if !mountable(at) {
			return unavailable(in.Name+" is installed where the sandbox has a directory of its own",
				"install "+in.Name+" below /usr, /opt or a home directory, "+
					"not below /tmp, /etc or /workspace, and restart the server", nil)
		}
		// A path does not require the right to read the directory.
		d, err := os.OpenFile(dirs[at], unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return unavailable("the interpreter's directory cannot be opened", "reinstall "+in.Name, err)
		}
		l.opened = append(l.opened, d)
		if err := l.add(d, at, readOnly); err != nil {
			return err
		}
	}
	return nil
}

// addRoot adds the command's own root file system, if any.
func (l *launch) addRoot() error {
	root := l.cmd.Root
	if root == nil {
		return nil
	}
	for _, m := range root.Dirs {
		if err := l.add(m.Dir, m.At, unchanging); err != nil {
			return err
		}
	}
	l.spec.OwnRoot = true
	for _, name := range slices.Sorted(maps.Keys(root.Links)) {
		l.spec.Links = append(l.spec.Links, name, root.Links[name])
	}
	return nil
}

// addPackages adds the directories of an environment.
func (l *launch) addPackages() error {
	for _, m := range l.cmd.Packages {
		if m.At != sandbox.EnvDir && m.At != sandbox.NodeModulesDir {
			return unavailable("packages cannot be mounted at "+m.At, "", nil)
		}
		if err := l.add(m.Dir, m.At, unchanging); err != nil {
			return err
		}
	}
	return nil
}

// addCache adds the interpreter's cache, if any. At another path than below /tmp, it could cover a part of
// the sandbox.
func (l *launch) addCache() error {
	c := l.cmd.Cache
	if c.Dir == nil {
		return nil
	}
	if !strings.HasPrefix(c.At, sandbox.TmpDir+"/") || filepath.Clean(c.At) != c.At {
		return unavailable("the path of the interpreter's cache is not below "+sandbox.TmpDir, "", nil)
	}
	return l.add(c.Dir, c.At, unchanging)
}

// mountable reports whether an interpreter's directory can be mounted without covering a part of the sandbox.
func mountable(path string) bool {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
		return false
	}
	first, _, _ := strings.Cut(path[1:], "/")
	switch first {
	case "usr", "etc":
		return false
	case "mnt":
		// The sandbox has only TreesDir there, and its parents.
		return path != "/mnt" && path != "/mnt/skills" && !strings.HasPrefix(path+"/", sandbox.TreesDir+"/")
	}
	return !sandbox.IsOwnDir(first)
}

// An access is the way in which a directory is mounted.
type access int

const (
	writable access = iota
	readOnly
	// unchanging is readOnly for a directory that does not change while it is mounted. Its path on the host
	// is hidden, which requires an overlay, and only such a directory can be covered by one.
	unchanging
)

// add adds a mount of a directory. The mount is detached if this process may mount.
func (l *launch) add(dir *os.File, target string, as access) error {
	if dir == nil {
		return unavailable("no directory for "+target, "", nil)
	}
	m := pidone.Mount{Target: target, ReadOnly: as != writable, Hidden: as == unchanging}
	d, err := l.detach(dir, m.ReadOnly)
	if err != nil && l.owners != nil {
		// Only a detached mount can map the owners of files.
		return err
	}
	if err != nil {
		// A server without the right to mount passes a handle. The helper opens the directory by its path and
		// compares the two.
		m.Kind = pidone.Directory
		m.Path, err = pathOf(dir)
		if err != nil {
			return unavailable("the directory for "+target+" no longer has a path", "", err)
		}
		l.pass(m, dir)
		return nil
	}
	l.opened = append(l.opened, d)
	// The helper of a Builder's sandbox has no right to create the overlay that hides the path.
	if m.Hidden && l.spec.Setting == pidone.Built {
		hidden, err := hide(d)
		if err != nil {
			// A mount that was a layer of a refused overlay may have no further use.
			hidden, err = l.detach(dir, m.ReadOnly)
		}
		if err != nil {
			return unavailable("the directory for "+target+" cannot be mounted", "", err)
		}
		l.opened = append(l.opened, hidden)
		d = hidden
	}
	m.Kind = pidone.Detached
	l.pass(m, d)
	return nil
}

// pass adds a mount to the Spec, and its file to the helper's descriptors.
func (l *launch) pass(m pidone.Mount, f *os.File) {
	m.FD = len(l.files)
	l.files = append(l.files, f)
	l.spec.Mounts = append(l.spec.Mounts, m)
}

// detach creates a detached mount of dir, which requires the right to mount. If owners is set, the mount maps
// the owners of files.
func (l *launch) detach(dir *os.File, readOnly bool) (*os.File, error) {
	const flags = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH | unix.AT_RECURSIVE
	fd, err := unix.OpenTree(int(dir.Fd()), "", flags)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), dir.Name())
	// Without MS_PRIVATE, file systems that the host mounts below the directory later would appear in the
	// sandbox.
	attr := unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE,
	}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if l.owners != nil {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(l.owners.Fd())
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// workspace adds the workspace, if any. Files of the FileOwner belong to the command there: their owner is
// mapped by the mount or, where that is not supported, the command runs as FileOwner.
func (l *launch) workspace() error {
	if l.cmd.Workspace.Off() {
		return nil
	}
	if !l.root {
		return l.addWorkspace(l.cmd.Workspace)
	}
	fileUID, fileGID := FileOwner(l.cmd.Workspace)
	mounts, files := len(l.spec.Mounts), len(l.files)
	if l.mapOwners(fileUID, fileGID) == nil && l.addWorkspace(l.cmd.Workspace) == nil {
		return nil
	}
	// The kernel or the file system does not support mapped owners, or overlays above them.
	l.owners, l.uid, l.gid = nil, fileUID, fileGID
	l.spec.Mounts, l.files = l.spec.Mounts[:mounts], l.files[:files]
	return l.addWorkspace(l.cmd.Workspace)
}

// mapOwners sets owners to a user namespace that maps the FileOwner to the command's user.
func (l *launch) mapOwners(fileUID, fileGID int) (err error) {
	if s := l.spare; s != nil && s.owners != nil && s.owner == (owner{fileUID, fileGID}) {
		l.owners, s.owners = s.owners, nil
	} else {
		l.owners, err = ownersFor(l.uid, fileUID, fileGID)
		if err != nil {
			return err
		}
	}
	l.opened = append(l.opened, l.owners)
	return nil
}

// OwnUsers reports whether a run of a root server has a user of its own even with this workspace.
func OwnUsers(ws sandbox.Workspace) bool {
	l := &launch{cmd: &sandbox.Cmd{Workspace: ws}, limits: sandbox.DefaultLimits(), root: os.Geteuid() == 0,
		uid: int(DefaultUIDs().First), gid: int(DefaultUIDs().First)}
	err := l.workspace()
	closeAll(append(l.opened, l.upper))
	return err == nil && l.owners != nil
}

// addWorkspace adds the workspace in its mode.
func (l *launch) addWorkspace(ws sandbox.Workspace) error {
	switch ws.Mode {
	case sandbox.WorkspaceRO:
		return l.add(ws.Dir, sandbox.WorkspaceDir, readOnly)
	case sandbox.WorkspaceRW:
		if err := l.add(ws.Dir, sandbox.WorkspaceDir, writable); err != nil {
			return err
		}
		return l.addReadOnly(ws)
	case sandbox.WorkspaceStaged:
		if err := l.addOverlay(ws.Dir); err != nil {
			return err
		}
		return l.addReadOnly(ws)
	default:
		return unavailable("unknown workspace mode", "", nil)
	}
}

// addReadOnly mounts the directories that stay read-only on top of a writable workspace. The kernel refuses
// to rename a mount point, but not a directory with a mount below it, so a command could move a read-only
// directory by renaming a parent. Therefore each parent is mounted on itself. In a staged workspace that is
// not needed, because an overlay does not rename directories of its lower layer, and it would let the command
// write to that layer.
func (l *launch) addReadOnly(ws sandbox.Workspace) error {
	mounted := map[string]bool{}
	for _, dir := range ws.ReadOnly {
		within := func(above string) bool { return strings.HasPrefix(dir, above+"/") }
		if slices.ContainsFunc(ws.ReadOnly, within) {
			continue
		}
		for i, c := range dir + "/" {
			way := dir[:i]
			if c != '/' || mounted[way] || i < len(dir) && ws.Mode == sandbox.WorkspaceStaged {
				continue
			}
			mounted[way] = true
			as := writable
			if i == len(dir) {
				as = readOnly
			}
			if err := l.addOver(ws.Dir, way, as); err != nil {
				return err
			}
		}
	}
	return nil
}

// addOver mounts a directory of the workspace on itself.
func (l *launch) addOver(workspace *os.File, way string, as access) error {
	// An earlier command may have put a symbolic link in the place of the directory.
	fd, err := unix.Openat2(int(workspace.Fd()), way, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return unavailable("a directory of the workspace that must stay read-only cannot be opened",
			"restore it, or restart the server", err)
	}
	d := os.NewFile(uintptr(fd), way)
	l.opened = append(l.opened, d)
	if err := l.add(d, sandbox.WorkspaceDir+"/"+way, as); err != nil {
		return err
	}
	l.spec.Mounts[len(l.spec.Mounts)-1].Over = true
	return nil
}

func pathOf(dir *os.File) (string, error) {
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
}

// Landlock reports whether the kernel supports Landlock, which prevents a command from writing to named pipes
// in directories that are mounted read-only.
func Landlock() bool { return pidone.Landlock() }

// streams creates the standard streams and the control socket. After an error the caller closes the files.
func (l *launch) streams() error {
	for i, ours := range []**os.File{&l.child.stdin, &l.child.stdout, &l.child.stderr} {
		if i == 0 && l.cmd.Stdin == nil {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			return unavailable("no pipes could be made", "", err)
		}
		*ours, l.files[i] = r, w
		if i == 0 {
			*ours, l.files[i] = w, r
		}
		l.opened = append(l.opened, l.files[i])
	}
	if err := l.controlSocket(); err != nil {
		return unavailable("no pipes could be made", "", err)
	}
	if !l.root {
		return nil
	}
	// The command must own its streams, so that it can open /dev/stdout.
	for _, f := range l.files[:3] {
		if f == nil {
			continue
		}
		if err := f.Chown(l.uid, l.gid); err != nil {
			return unavailable("the command's user cannot be made the owner of its streams",
				"run the server as an ordinary user, or as a root whose user namespace has the users of "+
					"--sandbox-uids", err)
		}
	}
	return nil
}

// controlSocket creates the control socket.
func (l *launch) controlSocket() error {
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
	l.child.control = os.NewFile(uintptr(pair[0]), "control")
	return nil
}

// attributes returns the namespaces of the helper, its user in them, and the capabilities that it keeps until
// it drops them.
func (l *launch) attributes() *syscall.SysProcAttr {
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
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: insideID, HostID: l.uid, Size: 1}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: insideID, HostID: l.gid, Size: 1}},
		GidMappingsEnableSetgroups: l.root,
		Credential:                 cred,
		AmbientCaps:                caps,
		Setsid:                     true,
		Pdeathsig:                  syscall.SIGKILL,
	}
}

// encodeSpec returns the helper's instructions.
func (l *launch) encodeSpec() []byte {
	l.spec.Argv, l.spec.Env, l.spec.Cwd = l.cmd.Argv, l.cmd.Env, l.cmd.Cwd
	// The working directory is made absolute but not cleaned, because only the kernel, inside the sandbox,
	// can resolve ".." after a symbolic link.
	if !strings.HasPrefix(l.cmd.Cwd, "/") {
		l.spec.Cwd = sandbox.TmpDir
		if !l.cmd.Workspace.Off() {
			l.spec.Cwd = sandbox.WorkspaceDir
		}
		if l.cmd.Cwd != "" {
			l.spec.Cwd += "/" + l.cmd.Cwd
		}
	}
	l.spec.Tmp, l.spec.Inodes = uint64(l.limits.Scratch), uint64(l.limits.Inodes)
	l.spec.Files = uint64(l.limits.Files)
	l.spec.PIDs = uint64(l.limits.PIDs)
	if l.runner.Processes() != MemorySampled {
		l.spec.PIDs += countedFirst
	}
	l.spec.File = uint64(l.limits.File)
	l.spec.CPU = uint64((l.limits.CPU + time.Second - 1) / time.Second)
	l.spec.Stdin = l.cmd.Stdin != nil
	l.spec.Proxy = l.cmd.Network.Proxy != nil
	return l.spec.Encode()
}

// startError returns the error for a helper that could not be started.
func startError(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return unavailable("the system does not allow user namespaces", namespaceRemedy(sysctls), err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS):
		return unavailable("the limit on namespaces is reached",
			"raise user.max_user_namespaces and the other sysctls of that family", err)
	case errors.Is(err, unix.EACCES):
		return unavailable("the server's binary cannot be executed by the sandbox user",
			"give the binary mode 0755", err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return unavailable("the kernel has no user namespaces",
			"use a kernel of version 5.12 or later with user namespaces", err)
	}
	return unavailable("the helper could not be started", "", err)
}
