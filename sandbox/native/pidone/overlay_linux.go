package pidone

import "golang.org/x/sys/unix"

// Directories that exist only while the root is being built.
const (
	layersDir = ".layers"
	lowerDir  = layersDir + "/lower"
	emptyDir  = layersDir + "/empty"
	ownDir    = layersDir + "/own"
)

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
