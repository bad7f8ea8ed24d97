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
	"github.com/skillsd/skillsd/mcpserver/session/elsewhere"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/skills/policy"
)

// anonymous is who speaks over HTTP when nobody is asked who they are.
var anonymous = policy.Principal{Name: "anonymous"}

// clientClaude is the name of Claude Code. Two of its conversations send the same on 2026-07-28, so that no
// script could run that its model has loaded; when it is refused that revision, it opens a session at once.
const clientClaude = "claude-code"

// endIdleEvery is how often sessions are looked through for ones that nobody uses.
const endIdleEvery = time.Minute

// sharedInFlight is how many requests of all principals together may run, of one of them half as many.
const sharedInFlight = 512

// HTTPOptions adjust ServeHTTP. The zero value of every field is its default.
type HTTPOptions struct {
	Path    string   // of the endpoint; "" means /mcp
	Hosts   []string // accepted in the Host header in addition to loopback names and the server's address
	Origins []string // accepted in the Origin header in addition to loopback origins
	Auth    *httpauth.Authenticator
	// OnlyHandles says that a call without a session is known by its handle alone. Without it, what their
	// principal loaded counts while it has one conversation, and clients whose requests of 2026-07-28 name
	// no session are not offered that revision.
	OnlyHandles bool
	// Cluster are other servers of the same sessions, with the same SessionKey; nil for none. With it, a call
	// that names no session is known by its handle alone.
	Cluster *Cluster
	// SessionKey marks the ids of protocol sessions, so that they outlive the process; may be nil.
	SessionKey []byte
	Rate       float64 // requests a second of each principal; 0 sets no limit
	Burst      int     // requests at once
	// MaxStrangers is how many connections may be open on which nobody has authenticated; 0 means 1,024.
	MaxStrangers int
	// MaxConnections is how many connections may be open; 0 means 65,536.
	MaxConnections int
	Memory         int64 // bytes that the process may take; 0 means any
}

// Check reports a host or origin of the wrong form.
func (o HTTPOptions) Check() error {
	return (&wire.HTTPOptions{Hosts: o.Hosts, Origins: o.Origins}).Check()
}

// ServeHTTP serves many clients on listener until ctx is done; it closes listener. Without Auth every
// client is the one principal "anonymous". Running scripts are killed at the end, other calls get two
// seconds to finish.
func (s *Server) ServeHTTP(ctx context.Context, listener net.Listener, o HTTPOptions) error {
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
	s.guesses.Store(!o.OnlyHandles && o.Cluster == nil)
	if !o.OnlyHandles {
		opts.OnlySessions = func(client mcp.Implementation) bool { return client.Name == clientClaude }
	}
	if o.Auth != nil {
		// One principal may have as many calls under way as without others.
		opts.Public, opts.Shared, opts.MaxInFlight = o.Auth, true, sharedInFlight
		opts.Authenticate = func(w http.ResponseWriter, r *http.Request) (context.Context, string, bool) {
			principal, ok := o.Auth.Authenticate(w, r)
			return withPrincipal(s.trace.headerContext(r), principal), principal.Name, ok
		}
	}
	handler, err := wire.NewHTTP(s.wire, opts)
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
	go func() {
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
	}()
	return handler.Serve(ctx, listener)
}

// isReady reports whether the first scan is published.
func (s *Server) isReady() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

type principalKey struct{}

func withPrincipal(ctx context.Context, p policy.Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// principalOf returns who sent a request, and whether it came over HTTP.
func principalOf(ctx context.Context) (p policy.Principal, remote bool) {
	p, remote = ctx.Value(principalKey{}).(policy.Principal)
	if remote {
		return p, true
	}
	return localPrincipal, false
}

// Cluster are the other servers that serve the same sessions. A request whose session one of them has is
// passed on to it, with what is known of who sent it.
type Cluster struct {
	// Transport reaches the others, and nobody else. A request's host is the address of a server.
	Transport http.RoundTripper
	// Others calls found with the address of each other server that says that it is there, until ctx ends.
	// Its error says that they could not be asked.
	Others func(ctx context.Context, found func(address string)) error
	// Ready reports whether new sessions are begun here.
	Ready func() bool
	// Accept is called once with the handler of requests that the others pass on. Nobody else may reach it.
	Accept func(handler http.Handler)
}

// headerPrincipal has the principal of a request that is passed on.
const headerPrincipal = "Skillsd-Principal"

// sessionOf returns the session of a call. If another server has it, the request is passed on.
func (s *Server) sessionOf(ctx context.Context, call session.Call) (*session.Session, error) {
	ses, err := s.cfg.Sessions.Open(ctx, call)
	passOn(ctx, err)
	return ses, err
}

// passOn passes the request on if err says that its session is elsewhere.
func passOn(ctx context.Context, err error) {
	if at, ok := errors.AsType[*elsewhere.MovedError](err); ok {
		wire.Forward(ctx, at.Address)
	}
}

// forward passes a request on; see wire.HTTPOptions.Forward. Answers that are cut off are logged to cut.
func (c *Cluster) forward(
	w http.ResponseWriter, r *http.Request, body []byte, address string, cut *log.Logger,
) error {
	who, err := whoSent(r)
	if err != nil {
		return err
	}
	out := r.Clone(r.Context())
	// A server that ends may refuse what was sent before it said so: that is sent again, and not to it.
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
			case http.StatusNoContent: // its client has cancelled it
				response.StatusCode = http.StatusAccepted
			case http.StatusAccepted: // a request has an answer, unless the other server ends
				return errors.New("the other server has ended the request without an answer")
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			// Whom nothing was sent to has done nothing.
			if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
				err = wire.ErrMisdirected
			}
			failed = err
		},
	}).ServeHTTP(w, out)
	return failed
}

// whoSent returns what headerPrincipal says of a request.
func whoSent(r *http.Request) (string, error) {
	principal, _ := principalOf(r.Context())
	who, err := json.Marshal(principal)
	return base64.StdEncoding.EncodeToString(who), err
}

// spreadWithin is how long the others are asked; one that hangs for longer has lost its sessions.
const spreadWithin = 2 * time.Second

// spread gives a request to all others until one takes it; see wire.HTTPOptions.Spread.
func (c *Cluster) spread(r *http.Request, body []byte) error {
	who, err := whoSent(r)
	if err != nil {
		return err
	}
	// A client that does not wait has sent it all the same.
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
				return // it is gone, and what it waited for
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
		return nil // one has taken it
	case err == nil && unsure.Load():
		return errors.New("another server does not answer")
	}
	return err
}

// accept answers requests that other servers pass on.
func (s *Server) accept(handler *wire.HTTP) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var principal policy.Principal
		who, err := base64.StdEncoding.DecodeString(r.Header.Get(headerPrincipal))
		if err == nil {
			err = json.Unmarshal(who, &principal)
		}
		if err != nil || principal.Name == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		handler.ServeForwarded(w, r.WithContext(withPrincipal(s.trace.headerContext(r), principal)),
			principal.Name)
	})
}
