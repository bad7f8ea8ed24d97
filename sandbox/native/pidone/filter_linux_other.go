//go:build linux && !amd64 && !arm64

package pidone

import "golang.org/x/sys/unix"

// assemble has no filter for this architecture. The empty program makes the kernel refuse it, so
// that nothing runs.
func assemble(bool) []unix.SockFilter { return make([]unix.SockFilter, 1) }
