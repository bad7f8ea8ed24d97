package native

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
)

// mounts adds the mounts of the sandbox. A server with the right to mount creates the mounts itself, because
// it can reach directories that the helper's user cannot.
func (l *launch) mounts() error {
	if err := l.add(l.cmd.Tree, sandbox.SkillDir, true); err != nil {
		return err
	}
	if at := l.cmd.TreeDir(); at != sandbox.SkillDir {
		if err := l.add(l.cmd.Tree, at, true); err != nil {
			return err
		}
	}
	if in := l.cmd.Interpreter; in != nil {
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
			d, err := openDir(dirs[at])
			if err != nil {
				return unavailable("the interpreter's directory cannot be opened", "reinstall "+in.Name, err)
			}
			l.opened = append(l.opened, d)
			if err := l.add(d, at, true); err != nil {
				return err
			}
		}
	}
	if root := l.cmd.Root; root != nil {
		for _, m := range root.Dirs {
			if err := l.add(m.Dir, m.At, true); err != nil {
				return err
			}
		}
		l.spec.OwnRoot = true
		for _, name := range slices.Sorted(maps.Keys(root.Links)) {
			l.spec.Links = append(l.spec.Links, name, root.Links[name])
		}
	}
	for _, m := range l.cmd.Packages {
		if m.At != sandbox.EnvDir && m.At != sandbox.NodeModulesDir {
			return unavailable("packages cannot be mounted at "+m.At, "", nil)
		}
		if err := l.add(m.Dir, m.At, true); err != nil {
			return err
		}
	}
	if c := l.cmd.Cache; c.Dir != nil {
		// At any other path, a cache could cover a part of the sandbox.
		if !strings.HasPrefix(c.At, sandbox.TmpDir+"/") || filepath.Clean(c.At) != c.At {
			return unavailable("the path of the interpreter's cache is not below "+sandbox.TmpDir, "", nil)
		}
		if err := l.add(c.Dir, c.At, true); err != nil {
			return err
		}
	}
	return l.workspace()
}

// workspace adds the workspace, if any. Files of the FileOwner belong to the command there: their owner is
// mapped by the mount or, where that is not supported, the command runs as FileOwner.
func (l *launch) workspace() error {
	mode := l.cmd.Workspace.Mode
	if mode == "" || mode == sandbox.WorkspaceNone {
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
		return l.add(ws.Dir, sandbox.WorkspaceDir, true)
	case sandbox.WorkspaceRW:
		if err := l.add(ws.Dir, sandbox.WorkspaceDir, false); err != nil {
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
		if slices.ContainsFunc(ws.ReadOnly, func(
			above string) bool {
			return strings.HasPrefix(dir, above+"/")
		}) {
			continue
		}
		for i, c := range dir + "/" {
			way := dir[:i]
			if c != '/' || mounted[way] || i < len(dir) && ws.Mode == sandbox.WorkspaceStaged {
				continue
			}
			mounted[way] = true
			// An earlier command may have put a symbolic link in the place of the directory.
			fd, err := unix.Openat2(int(ws.Dir.Fd()), way, &unix.OpenHow{
				Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
				Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
			})
			if err != nil {
				return unavailable("a directory of the workspace that must stay read-only cannot be opened",
					"restore it, or restart the server", err)
			}
			d := os.NewFile(uintptr(fd), way)
			l.opened = append(l.opened, d)
			if err := l.add(d, sandbox.WorkspaceDir+"/"+way, i == len(dir)); err != nil {
				return err
			}
			l.spec.Mounts[len(l.spec.Mounts)-1].Over = true
		}
	}
	return nil
}

// mountable reports whether an interpreter's directory can be mounted without covering a part of the sandbox.
func mountable(path string) bool {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
		return false
	}
	first, _, _ := strings.Cut(path[1:], "/")
	switch first {
	case "usr", "etc", "dev", "proc", "sys", "tmp", "skill", "workspace", "out", ".layers", "env",
		"node_modules":
		return false
	}
	return path != "/mnt" && path != "/mnt/skills" && !strings.HasPrefix(path+"/", sandbox.TreesDir+"/")
}

// openDir opens a directory as a path, which does not require the right to read it.
func openDir(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// add adds a mount of a directory. The mount is detached if this process may mount.
func (l *launch) add(dir *os.File, target string, readOnly bool) error {
	if dir == nil {
		return unavailable("no directory for "+target, "", nil)
	}
	// A server without the right to mount passes a handle. The helper opens the directory by its path and
	// compares the two.
	m := pidone.Mount{Kind: pidone.Directory, Target: target, ReadOnly: readOnly, FD: len(l.files)}
	// Hiding requires an overlay, and only these directories do not change while they are covered by one.
	isTarget := func(p sandbox.Mount) bool { return p.At == target }
	m.Hidden = target == sandbox.SkillDir || target == l.cmd.TreeDir() ||
		l.cmd.Cache.Dir != nil && target == l.cmd.Cache.At || slices.ContainsFunc(l.cmd.Packages, isTarget) ||
		l.cmd.Root != nil && slices.ContainsFunc(l.cmd.Root.Dirs, isTarget)
	if d, err := l.detach(dir, readOnly); err == nil {
		if m.Hidden && l.setting() == pidone.Built {
			// By then the helper would have no right to create that overlay.
			l.opened = append(l.opened, d)
			if hidden, err := hide(d); err == nil {
				d = hidden
			} else if d, err = l.detach(dir, readOnly); err != nil {
				return unavailable("the directory for "+target+" cannot be mounted", "", err)
			}
		}
		m.Kind = pidone.Detached
		l.opened = append(l.opened, d)
		l.files = append(l.files, d)
	} else if l.owners != nil {
		// Only a detached mount can map the owners of files.
		return err
	} else {
		path, err := pathOf(dir)
		if err != nil {
			return unavailable("the directory for "+target+" no longer has a path", "", err)
		}
		m.Path = path
		l.files = append(l.files, dir)
	}
	l.spec.Mounts = append(l.spec.Mounts, m)
	return nil
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

func pathOf(dir *os.File) (string, error) {
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
}

// Landlock reports whether the kernel supports Landlock, which prevents a command from writing to named pipes
// in directories that are mounted read-only.
func Landlock() bool { return pidone.Landlock() }
