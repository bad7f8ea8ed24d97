package sandbox

import (
	"context"
	"net"
)

// ProxyAddr is where, inside a sandbox with a network, the proxy listens that is the only way out.
// A command that is to use it must be told so in its environment.
const ProxyAddr = "127.0.0.1:3128"

// Network is what a command may reach outside of its sandbox. The zero value is nothing. A backend
// that cannot keep a command from reaching more must refuse any other with *[UnavailableError].
type Network struct {
	// Proxy serves the connections that the command makes to [ProxyAddr]. Nil means no network.
	Proxy NetworkProxy
}

// Off reports whether the command is to reach nothing.
func (n Network) Off() bool { return n.Proxy == nil }

// NetworkProxy decides what is on the other side of each connection, and makes it.
type NetworkProxy interface {
	// Serve accepts connections until ctx ends. When it returns, l and every connection it accepted
	// or made are closed and none of its goroutines is left.
	Serve(ctx context.Context, l net.Listener)
}
