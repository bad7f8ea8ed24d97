package serve

import (
	"context"
	"net"
	"syscall"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
)

// AddressTaken is the error of listening where something else does: WSAEADDRINUSE.
const AddressTaken = syscall.Errno(10048)

// checkSocket refuses as listenUnix does.
func checkSocket(ctx context.Context, path string) (stale bool, err error) {
	_, err = listenUnix(ctx, path)
	return false, err
}

// deferAccept leaves a listener as it is.
func deferAccept(_, _ string, _ syscall.RawConn) error { return nil }

// listenUnix refuses: who may connect to a socket file cannot be limited here.
func listenUnix(context.Context, string) (net.Listener, error) {
	return nil, exit.Usagef("use --http 127.0.0.1:8080", "--unix is not supported on Windows")
}
