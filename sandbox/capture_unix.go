//go:build unix

package sandbox

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// readNow reads from a pipe even after its deadline: on a stalled machine, the deadline may pass before the
// command's output has been read.
func readNow(f *os.File, buf []byte) (n int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var rerr error
	if err := conn.Control(func(fd uintptr) {
		for n, rerr = unix.Read(int(fd), buf); rerr == unix.EINTR; n, rerr = unix.Read(int(fd), buf) {
		}
	}); err != nil {
		return 0, err
	}
	if rerr == nil && n == 0 {
		rerr = io.EOF
	}
	return n, rerr
}
