package mcpserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"golang.org/x/time/rate"

	"github.com/skillsd/skillsd/mcpserver/httpauth"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/skills/policy"
)

// anonymous is the principal over HTTP without authentication.
var anonymous = policy.Principal{Name: "anonymous"}

// clientClaude is the name of Claude Code. On 2026-07-28 two of its conversations cannot be distinguished, so
// no script could run that its model has loaded. If that revision is refused, it opens a session instead.
const clientClaude = "claude-code"

// endIdleEvery is the interval of checks for idle sessions.
const endIdleEvery = time.Minute

// sharedInFlight is the maximum of concurrent requests of all principals; one principal may have half of it.
const sharedInFlight = 512

// HTTPOptions adjust ServeHTTP. The zero value of every field is its default.
type HTTPOptions struct {
	Path    string   // of the endpoint; "" means /mcp
	Hosts   []string // accepted in the Host header in addition to loopback names and the server's address
	Origins []string // accepted in the Origin header in addition to loopback origins
	Auth    *httpauth.Authenticator
	// OnlyHandles identifies a call without a session by its handle only. Without it, a call may use what its
	// principal has loaded while the principal has one conversation, and clients whose requests of 2026-07-28
	// name no session are not offered that revision.
	OnlyHandles bool
	// Cluster connects other servers with the same sessions and SessionKey; nil without them. With it, a call
	// without a session is identified by its handle only.
	Cluster *Cluster
	// SessionKey signs the ids of protocol sessions, so that they outlive the process; may be nil.
	SessionKey []byte
	Rate       float64 // requests per second of each principal; 0 means unlimited
	Burst      int     // burst of requests
	// MaxStrangers is the maximum of open connections without authentication; 0 means 1,024.
	MaxStrangers int
	// MaxConnections is the maximum of open connections; 0 means 65,536.
	MaxConnections int
	Memory         int64 // memory limit of the process in bytes; 0 means unlimited
}

// Check returns an error for a host or origin of the wrong form.
func (o HTTPOptions) Check() error {
	return (&wire.HTTPOptions{Hosts: o.Hosts, Origins: o.Origins}).Check()
}

// ServeHTTP serves many clients on listener until ctx is done; it closes listener. Without Auth every
// client is the one principal "anonymous". Running scripts are killed at the end, other calls get two
// seconds to finish.
func (s *Server) ServeHTTP(ctx context.Context, listener net.Listener, o HTTPOptions) error {
	s.guesses.Store(!o.OnlyHandles && o.Cluster == nil)
	handler, err := wire.NewHTTP(s.wire, s.wireOptions(&o))
	if err != nil {
		listener.Close()
		return err
	}
	if o.Cluster != nil {
		o.Cluster.Accept(s.accept(handler))
	}
	defer s.tasks.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go s.endIdle(ctx)
	return handler.Serve(ctx, listener)
}

// wireOptions returns the options of the transport.
func (s *Server) wireOptions(o *HTTPOptions) wire.HTTPOptions {
	opts := wire.HTTPOptions{
		Path:         o.Path,
		SameHost:     o.Auth == nil,
		Memory:       o.Memory,
		Hosts:        o.Hosts,
		Origins:      o.Origins,
		Rate:         rate.Limit(o.Rate),
		Burst:        o.Burst,
		Ready:        s.isReady,
		SessionKey:   o.SessionKey,
		MaxStrangers: o.MaxStrangers, MaxConnections: o.MaxConnections,
		SessionIdle:  session.RemoteIdle,
		SessionEnded: s.cfg.Sessions.EndProtocolSession,
		Authenticate: func(_ http.ResponseWriter, r *http.Request) (context.Context, string, bool) {
			return withPrincipal(s.trace.headerContext(r), anonymous), anonymous.Name, true
		},
	}
	if o.Cluster != nil {
		cut := slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelWarn)
		opts.Forward = func(w http.ResponseWriter, r *http.Request, body []byte, address string) error {
			return o.Cluster.forward(w, r, body, address, cut)
		}
		opts.Spread = o.Cluster.spread
		opts.Ready = func() bool { return s.isReady() && o.Cluster.Ready() }
	}
	if !o.OnlyHandles {
		opts.OnlySessions = func(client mcp.Implementation) bool { return client.Name == clientClaude }
	}
	if o.Auth != nil {
		// One principal may have as many concurrent calls as without others.
		opts.Public, opts.Shared, opts.MaxInFlight = o.Auth, true, sharedInFlight
		opts.Authenticate = func(w http.ResponseWriter, r *http.Request) (context.Context, string, bool) {
			principal, ok := o.Auth.Authenticate(w, r)
			return withPrincipal(s.trace.headerContext(r), principal), principal.Name, ok
		}
	}
	return opts
}

// endIdle ends idle sessions from time to time until ctx ends.
func (s *Server) endIdle(ctx context.Context) {
	ticker := time.NewTicker(endIdleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.cfg.Sessions.EndIdle()
		case <-ctx.Done():
			return
		}
	}
}

// Cluster is the set of other servers with the same sessions. A request for a session on one of them is
// forwarded to it, with its principal.
type Cluster struct {
	// Transport reaches only these servers. The host of a request is the address of a server.
	Transport http.RoundTripper
	// Others calls found with the address of each other registered server, until ctx ends. It returns an
	// error if they cannot be listed.
	Others func(ctx context.Context, found func(address string)) error
	// Ready reports whether this server starts new sessions.
	Ready func() bool
	// Accept is called once with the handler of requests that other servers forward. Only they may reach it.
	Accept func(handler http.Handler)
}

// headerPrincipal is the header with the principal of a forwarded request.
const headerPrincipal = "Skillsd-Principal"

// forward forwards a request; see wire.HTTPOptions.Forward. Truncated answers are logged to cut.
func (c *Cluster) forward(
	w http.ResponseWriter, r *http.Request, body []byte, address string, cut *log.Logger,
) error {
	who, err := whoSent(r)
	if err != nil {
		return err
	}
	out := r.Clone(r.Context())
	// A stopping server may refuse a request that was already sent; with GetBody the transport can send it
	// again.
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	out.Body, _ = out.GetBody()
	out.ContentLength = int64(len(body))
	var failed error
	(&httputil.ReverseProxy{
		Transport: c.Transport, FlushInterval: -1, ErrorLog: cut,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = "https", address, ""
			p.Out.Header.Del("Authorization")
			p.Out.Header.Set(headerPrincipal, who)
		},
		ModifyResponse: func(response *http.Response) error {
			switch response.StatusCode {
			case http.StatusMisdirectedRequest:
				return wire.ErrMisdirected
			// The other server answers so if the client has cancelled the call.
			case http.StatusNoContent:
				response.StatusCode = http.StatusAccepted
			// A request always gets an answer, unless the other server is stopping.
			case http.StatusAccepted:
				return errors.New("the other server has ended the request without an answer")
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			// A failed connect means that nothing was sent.
			if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
				err = wire.ErrMisdirected
			}
			failed = err
		},
	}).ServeHTTP(w, out)
	return failed
}

// whoSent returns the value of headerPrincipal for a request.
func whoSent(r *http.Request) (string, error) {
	principal, _ := principalOf(r.Context())
	who, err := json.Marshal(principal)
	return base64.StdEncoding.EncodeToString(who), err
}

// spreadWithin is how long the other servers are asked; a server that hangs for longer has lost its sessions.
const spreadWithin = 2 * time.Second

// spread sends a request to all other servers until one takes it; see wire.HTTPOptions.Spread.
func (c *Cluster) spread(r *http.Request, body []byte) error {
	who, err := whoSent(r)
	if err != nil {
		return err
	}
	// Continue without the client, which may have disconnected after it sent the request.
	ctx, taken := context.WithTimeout(context.WithoutCancel(r.Context()), spreadWithin)
	defer taken()
	var sending sync.WaitGroup
	var unsure atomic.Bool
	err = c.Others(ctx, func(address string) {
		sending.Go(func() {
			to := url.URL{Scheme: "https", Host: address, Path: r.URL.Path}
			out, err := http.NewRequestWithContext(ctx, r.Method, to.String(), bytes.NewReader(body))
			if err != nil {
				return
			}
			out.Header = http.Header{"Content-Type": r.Header["Content-Type"], headerPrincipal: {who}}
			for _, key := range []string{mcp.HeaderProtocolVersion, wire.HeaderSession} {
				out.Header.Set(key, r.Header.Get(key))
			}
			response, err := c.Transport.RoundTrip(out)
			if err != nil {
				if ctx.Err() != nil {
					unsure.Store(true)
				}
				// The other server is gone, and so is the waiting call.
				return
			}
			response.Body.Close()
			switch response.StatusCode {
			case http.StatusAccepted:
				taken()
			case http.StatusServiceUnavailable:
				unsure.Store(true)
			}
		})
	})
	sending.Wait()
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		// One server has taken it.
		return nil
	case err == nil && unsure.Load():
		return errors.New("another server does not answer")
	}
	return err
}

// accept answers requests that other servers forward.
func (s *Server) accept(handler *wire.HTTP) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		principal, ok := forwardedFor(r)
		if !ok {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		handler.ServeForwarded(w, r.WithContext(withPrincipal(s.trace.headerContext(r), principal)),
			principal.Name)
	})
}

// forwardedFor returns the principal for whom another server forwards a request.
func forwardedFor(r *http.Request) (principal policy.Principal, ok bool) {
	who, err := base64.StdEncoding.DecodeString(r.Header.Get(headerPrincipal))
	if err != nil {
		return principal, false
	}
	err = json.Unmarshal(who, &principal)
	return principal, err == nil && principal.Name != ""
}
