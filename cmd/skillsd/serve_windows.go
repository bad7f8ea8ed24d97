package main

import (
	"context"
	"net"
)

// listenUnix refuses: who may connect to a socket file cannot be limited here.
func listenUnix(context.Context, string) (net.Listener, error) {
	return nil, usageError("use --http 127.0.0.1:8080", "--unix is not supported on Windows")
}
