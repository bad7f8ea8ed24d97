package native

import (
	"context"
	"net"
	"sync"

	"github.com/skillsd/skillsd/sandbox"
)

// egress is the proxy of one run.
type egress struct {
	proxy  sandbox.NetworkProxy // nil without a network
	ctx    context.Context      // of the run; ends when all its processes have ended
	cancel context.CancelFunc
	served sync.WaitGroup
}

func newEgress(ctx context.Context, n sandbox.Network) *egress {
	g := &egress{proxy: n.Proxy}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

// serve starts the proxy on the socket that the helper sent after its directories, and removes it from the
// report's files. The command starts only after the helper listens, and its connections wait in the socket's
// queue until the proxy accepts them.
func (g *egress) serve(r *report) {
	if g.proxy == nil || len(r.files) == 0 {
		return
	}
	last := r.files[len(r.files)-1]
	r.files = r.files[:len(r.files)-1]
	// FileListener duplicates the descriptor.
	l, err := net.FileListener(last)
	_ = last.Close()
	if err != nil {
		// Connections to the proxy are not answered, and end with the run.
		return
	}
	g.served.Go(func() { g.proxy.Serve(g.ctx, l) })
}

// wait stops the proxy and waits until it has ended.
func (g *egress) wait() {
	g.cancel()
	g.served.Wait()
}
