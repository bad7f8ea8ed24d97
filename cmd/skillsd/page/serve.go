package page

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
)

// Serve answers at an address of this machine until ctx ends, and calls ready with the link once it does.
//
// Errors: *exit.Error for an address that cannot be listened on, or that other machines reach.
func Serve(ctx context.Context, o Options, addr string, ready func(link string)) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return exit.Usagef("use a free port of this machine, such as 127.0.0.1:9465; port 0 takes one",
			"--listen: %w", err)
	}
	defer listener.Close()
	if at, ok := listener.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		return exit.Usagef("listen on 127.0.0.1, and reach it from elsewhere through ssh -L",
			"--listen %s can be reached from other machines", addr)
	}
	p, err := New(o, listener.Addr().String())
	if err != nil {
		return err
	}
	defer p.Close()
	server := &http.Server{Handler: p.Handler(), ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stopped := context.AfterFunc(ctx, func() { server.Close() })
	defer stopped()
	ready(p.Link())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
