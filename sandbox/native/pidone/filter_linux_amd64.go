package pidone

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

var deniedArch = []uint32{
	unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS__SYSCTL, unix.SYS_CREATE_MODULE,
	unix.SYS_USELIB,
}

var absentArch = []uint32{unix.SYS_INOTIFY_INIT}

var modeArgsArch = []modeArg{
	{unix.SYS_CHMOD, 1, -1}, {unix.SYS_CREAT, 1, -1}, {unix.SYS_MKNOD, 1, -1}, {unix.SYS_OPEN, 2, 1},
}
