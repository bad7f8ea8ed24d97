package main

import "golang.org/x/sys/unix"

// dropTyped forgets what was typed on a terminal and not read yet, ended lines and begun ones.
func dropTyped(fd uintptr) error { return unix.IoctlSetInt(int(fd), unix.TCFLSH, unix.TCIFLUSH) }
