//go:build unix

package sandbox

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// readNow reads what is in a pipe, whether or not its deadline has passed: on a machine that stalls, the
// deadline passes before anyone has read what the command wrote.
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
