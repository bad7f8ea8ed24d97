package native

import (
	"context"
	"net"
	"sync"

	"github.com/skillsd/skillsd/sandbox"
)

// egress is the proxy of one run, from its listening to its end.
type egress struct {
	proxy  sandbox.NetworkProxy // nil without a network
	ctx    context.Context      // of the run; ends when no process of it is left
	cancel context.CancelFunc
	served sync.WaitGroup
}

func newEgress(ctx context.Context, n sandbox.Network) *egress {
	g := &egress{proxy: n.Proxy}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

// serve makes the proxy accept on the socket that the helper handed over after its directories, and
// takes it out of the report's files. The command starts only after the helper listens; its connections
// wait in the socket's queue until the proxy accepts.
func (g *egress) serve(r *report) {
	if g.proxy == nil || len(r.files) == 0 {
		return
	}
	last := r.files[len(r.files)-1]
	r.files = r.files[:len(r.files)-1]
	l, err := net.FileListener(last) // has a descriptor of its own
	_ = last.Close()
	if err != nil {
		return // connections to the proxy are then never answered, and end with the run
	}
	g.served.Go(func() { g.proxy.Serve(g.ctx, l) })
}

// wait ends the proxy and returns when nothing of it is left.
func (g *egress) wait() {
	g.cancel()
	g.served.Wait()
}
