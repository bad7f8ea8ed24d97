//go:build unix

package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
)

// AddressTaken is the error of listening on an address in use.
const AddressTaken = syscall.EADDRINUSE

// maxSocketPath is the maximum length in bytes of a socket path that every system accepts.
const maxSocketPath = 103

// checkSocket rejects a path at which no socket can be made, and reports whether a server left a socket
// there. It changes nothing.
func checkSocket(ctx context.Context, path string) (stale bool, err error) {
	if len(path) > maxSocketPath {
		return false, exit.Usagef("choose a shorter path",
			"--unix: a path of %d bytes is too long for a socket; the maximum is %d", len(path),
			maxSocketPath)
	}
	dir := filepath.Dir(path)
	if !config.IsDir(dir) {
		return false, exit.Usagef("make the directory, or choose another path",
			"--unix %s: there is no directory %s", path, dir)
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, exit.Flag("unix", err)
	case info.Mode().Type() != fs.ModeSocket:
		return false, exit.Usagef("choose an unused path", "--unix %s exists and is not a socket",
			path)
	}
	// A socket file remains after a crash, so only a connection shows whether a server uses it.
	var dialer net.Dialer
	if conn, err := dialer.DialContext(ctx, "unix", path); err == nil {
		conn.Close()
		return false, &exit.Error{Code: exit.Usage, Err: takenError("--unix " + path + " is in use"),
			Hint: "stop the other server or choose another path"}
	}
	return true, nil
}

// takenError is returned if another server uses the socket.
type takenError string

func (e takenError) Error() string { return string(e) }

// Is makes it match AddressTaken.
func (e takenError) Is(target error) bool { return target == AddressTaken }

// tcpDeferAccept is TCP_DEFER_ACCEPT of Linux; silence is its timeout in seconds.
const tcpDeferAccept, silence = 9, 5

// deferAccept makes the kernel hold a connection until its client sends data; until then it has no
// descriptor.
func deferAccept(_, _ string, c syscall.RawConn) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	return c.Control(func(fd uintptr) {
		// Without support in the kernel, connections are accepted at once.
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpDeferAccept, silence)
	})
}

// listenUnix listens on a socket that only its owner can connect to. Where the system honours it, the mode is
// set before the socket has a name, and after in any case.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	stale, err := checkSocket(ctx, path)
	if err != nil {
		return nil, err
	}
	// bind(2) fails for a name that exists, even if no process listens there.
	if stale {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// Linux gives the name the mode of the socket, so that no other user can connect between bind and
		// chmod.
		return c.Control(func(fd uintptr) { syscall.Fchmod(int(fd), 0o600) })
	}}
	listener, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("--unix: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("--unix: %w", err), listener.Close())
	}
	return listener, nil
}
