package native

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native/pidone"
	"github.com/skillsd/skillsd/sandbox/staged"
)

// addOverlay adds the workspace with a layer above it for all changes. A server with the right to mount
// creates the overlay itself, in its own user namespace: the helper's namespace maps only one user, so the
// kernel would refuse to copy up files of other users.
func (l *launch) addOverlay(dir *os.File) error {
	if dir == nil {
		return unavailable("no directory for "+sandbox.WorkspaceDir, "", nil)
	}
	lower, err := l.detach(dir, true)
	if err != nil && l.owners != nil {
		return err
	}
	if err != nil {
		path, err := pathOf(dir)
		if err != nil {
			return unavailable("the workspace no longer has a path", "", err)
		}
		// The kernel refuses an overlay in a user namespace if something is mounted below its lower
		// directory, because the overlay could uncover files below that mount. The kernel's error does not
		// explain that.
		if below := mountBelow(path); below != "" {
			return unavailable("a file system is mounted inside the workspace, at "+below,
				"unmount it, grant a directory without it, or mount the workspace ro or rw", nil)
		}
		l.pass(pidone.Mount{Kind: pidone.Lower, Path: path, Target: sandbox.WorkspaceDir}, dir)
		return nil
	}
	l.opened = append(l.opened, lower)
	mount, upper, err := l.overlay(lower)
	if err != nil {
		return unavailable("the workspace cannot be staged", "mount the workspace ro", err)
	}
	l.opened = append(l.opened, mount)
	l.upper = upper
	l.pass(pidone.Mount{Kind: pidone.Detached, Target: sandbox.WorkspaceDir}, mount)
	return nil
}

// mountBelow returns the path, relative to dir, of a mount below dir, or "".
func mountBelow(dir string) string {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	// In mountinfo, the kernel writes these characters as octal escapes.
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		below, ok := strings.CutPrefix(unescape.Replace(fields[4]), strings.TrimSuffix(dir, "/")+"/")
		if ok && below != "" {
			return below
		}
	}
	return ""
}

// overlay returns a detached overlay mount above lower, and its upper directory, which is in a tmpfs of its
// own.
func (l *launch) overlay(lower *os.File) (mount, upper *os.File, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(lower.Fd()), &st); err != nil {
		return nil, nil, err
	}
	own, err := newMount("tmpfs", [][2]string{
		{"size", strconv.FormatInt(l.limits.Scratch, 10)}, {"nr_inodes", strconv.Itoa(l.limits.Inodes + 4)},
		{"mode", "0700"},
	})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	for _, d := range []string{"upper", "work"} {
		if err := unix.Mkdirat(int(own.Fd()), d, 0o700); err != nil {
			return nil, nil, err
		}
	}
	fd, err := unix.Openat(int(own.Fd()), "upper", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	changes := os.NewFile(uintptr(fd), "upper")
	defer func() {
		if err != nil {
			_ = changes.Close()
		}
	}()
	// The merged root has the attributes of the upper directory.
	like, err := unix.Openat(int(lower.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	list := os.NewFile(uintptr(like), "workspace")
	defer func() { _ = list.Close() }()
	// Without the sticky bit and the access list, a script could delete files in a staged workspace that it
	// cannot delete in the workspace itself.
	err = errors.Join(changes.Chown(int(st.Uid), int(st.Gid)), staged.CopyAccessList(changes, list),
		unix.Fchmod(fd, st.Mode&0o3777))
	if err != nil {
		return nil, nil, err
	}
	// Without redirects, metadata-only copies and an index, the upper layer alone describes all changes.
	base := "/proc/self/fd/" + strconv.Itoa(int(own.Fd()))
	mount, err = newOverlay([][2]string{
		{"lowerdir", "/proc/self/fd/" + strconv.Itoa(int(lower.Fd()))},
		{"upperdir", base + "/upper"}, {"workdir", base + "/work"},
		{"redirect_dir", "off"}, {"metacopy", "off"}, {"index", "off"},
	}, lower, own)
	return mount, changes, err
}

// hide returns a detached mount that shows a directory but not its path on the host, which mountinfo would
// show for a mount of the directory itself.
func hide(dir *os.File) (mount *os.File, err error) {
	// An overlay without an upper layer needs at least two lower layers.
	empty, err := newMount("tmpfs", [][2]string{{"size", "4k"}, {"nr_inodes", "1"}, {"mode", "0555"}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, empty.Close()) }()
	const fds = "/proc/self/fd/"
	return newOverlay([][2]string{
		{"lowerdir", fds + strconv.Itoa(int(dir.Fd())) + ":" + fds + strconv.Itoa(int(empty.Fd()))},
		{"redirect_dir", "nofollow"}, {"metacopy", "off"}, {"index", "off"},
	}, dir, empty)
}

// newOverlay creates an overlay of detached mounts, which options name by their descriptors. The mounts
// cannot be attached elsewhere afterwards.
func newOverlay(options [][2]string, layers ...*os.File) (mount *os.File, err error) {
	try := func() (err error) {
		mount, err = newMount("overlay", options)
		return err
	}
	if !mustAttach.Load() {
		err = try()
	}
	if mustAttach.Load() || errors.Is(err, unix.EINVAL) {
		err = attached(try, layers...)
		mustAttach.CompareAndSwap(false, err == nil)
	}
	return mount, err
}

// mustAttach is set once the kernel accepted only attached mounts, because it logs each refusal.
var mustAttach atomic.Bool

// attached calls do while the mounts are attached to the caller's file tree, because kernels before 6.8
// refuse overlays of detached mounts. The tree belongs to a thread and ends with it, and no other process
// sees it.
func attached(do func() error, mounts ...*os.File) error {
	result := make(chan error, 1)
	go func() {
		// The thread stays locked for good, because no other goroutine may use it.
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread does not end, and /proc/self shows its tree.
			defer runtime.UnlockOSThread()
			result <- attached(do, mounts...)
			return
		}
		err := attachAll(mounts)
		if err == nil {
			err = do()
		}
		result <- err
	}()
	return <-result
}

// attachAll attaches mounts to a private file tree of the calling thread.
func attachAll(mounts []*os.File) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	// Otherwise the mounts below would propagate to the host.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, m := range mounts {
		// The target does not matter, because the overlay refers to the mounts by their descriptors.
		err := unix.MoveMount(int(m.Fd()), "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH)
		if err != nil {
			return err
		}
	}
	return nil
}

// newMount creates a detached file system.
func newMount(fstype string, options [][2]string) (*os.File, error) {
	fs, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fs) }()
	for _, o := range options {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return nil, err
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), fstype), nil
}
