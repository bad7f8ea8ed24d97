// Package egress is the one way out of a sandbox that was granted a network: an HTTP proxy that
// serves CONNECT and plain http requests to the exact hosts and ports that an operator listed.
//
//	target, err := egress.ParseTarget("api.example.com")
//	proxy := egress.New(egress.Config{Allow: []egress.Target{target}})
//	result, err := runner.Run(ctx, &sandbox.Cmd{
//		Network: sandbox.Network{Proxy: proxy}, Env: egress.Environ(target),
//	})
//	for _, c := range proxy.Connections() { ... }
//
// # Guarantees
//
//   - Only listed names are looked up, and connections are made only to listed names and ports. A request
//     that two parsers could understand differently is refused, not repaired.
//   - A name is resolved once, and the checked address is the one dialled, so a name server gains nothing by
//     answering differently later.
//   - A name never leads to this machine, its networks or its cloud's services. Refused are loopback,
//     link-local, private, shared, multicast and reserved addresses, the registered IPv6 notations that
//     contain an IPv4 address, the networks of the machine's interfaces, including public ones, and the known
//     metadata services. A listed address is reached even if it is one of these: an operator who lists
//     10.0.0.5:443 means it. So is a name that the program trusts ([Config].Trusted).
//   - Proxies in the server's environment are not used.
//   - Connections, in total and concurrently, their bytes, and the time until a request has arrived are
//     limited, and everything ends with Serve.
//   - Every connection is recorded, with the requested host, the dialled address and the number of bytes, or
//     the reason why it was refused.
//
// # Limits
//
// Public addresses that lead into internal networks by other ways are not recognized: through a router to a
// network that the machine is not in, or by a network's own prefix for translating IPv4 addresses.
//
// The proxy does not inspect data. A command can send anything it has to a listed host, in clear text or not,
// and can request another site at the same address, by the TLS server name or the Host header of a CONNECT to
// port 80. A listed host that forwards requests is a way to all hosts to which it forwards. The name server
// sees the listed names that are requested, and nothing else.
package egress

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/skillsd/skillsd/sandbox"
)

// Config configures a proxy. Fields other than Allow and Trusted are for tests and tuning.
type Config struct {
	Allow []Target // the only hosts and ports that are reached
	// Trusted are targets of Allow whose names may lead to any address: an operator who configures such a
	// host for its own purpose can find out where it is.
	Trusted []Target

	AtOnce   int           // concurrent connections; 0 means 64
	Total    int           // connections in a run; 0 means 500
	Bytes    int64         // in both directions together; 0 means 1 GiB
	Patience time.Duration // limit for receiving a request's head, and for connecting; 0 means 10 s

	// Resolve returns the addresses of a name, and Dial connects to one. Nil means the system's. Resolve must
	// use only the name; its result is checked.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	Dial    func(ctx context.Context, addr netip.AddrPort) (net.Conn, error)
}

// Connection is one connection to a proxy.
type Connection struct {
	Host     string // as requested, in lower case; empty if the request has no host
	Port     uint16
	Address  netip.AddrPort // address that was dialled; the zero value if none was
	Sent     int64          // bytes to the host, including a plain request's rewritten head
	Received int64          // bytes from the host
	Refused  Refusal        // why it was not made; empty if it was
	Ended    Ending         // why it was cut; empty if one of its ends closed it
}

// Refusal is the reason why a connection was not made.
type Refusal string

// The refusals.
const (
	Malformed   Refusal = "malformed"    // the request is invalid, or could be parsed in two ways
	NotListed   Refusal = "not-listed"   // no target has this host and port
	NotPublic   Refusal = "not-public"   // the name has only addresses that must be listed to be reached
	NotResolved Refusal = "not-resolved" // the name has no address
	NotReached  Refusal = "not-reached"  // nothing answered at the address
	TooSlow     Refusal = "too-slow"     // the request did not arrive in time
	TooMany     Refusal = "too-many"     // too many concurrent connections
	Spent       Refusal = "spent"        // the run has used all its bytes
)

// Ending is the reason why a connection was cut.
type Ending string

// The endings.
const (
	RunEnded  Ending = "run-ended"
	ByteLimit Ending = "byte-limit"
)

// A Proxy serves one run. Its methods are safe for concurrent use.
type Proxy struct {
	cfg            Config
	resolveTrusted func(ctx context.Context, name string) ([]netip.Addr, error)
	slots          chan struct{}

	mu       sync.Mutex
	total    int
	unlisted int
	left     int64 // bytes
	conns    []*Connection
}

var _ sandbox.NetworkProxy = (*Proxy)(nil)

// New returns a proxy. It resolves names and connects only for requests of a command.
func New(cfg Config) *Proxy {
	cfg.AtOnce = cmp.Or(max(cfg.AtOnce, 0), 64)
	cfg.Total = cmp.Or(max(cfg.Total, 0), 500)
	cfg.Bytes = cmp.Or(max(cfg.Bytes, 0), 1<<30)
	cfg.Patience = cmp.Or(max(cfg.Patience, 0), 10*time.Second)
	resolveTrusted := cfg.Resolve
	if cfg.Resolve == nil {
		cfg.Resolve, resolveTrusted = resolve, resolveAsHere
	}
	if cfg.Dial == nil {
		cfg.Dial = dial
	}
	return &Proxy{cfg: cfg, resolveTrusted: resolveTrusted, slots: make(chan struct{}, cfg.AtOnce),
		left: cfg.Bytes}
}

// Connections returns the connections so far, in the order of arrival. Connections beyond Config.Total are
// closed at once and are not included.
func (p *Proxy) Connections() []Connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Connection, len(p.conns))
	for i, c := range p.conns {
		list[i] = *c
	}
	return list
}

// Unlisted returns the number of connections that were closed because they exceeded Config.Total.
func (p *Proxy) Unlisted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unlisted
}

// Serve implements [sandbox.NetworkProxy].
func (p *Proxy) Serve(ctx context.Context, l net.Listener) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer func() {
		stop()
		_ = l.Close()
	}()
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return
		case err != nil:
			// The process may be out of descriptors for a moment.
			if !pause(ctx) {
				return
			}
			continue
		}
		if record := p.admit(); record == nil {
			_ = conn.Close()
		} else {
			serving.Go(func() { p.serve(ctx, conn, record) })
		}
	}
}

// pause waits briefly and reports whether ctx is still active.
func pause(ctx context.Context) bool {
	t := time.NewTimer(50 * time.Millisecond)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// admit returns the record of a connection, or nil if there have been too many.
func (p *Proxy) admit() *Connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total >= p.cfg.Total {
		p.unlisted++
		return nil
	}
	p.total++
	c := &Connection{}
	p.conns = append(p.conns, c)
	return c
}

// note changes a record.
func (p *Proxy) note(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// take adds n bytes to counter and reports whether they may be carried.
func (p *Proxy) take(counter *int64, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if int64(n) > p.left {
		// Otherwise smaller pieces could follow, and the stream would have holes.
		p.left = 0
		return false
	}
	p.left -= int64(n)
	*counter += int64(n)
	return true
}
