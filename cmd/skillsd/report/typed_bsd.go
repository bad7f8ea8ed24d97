//go:build unix && !linux

package report

import "golang.org/x/sys/unix"

// DropTyped discards unread input of a terminal, complete and incomplete lines.
func DropTyped(fd uintptr) error {
	const forReading = 1 // FREAD: input only
	return unix.IoctlSetPointerInt(int(fd), unix.TIOCFLUSH, forReading)
}
