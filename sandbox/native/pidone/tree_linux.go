package pidone

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	attrReadOnly = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	attrWritable = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	tmpfsFlags   = unix.MS_NOSUID | unix.MS_NODEV
)

// Directories that exist only while the root is being built.
const (
	layersDir = ".layers"
	lowerDir  = layersDir + "/lower"
	emptyDir  = layersDir + "/empty"
	ownDir    = layersDir + "/own"
)

// A bind is a detached copy of a host mount, to be attached below the new root.
type bind struct {
	fd     int
	target string
	dir    bool
}

// etcFiles are the only parts of the host's /etc in a sandbox, relative to /etc: links that commands such as
// awk need, the loader's cache, certificates, the time zone, and settings without which programs that create
// documents do not start.
var etcFiles = []string{"alternatives", "ssl/certs", "ssl/openssl.cnf", "ld.so.cache", "localtime",
	"fonts", "libreoffice"}

// Devices are the only devices of a sandbox, relative to /dev.
var Devices = []string{"null", "zero", "full", "random", "urandom"}

// Synthetic are files that replace the host's, relative to the root.
var Synthetic = []struct{ Path, Text string }{
	{"etc/passwd", "sandbox:x:1000:1000:sandbox:/tmp:/bin/sh\n"},
	{"etc/group", "sandbox:x:1000:\n"},
	{"etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"},
	{"etc/hostname", "sandbox\n"},
	{"etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"},
	{"etc/resolv.conf", ""},
}

// buildTree builds the sandbox's file tree and makes it the root.
//
// No mount propagates to the host. The root is a small file system of its own and becomes read-only at the
// end. Host directories are copies of their mounts, including all mounts below them, read-only and without
// set-id programs and devices. Scratch space has its own bytes and inodes.
func (h *helper) buildTree() error {
	if !h.ahead {
		if err := h.buildBase(); err != nil {
			return err
		}
	} else {
		if h.spec.OwnRoot {
			if err := h.leaveHost(); err != nil {
				return err
			}
		}
		if err := h.openMounts(); err != nil {
			return err
		}
	}
	// /tmp is the only place in which programs can be built and executed.
	if err := unix.Mount("tmpfs", "tmp", "tmpfs", tmpfsFlags, h.scratch("1777")); err != nil {
		return step("mount /tmp", err)
	}
	for i := range h.spec.Mounts {
		if err := h.mount(i); err != nil {
			return err
		}
	}
	return enterRoot()
}

// buildBase builds the part of the root that is equal in all sandboxes. It opens every source before the
// first mount, so that no mount made here can be mistaken for a source. A helper that was started ahead opens
// its run's mounts later. By then the root covers /usr, so its parent must not have it mount anything from
// there.
func (h *helper) buildBase() error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return step("make mounts private", err)
	}
	boundBuffers()
	_ = unix.Sethostname([]byte("sandbox"))
	loopbackUp()
	binds, links, err := h.openSources()
	if err != nil {
		return err
	}
	// Every host has /usr, and its mounts are already open, so it can serve as the mount point.
	if err := unix.Mount("tmpfs", "/usr", "tmpfs", tmpfsFlags, "size=1m,nr_inodes=4k,mode=0755"); err != nil {
		return step("mount the root", err)
	}
	if err := unix.Chdir("/usr"); err != nil {
		return step("enter the root", err)
	}
	for _, d := range []string{"proc", "dev", "dev/shm", "tmp", "out", "skill", "etc"} {
		if err := unix.Mkdir(d, 0o755); err != nil {
			return step("make /"+d, err)
		}
	}
	for _, l := range links {
		if err := unix.Symlink(l.text, l.path); err != nil {
			return step("link /"+l.path, err)
		}
	}
	for _, f := range Synthetic {
		if err := writeFile(f.Path, f.Text); err != nil {
			return step("write /"+f.Path, err)
		}
	}
	for _, b := range binds {
		if err := b.attach(); err != nil {
			return step("mount /"+b.target, err)
		}
		_ = unix.Close(b.fd)
	}
	return h.mountOwn()
}

// leaveHost removes the host's files from the root, for a command with its own root file system.
func (h *helper) leaveHost() error {
	for _, b := range h.host {
		// Detaching also covers anything that the host has mounted below.
		if err := unix.Unmount(b.target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return step("unmount /"+b.target, err)
		}
		remove := unix.Unlink
		if b.dir {
			remove = unix.Rmdir
		}
		if err := remove(b.target); err != nil {
			return step("remove /"+b.target, err)
		}
	}
	for _, l := range h.hostLinks {
		if err := unix.Unlink(l.path); err != nil {
			return step("remove /"+l.path, err)
		}
	}
	for _, l := range h.ownLinks() {
		if err := unix.Symlink(l.text, l.path); err != nil {
			return step("link /"+l.path, err)
		}
	}
	return nil
}

type link struct{ path, text string }

// ownLinks returns the top-level links of the command's own root file system.
func (h *helper) ownLinks() (links []link) {
	for i := 0; i < len(h.spec.Links); i += 2 {
		links = append(links, link{h.spec.Links[i], h.spec.Links[i+1]})
	}
	return links
}

// openSources returns the mounts to attach and the links to create, and opens the Spec's mounts.
func (h *helper) openSources() ([]bind, []link, error) {
	links := []link{
		{"dev/fd", "/proc/self/fd"}, {"dev/stdin", "/proc/self/fd/0"},
		{"dev/stdout", "/proc/self/fd/1"}, {"dev/stderr", "/proc/self/fd/2"},
	}
	var binds []bind
	if h.spec.OwnRoot {
		links = append(links, h.ownLinks()...)
	} else {
		var err error
		h.host, h.hostLinks, err = hostRoot()
		if err != nil {
			return nil, nil, err
		}
		binds, links = slices.Clone(h.host), append(links, h.hostLinks...)
	}
	// A read-only mount preserves owner and mode; devices remain writable.
	for _, d := range Devices {
		const attr = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
		fd, err := cloneTree(unix.AT_FDCWD, "/dev/"+d, attr)
		if err != nil {
			return nil, nil, step("open /dev/"+d, err)
		}
		binds = append(binds, bind{fd, "dev/" + d, false})
	}
	return binds, links, h.openMounts()
}

// openMounts opens the Spec's mounts.
func (h *helper) openMounts() error {
	for i := range h.spec.Mounts {
		if err := h.spec.Mounts[i].open(); err != nil {
			return err
		}
	}
	return nil
}

// topDirs are top-level names, relative to the root, that are links into /usr, or directories if /usr is not
// merged.
var topDirs = []string{"bin", "sbin", "lib", "lib64", "lib32", "libx32"}

// HostPaths returns the paths of the host files that a sandbox shows.
func HostPaths() []string {
	paths := []string{"/usr"}
	for _, d := range topDirs {
		paths = append(paths, "/"+d)
	}
	for _, f := range etcFiles {
		paths = append(paths, "/etc/"+f)
	}
	for _, d := range Devices {
		paths = append(paths, "/dev/"+d)
	}
	return paths
}

// A RootFile is a directory or file of the host that a sandbox shows, read-only, or a link in its root.
type RootFile struct {
	Path     string // relative to the root, and for a directory or file also on the host
	Link     string // target of a link; "" for others
	Dir      bool
	Optional bool // some systems hide it, and no protection depends on it
}

// HostFiles returns what a sandbox shows of the host, unless its command has its own root file system.
func HostFiles() []RootFile {
	files := []RootFile{{Path: "usr", Dir: true}}
	for _, d := range topDirs {
		var st unix.Stat_t
		if unix.Lstat("/"+d, &st) != nil {
			continue
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			files = append(files, RootFile{Path: d, Link: "usr/" + d})
		case unix.S_IFDIR:
			files = append(files, RootFile{Path: d, Dir: true})
		}
	}
	for _, f := range etcFiles {
		var st unix.Stat_t
		if unix.Stat("/etc/"+f, &st) == nil {
			dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
			files = append(files, RootFile{Path: "etc/" + f, Dir: dir, Optional: true})
		}
	}
	return files
}

// hostRoot returns the mounts and links for the host files that a sandbox shows.
func hostRoot() (binds []bind, links []link, err error) {
	for _, f := range HostFiles() {
		if f.Link != "" {
			links = append(links, link{f.Path, f.Link})
			continue
		}
		fd, err := cloneTree(unix.AT_FDCWD, "/"+f.Path, attrReadOnly)
		if err != nil && f.Optional {
			continue
		}
		if err != nil {
			return nil, nil, step("open /"+f.Path, err)
		}
		binds = append(binds, bind{fd, f.Path, f.Dir})
	}
	return binds, links, nil
}

// cloneTree returns a detached copy of the mounts at a path, with attributes.
func cloneTree(dir int, path string, attr uint64) (int, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE)
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	fd, err := unix.OpenTree(dir, path, flags)
	if err != nil {
		return -1, err
	}
	return fd, unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE,
		&unix.MountAttr{Attr_set: attr})
}

// open replaces a directory handle, which belongs to the parent's mount namespace and cannot be bound here,
// by a mount of the same directory. The path only serves to find the directory again: the opened directory
// must have the same device and inode as the handle.
func (m *Mount) open() error {
	if m.Kind == Detached {
		return nil
	}
	fd, err := unix.Open(m.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return step("open "+m.Target, err)
	}
	var want, got unix.Stat_t
	if err := unix.Fstat(m.FD, &want); err != nil {
		return step("open "+m.Target, err)
	}
	if err := unix.Fstat(fd, &got); err != nil {
		return step("open "+m.Target, err)
	}
	if want.Dev != got.Dev || want.Ino != got.Ino {
		return step("open "+m.Target, unix.ESTALE)
	}
	attr := uint64(attrWritable)
	if m.ReadOnly || m.Kind == Lower {
		attr = attrReadOnly
	}
	m.FD, err = cloneTree(fd, "", attr)
	if err != nil {
		return step("bind "+m.Target, err)
	}
	return nil
}

// attach creates the target and attaches the mount there.
func (b *bind) attach() error {
	if err := makeTarget(b.target, b.dir); err != nil {
		return err
	}
	return unix.MoveMount(b.fd, "", unix.AT_FDCWD, b.target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// makeTarget creates a mount point and its parents, relative to the new root.
func makeTarget(target string, dir bool) error {
	for i := 0; i < len(target); i++ {
		if target[i] != '/' {
			continue
		}
		if err := unix.Mkdir(target[:i], 0o755); err != nil && err != unix.EEXIST {
			return err
		}
	}
	if dir {
		if err := unix.Mkdir(target, 0o755); err != nil && err != unix.EEXIST {
			return err
		}
		return nil
	}
	return writeFile(target, "")
}

func writeFile(path, text string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		_ = unix.Close(fd)
		return err
	}
	return unix.Close(fd)
}

// mountOwn mounts /proc and the command's own file systems, except /tmp, whose size depends on the run.
func (h *helper) mountOwn() error {
	for _, m := range []struct{ target, options string }{
		{"dev/shm", "nr_inodes=1k,mode=1777,size=16m"},
		{"out", "nr_inodes=1k,mode=0755,size=16m"},
	} {
		if err := unix.Mount("tmpfs", m.target, "tmpfs", tmpfsFlags|unix.MS_NOEXEC, m.options); err != nil {
			return step("mount /"+m.target, err)
		}
	}
	var err error
	h.out, err = unix.Open("out", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return step("open /out", err)
	}
	// /proc shows the new PID namespace. It is read-only, because a command could otherwise write sysctls and
	// OOM scores.
	flags := uintptr(unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount("proc", "proc", "proc", flags, ""); err != nil {
		return step("mount /proc", err)
	}
	return maskKernel()
}

// scratch returns the mount options for scratch space. To the kernel, 0 means no limit, and it uses a few
// inodes itself.
func (h *helper) scratch(mode string) string {
	return "mode=" + mode + ",size=" + utoa(max(h.spec.Tmp, 1)) + ",nr_inodes=" + utoa(h.spec.Inodes+4)
}

// Masked are the files below /proc that any user may read and that reveal secrets of the machine or of its
// other users: keyrings, kernel addresses, the kernel's command line, swap files. Other such files are
// readable only by root, which does not exist in a sandbox.
var Masked = []string{"keys", "key-users", "kallsyms", "sched_debug", "timer_list", "cmdline", "swaps"}

// maskKernel covers the files in [Masked].
func maskKernel() error {
	for _, f := range Masked {
		// In the new root, resolv.conf is empty.
		fd, err := cloneTree(unix.AT_FDCWD, "etc/resolv.conf", attrReadOnly)
		if err != nil {
			return step("mask /proc", err)
		}
		err = unix.MoveMount(fd, "", unix.AT_FDCWD, "proc/"+f, unix.MOVE_MOUNT_F_EMPTY_PATH)
		_ = unix.Close(fd)
		if err != nil && err != unix.ENOENT {
			return step("mask /proc", err)
		}
	}
	return nil
}

func (h *helper) mount(i int) error {
	m := &h.spec.Mounts[i]
	target := strings.TrimPrefix(m.Target, "/")
	switch {
	case i > 0 && m.again(&h.spec.Mounts[i-1]):
		return step("mount "+m.Target, mountAgain(h.spec.Mounts[i-1].Target[1:], target))
	case m.Kind == Lower:
		return h.mountOverlay(m, target)
	case m.Hidden:
		return h.mountHidden(m, target)
	case m.Over:
		return step("mount "+m.Target, m.attachOver(target))
	}
	b := bind{m.FD, target, true}
	return step("mount "+m.Target, b.attach())
}

// attachOver attaches the mount over a directory of an earlier mount. The path may contain a symbolic link by
// now, which would lead out of the tree.
func (m *Mount) attachOver(target string) error {
	at, err := openPlain(target)
	if err != nil {
		return err
	}
	err = unix.MoveMount(m.FD, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	_ = unix.Close(at)
	return err
}

// openPlain opens a directory as a path. The path must not contain symbolic links.
func openPlain(path string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
}

// mountOverlay covers the directory with an upper layer of this run. It detaches the mount points of the
// layers afterwards, because the overlay keeps private copies.
func (h *helper) mountOverlay(m *Mount, target string) error {
	var st unix.Stat_t
	if err := unix.Fstat(m.FD, &st); err != nil {
		return step("mount "+m.Target, err)
	}
	lower := bind{m.FD, lowerDir, true}
	if err := lower.attach(); err != nil {
		return step("mount the lower layer", err)
	}
	if err := makeTarget(ownDir, true); err != nil {
		return step("make the upper layer", err)
	}
	if err := unix.Mount("tmpfs", ownDir, "tmpfs", tmpfsFlags, h.scratch("0755")); err != nil {
		return step("mount the upper layer", err)
	}
	for _, d := range []string{"/upper", "/work"} {
		if err := unix.Mkdir(ownDir+d, st.Mode&0o777); err != nil {
			return step("make the upper layer", err)
		}
	}
	// The umask may have removed bits, and the workspace must show its own mode.
	if err := unix.Chmod(ownDir+"/upper", st.Mode&0o777); err != nil {
		return step("make the upper layer", err)
	}
	if err := makeTarget(target, true); err != nil {
		return step("mount "+m.Target, err)
	}
	// With userxattr, whiteouts are marked by attributes that can be written in a user namespace.
	options := "lowerdir=" + lowerDir + ",upperdir=" + ownDir + "/upper,workdir=" + ownDir + "/work,userxattr"
	if err := unix.Mount("overlay", target, "overlay", tmpfsFlags, options); err != nil {
		return step("mount the overlay", err)
	}
	var err error
	h.upper, err = unix.Open(ownDir+"/upper", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return step("open the upper layer", err)
	}
	return detachLayers([]string{lowerDir, ownDir}, nil)
}

// again reports whether a mount is hidden and shows the same directory as the previous mount, with nothing
// mounted below yet.
func (m *Mount) again(before *Mount) bool {
	var one, other unix.Stat_t
	return m.Hidden && before.Hidden &&
		unix.Fstat(m.FD, &one) == nil && unix.Fstat(before.FD, &other) == nil &&
		one.Dev == other.Dev && one.Ino == other.Ino
}

// mountAgain mounts the directory at place at target too.
func mountAgain(place, target string) error {
	fd, err := cloneTree(unix.AT_FDCWD, place, attrReadOnly)
	if err != nil {
		return err
	}
	again := bind{fd, target, true}
	err = again.attach()
	_ = unix.Close(fd)
	return err
}

// mountHidden mounts a directory through an overlay without another layer. A plain bind would reveal the
// directory's path on the host in mountinfo, which any user may read. An overlay shows the paths with which
// it was mounted, which no longer exist by then. If the kernel refuses such an overlay, the bind stays.
func (h *helper) mountHidden(m *Mount, target string) error {
	lower := bind{m.FD, lowerDir, true}
	if err := lower.attach(); err != nil {
		return step("mount "+m.Target, err)
	}
	for _, d := range []string{emptyDir, target} {
		if err := makeTarget(d, true); err != nil {
			return step("mount "+m.Target, err)
		}
	}
	// An overlay without an upper layer needs at least two lower layers. The second is detached, not removed,
	// because the overlay's root could not be listed after a layer's directory was removed.
	const empty = "size=4k,nr_inodes=1,mode=0555"
	if err := unix.Mount("tmpfs", emptyDir, "tmpfs", tmpfsFlags|unix.MS_RDONLY, empty); err != nil {
		return step("mount "+m.Target, err)
	}
	options := "lowerdir=" + lowerDir + ":" + emptyDir + ",userxattr"
	if unix.Mount("overlay", target, "overlay", tmpfsFlags|unix.MS_RDONLY, options) == nil {
		return detachLayers([]string{lowerDir, emptyDir}, nil)
	}
	if err := unix.MoveMount(unix.AT_FDCWD, lowerDir, unix.AT_FDCWD, target, 0); err != nil {
		return step("mount "+m.Target, err)
	}
	return detachLayers([]string{emptyDir}, []string{lowerDir})
}

// detachLayers removes the mount points of the layers of an overlay.
func detachLayers(mounted, plain []string) error {
	for _, d := range mounted {
		if err := unix.Unmount(d, unix.MNT_DETACH); err != nil {
			return step("detach the layers", err)
		}
	}
	for _, d := range append(append(mounted, plain...), layersDir) {
		if err := unix.Rmdir(d); err != nil {
			return step("detach the layers", err)
		}
	}
	return nil
}

// enterRoot makes the working directory the root, detaches the host's root and makes the new root read-only.
func enterRoot() error {
	// PivotRoot mounts the old root at the same place, below the new one. The next call detaches it with all
	// mounts below it, so no path leads to the host any more.
	if err := unix.PivotRoot(".", "."); err != nil {
		return step("change the root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return step("detach the host", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return step("enter the root", err)
	}
	attr := &unix.MountAttr{Attr_set: attrReadOnly}
	return step("make the root read-only", unix.MountSetattr(unix.AT_FDCWD, "/", 0, attr))
}

// utoa formats a number without package strconv, which is initialized later than this package.
func utoa(v uint64) string {
	var b [20]byte
	i := len(b)
	for {
		i--
		b[i] = byte('0' + v%10)
		v /= 10
		if v == 0 {
			return string(b[i:])
		}
	}
}
