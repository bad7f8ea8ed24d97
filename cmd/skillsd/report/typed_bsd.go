//go:build unix && !linux

package report

import "golang.org/x/sys/unix"

// DropTyped forgets what was typed on a terminal and not read yet, ended lines and begun ones.
func DropTyped(fd uintptr) error {
	const forReading = 1 // FREAD: the input alone
	return unix.IoctlSetPointerInt(int(fd), unix.TIOCFLUSH, forReading)
}
