package pidone

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

var (
	deniedArch   []uint32
	absentArch   []uint32
	modeArgsArch []modeArg
)
