package pidone

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock is a layer behind the mounts: what the mounts leave read-only stays unwritable should one
// of them be judged wrongly, by this program or by the kernel. Two rules are its own, and lost on a kernel
// without it: a named pipe in a directory mounted read-only cannot be written to, which no mount refuses,
// and where memory is sampled /dev/zero cannot be opened for writing, which memory shared by it takes.
const (
	// landlockRead is what the whole tree grants.
	landlockRead = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	// landlockWrite is what scratch space grants beside. Devices are not in it: nobody makes one.
	landlockWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM |
		unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	landlockNodes = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
	// landlockDevice is what the few devices grant beside: `>/dev/null` truncates.
	landlockDevice = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

	// Versions of the interface. Before the second, files could not be moved between directories.
	landlockLeast    = 2
	landlockTruncate = 3
	landlockIoctl    = 5
	landlockScopes   = 6
)

// Landlock reports whether this kernel has it, switched on and of a version that is used.
func Landlock() bool { return landlockVersion() >= landlockLeast }

func landlockVersion() uintptr {
	version, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0 // not built in, or not switched on
	}
	return version
}

// landlock restricts this thread, and what it starts, to reading all and writing below the given
// directories. The network is not restricted: the namespace has none but its own loopback, which
// servers of the command's own may use.
func landlock(all string, devices, writable []string) error {
	version := landlockVersion()
	if version < landlockLeast {
		return nil
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: landlockRead | landlockWrite | landlockNodes | landlockDevice}
	if version < landlockTruncate {
		attr.Handled_access_fs &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version < landlockIoctl {
		attr.Handled_access_fs &^= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	size := unsafe.Offsetof(attr.Handled_access_net)
	if version >= landlockScopes {
		// No signal to, and no abstract socket of, a process outside: both are in other namespaces.
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
		size = unsafe.Offsetof(attr.Quiet_access_fs)
	}
	fd, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return step("restrict file access", errno)
	}
	defer func() { _ = unix.Close(int(fd)) }()
	if err := landlockBelow(fd, all, landlockRead); err != nil {
		return err
	}
	for _, device := range devices {
		if err := landlockBelow(fd, device, landlockDevice&attr.Handled_access_fs); err != nil {
			return err
		}
	}
	for _, dir := range writable {
		if err := landlockBelow(fd, dir, landlockWrite&attr.Handled_access_fs); err != nil {
			return err
		}
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return step("restrict file access", errno)
	}
	return nil
}

func landlockBelow(ruleset uintptr, dir string, access uint64) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return step("restrict file access", err)
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	_, _, errno := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, ruleset, unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	_ = unix.Close(fd)
	if errno != 0 {
		return step("restrict file access", errno)
	}
	return nil
}

// devices are the paths that a command may write to and yet not make files below.
func (h *helper) devices() []string {
	if !h.spec.NoAnonFiles {
		return []string{"/dev"}
	}
	var l []string
	for _, d := range Devices {
		if d != "zero" {
			l = append(l, "/dev/"+d)
		}
	}
	return l
}

// writable are the directories that the mounts let the command write below.
func (h *helper) writable() []string {
	dirs := []string{"/tmp", "/dev/shm", "/out"}
	for _, m := range h.spec.Mounts {
		if !m.ReadOnly {
			dirs = append(dirs, m.Target)
		}
	}
	return dirs
}
