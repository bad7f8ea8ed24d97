//go:build unix

package httpauth

import "syscall"

// nonblock keeps an open from waiting when a file is exchanged for a FIFO at the wrong moment.
const nonblock = syscall.O_NONBLOCK
