//go:build linux && !amd64 && !arm64

package pidone

import "golang.org/x/sys/unix"

// assemble has no filter for this architecture. The kernel refuses the program that it returns, so the
// command does not run.
func assemble(bool) []unix.SockFilter { return make([]unix.SockFilter, 1) }
