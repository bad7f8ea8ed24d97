package main

import (
	"context"
	"net"
	"syscall"
)

// addressTaken is the error of listening where something else does: WSAEADDRINUSE.
const addressTaken = syscall.Errno(10048)

// checkSocket refuses as listenUnix does.
func checkSocket(ctx context.Context, path string) error {
	_, err := listenUnix(ctx, path)
	return err
}

// listenUnix refuses: who may connect to a socket file cannot be limited here.
func listenUnix(context.Context, string) (net.Listener, error) {
	return nil, usageError("use --http 127.0.0.1:8080", "--unix is not supported on Windows")
}
