package pidone

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock is a layer behind the mounts: what the mounts leave read-only stays unwritable should one
// of them be judged wrongly, by this program or by the kernel. It takes nothing away from a command
// that the mounts grant, so a kernel without it loses depth and no rule.
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

// landlock restricts this thread, and what it starts, to reading all and writing below the given
// directories. The network is not restricted: the namespace has none but its own loopback, which
// servers of the command's own may use.
func landlock(all, devices string, writable []string) error {
	version, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || version < landlockLeast {
		return nil // not built in, or not switched on
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
	if err := landlockBelow(fd, devices, landlockDevice&attr.Handled_access_fs); err != nil {
		return err
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
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
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
