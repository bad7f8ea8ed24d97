//go:build unix

package source

import "syscall"

// nonblock keeps an open from waiting when the archive is exchanged for a FIFO.
const nonblock = syscall.O_NONBLOCK
