package report

import "golang.org/x/sys/unix"

// DropTyped forgets what was typed on a terminal and not read yet, ended lines and begun ones.
func DropTyped(fd uintptr) error { return unix.IoctlSetInt(int(fd), unix.TCFLSH, unix.TCIFLUSH) }
