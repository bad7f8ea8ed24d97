package page

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
)

// Listen listens at an address that only this machine can reach.
//
// Errors: *exit.Error.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, exit.Usagef("use a free port of this machine, such as 127.0.0.1:9465; port 0 takes one",
			"--listen: %w", err)
	}
	// The address is checked after listening, because a name may resolve to any address. The page has no TLS,
	// so its link and cookie would be readable on a network.
	if at, ok := listener.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		return nil, errors.Join(exit.Usagef(
			"listen on 127.0.0.1, and reach it from elsewhere through ssh -L",
			"--listen %s can be reached from other machines", addr), listener.Close())
	}
	return listener, nil
}

// Serve serves the page at a listener, which it closes, until ctx ends, and shows the link that opens the
// page.
func Serve(ctx context.Context, o Options, listener net.Listener) error {
	defer listener.Close()
	p, err := New(o, listener.Addr().String())
	if err != nil {
		return err
	}
	defer p.Close()
	// There is no WriteTimeout, which would end live connections.
	server := &http.Server{Handler: p.Handler(), ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	if o.Updates {
		var looking sync.WaitGroup
		looking.Go(func() {
			for ctx.Err() == nil {
				p.Look(ctx)
				select {
				case <-time.After(lookUpdates):
				case <-ctx.Done():
				}
			}
		})
		defer looking.Wait()
	}
	// Live connections stay open for minutes, so the server does not wait for them.
	stopped := context.AfterFunc(ctx, func() { server.Close() })
	defer stopped()
	o.Show(p.Link())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
