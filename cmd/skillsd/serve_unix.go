//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// listenUnix listens on a socket that only its owner can connect to. The mode is set before the
// socket has a name where the system honours that, and after in any case.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := clearSocket(ctx, path); err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
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

// clearSocket removes a socket that a server left behind. It refuses anything else, and a socket that
// is in use.
func clearSocket(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return flagError("unix", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return usageError("choose a path where nothing is", "--unix %s exists and is no socket", path)
	}
	var dialer net.Dialer
	if conn, err := dialer.DialContext(ctx, "unix", path); err == nil {
		conn.Close()
		return usageError("stop the other server or choose another path", "--unix %s is in use", path)
	}
	return os.Remove(path)
}
