package sandbox

import (
	"context"
	"net"
)

// ProxyAddr is the address of the proxy in a sandbox with a network; it is the only way out. Commands find it
// by environment variables, which the caller sets.
const ProxyAddr = "127.0.0.1:3128"

// Network is the network access of a command. The zero value means none. A backend must refuse any other
// value with *[UnavailableError] if it cannot prevent further access.
type Network struct {
	// Proxy serves the command's connections to [ProxyAddr]. Nil means no network.
	Proxy NetworkProxy
}

// Off reports whether the command has no network.
func (n Network) Off() bool { return n.Proxy == nil }

// NetworkProxy decides about each connection and makes it.
type NetworkProxy interface {
	// Serve accepts connections until ctx ends. When it returns, it has closed l and every connection that it
	// accepted or made, and all its goroutines have ended.
	Serve(ctx context.Context, l net.Listener)
}
