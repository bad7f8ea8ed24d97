package pidone

import "golang.org/x/sys/unix"

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
