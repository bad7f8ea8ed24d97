package sandbox

import (
	"context"
	"net"
)

// ProxyAddr is where the proxy listens inside a sandbox with a network: it is the only way out. A command
// finds it by variables of its environment, which the caller sets.
const ProxyAddr = "127.0.0.1:3128"

// Network is what a command may reach outside of its sandbox. The zero value is nothing. A backend must
// refuse any other value with *[UnavailableError] if it cannot keep a command from reaching more.
type Network struct {
	// Proxy serves the connections that the command makes to [ProxyAddr]. Nil means no network.
	Proxy NetworkProxy
}

// Off reports whether the command is to reach nothing.
func (n Network) Off() bool { return n.Proxy == nil }

// NetworkProxy decides where each connection leads, and makes it.
type NetworkProxy interface {
	// Serve accepts connections until ctx ends. When it returns, l and every connection it accepted
	// or made are closed and none of its goroutines is left.
	Serve(ctx context.Context, l net.Listener)
}
