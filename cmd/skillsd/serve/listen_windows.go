package serve

import (
	"context"
	"net"
	"syscall"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
)

// AddressTaken is the error of listening on an address in use: WSAEADDRINUSE.
const AddressTaken = syscall.Errno(10048)

// checkSocket returns the error of listenUnix.
func checkSocket(ctx context.Context, path string) (stale bool, err error) {
	_, err = listenUnix(ctx, path)
	return false, err
}

// deferAccept does nothing.
func deferAccept(_, _ string, _ syscall.RawConn) error { return nil }

// listenUnix returns an error: access to a socket file cannot be restricted on Windows.
func listenUnix(context.Context, string) (net.Listener, error) {
	return nil, exit.Usagef("use --http 127.0.0.1:8080", "--unix is not supported on Windows")
}
