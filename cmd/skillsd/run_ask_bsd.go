//go:build unix && !linux

package main

import "golang.org/x/sys/unix"

// dropTyped forgets what was typed on a terminal and not read yet, ended lines and begun ones.
func dropTyped(fd uintptr) error {
	const forReading = 1 // FREAD: the input alone
	return unix.IoctlSetPointerInt(int(fd), unix.TIOCFLUSH, forReading)
}
