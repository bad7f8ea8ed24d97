//go:build unix

package skills

import "syscall"

// nonblock keeps an open from waiting when a file is exchanged for a FIFO at the wrong moment.
const nonblock = syscall.O_NONBLOCK

// directory makes an open fail for anything that is no directory.
const directory = syscall.O_DIRECTORY
