package pidone

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock is an additional layer behind the mounts: read-only mounts stay unwritable even if this program or
// the kernel handles one of them wrongly. Only Landlock enforces two rules, which are lost on a kernel
// without it. A named pipe in a directory that is mounted read-only cannot be written to, which no mount
// prevents. If memory is sampled, /dev/zero cannot be opened for writing, and without that it cannot be used
// for shared memory.
const (
	// landlockRead is granted for the whole tree.
	landlockRead = unix.LANDLOCK_ACCESS_FS_EXECUTE |
		unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR

	// landlockWrite is also granted for scratch space. It does not include creating devices.
	landlockWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM |
		unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	landlockNodes = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK

	// landlockDevice is also granted for the devices, because `>/dev/null` truncates.
	landlockDevice = unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

	// ABI versions. Before the second, files could not be moved between directories.
	landlockLeast    = 2
	landlockTruncate = 3
	landlockIoctl    = 5
	landlockScopes   = 6
)

// Landlock reports whether this kernel has Landlock enabled, in a version that is supported here.
func Landlock() bool { return landlockVersion() >= landlockLeast }

func landlockVersion() uintptr {
	version, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0,
		unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		// Landlock is not built in or not enabled.
		return 0
	}
	return version
}

// landlock restricts this thread and its children to reading everything and writing below the given
// directories. It does not restrict the network: the namespace has only a loopback interface, which the
// command may use for its own servers.
func landlock(all string, devices, writable []string) error {
	version := landlockVersion()
	if version < landlockLeast {
		return nil
	}
	const handled = landlockRead | landlockWrite | landlockNodes | landlockDevice
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled}
	if version < landlockTruncate {
		attr.Handled_access_fs &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version < landlockIoctl {
		attr.Handled_access_fs &^= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	size := unsafe.Offsetof(attr.Handled_access_net)
	if version >= landlockScopes {
		// Signals to processes outside, and their abstract sockets. Both are in other namespaces already.
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

// landlockBelow grants access below a directory.
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

// devices returns the paths that a command may write to without creating files below them.
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

// writable returns the directories below which the mounts allow writing.
func (h *helper) writable() []string {
	dirs := []string{"/tmp", "/dev/shm", "/out"}
	for _, m := range h.spec.Mounts {
		if !m.ReadOnly {
			dirs = append(dirs, m.Target)
		}
	}
	return dirs
}
