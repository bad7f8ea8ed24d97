//go:build unix

package install

import "syscall"

// nonblock keeps the opening of a named pipe from waiting for a writer.
const nonblock = syscall.O_NONBLOCK
