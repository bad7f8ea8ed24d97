package report

import "golang.org/x/sys/unix"

// DropTyped discards unread input of a terminal, complete and incomplete lines.
func DropTyped(fd uintptr) error { return unix.IoctlSetInt(int(fd), unix.TCFLSH, unix.TCIFLUSH) }
