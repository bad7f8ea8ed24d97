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
//   - Only listed names are looked up, and only listed names and ports are connected to. A request that
//     two readers could understand differently is refused, not repaired.
//   - A name is resolved once, and the address that was checked is the address that is dialled: a name
//     server that answers differently later gains nothing.
//   - A name never leads to this machine, its own networks or the services of the cloud it is in:
//     loopback, link-local, private, shared, multicast and reserved addresses, the registered notations
//     of IPv6 that carry an address of version 4, the networks of the machine's interfaces, public ones
//     too, and the known metadata services are refused. An address that is itself listed is reached,
//     whatever it is: an operator who lists 10.0.0.5:443 means it.
//   - Proxies in the server's environment are not used.
//   - Connections, in total and at the same time, their bytes, and the time until a request has arrived
//     are bounded, and nothing outlives Serve.
//   - Every connection is remembered with what was asked for, dialled and carried, or why it was refused.
//
// # Limits
//
// Public addresses that lead inside by other ways are not recognised: through a router to a network that
// the machine is not in, or by a prefix of its own in which a network translates addresses of version 4.
//
// The proxy does not look into what it carries. A command can send what it knows to a listed host, in
// clear text or not, and can ask the same address for another site, by the server name of TLS or the Host
// header of a CONNECT to port 80. A listed host that forwards requests is a way to where it forwards.
// The name server sees the listed names that are asked for, and nothing else.
package egress

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/skillsd/skillsd/sandbox"
)

// Config is what a proxy lets through. Fields other than Allow are for tests and tuning.
type Config struct {
	Allow []Target // nothing else is reached

	AtOnce   int           // connections served at a time; 0 means 64
	Total    int           // connections of a run; 0 means 500
	Bytes    int64         // carried in both directions together; 0 means 1 GiB
	Patience time.Duration // to receive a request's head, and to connect; 0 means 10 s

	// Resolve returns the addresses of a name, and Dial connects to one. Nil means the system's.
	// Resolve must not look at anything but the name; what it returns is checked.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	Dial    func(ctx context.Context, addr netip.AddrPort) (net.Conn, error)
}

// Connection is one connection that came to a proxy.
type Connection struct {
	Host     string // as asked for, in lower case; empty if the request names none
	Port     uint16
	Address  netip.AddrPort // what was dialled; the zero value if nothing was
	Sent     int64          // bytes to the host, a plain request's rewritten head included
	Received int64          // bytes from the host
	Refused  Refusal        // why it was not made; empty if it was
	Ended    Ending         // why it was cut; empty if one of its ends closed it
}

// Refusal is why a connection was not made.
type Refusal string

// The refusals.
const (
	Malformed   Refusal = "malformed"    // the request is not one, or could be read in two ways
	NotListed   Refusal = "not-listed"   // no target is this host and port
	NotPublic   Refusal = "not-public"   // the name leads to addresses that only a listed address reaches
	NotResolved Refusal = "not-resolved" // the name has no address
	NotReached  Refusal = "not-reached"  // nothing answered at the address
	TooSlow     Refusal = "too-slow"     // the request did not arrive in time
	TooMany     Refusal = "too-many"     // at a time
	Spent       Refusal = "spent"        // the run's bytes are used up
)

// Ending is why a connection was cut.
type Ending string

// The endings.
const (
	RunEnded  Ending = "run-ended"
	ByteLimit Ending = "byte-limit"
)

// A Proxy serves one run. Its methods are safe for concurrent use.
type Proxy struct {
	cfg   Config
	slots chan struct{}

	mu       sync.Mutex
	total    int
	unlisted int
	left     int64 // bytes
	conns    []*Connection
}

var _ sandbox.NetworkProxy = (*Proxy)(nil)

// New returns a proxy. Nothing is resolved or connected to before a command asks for it.
func New(cfg Config) *Proxy {
	if cfg.AtOnce <= 0 {
		cfg.AtOnce = 64
	}
	if cfg.Total <= 0 {
		cfg.Total = 500
	}
	if cfg.Bytes <= 0 {
		cfg.Bytes = 1 << 30
	}
	if cfg.Patience <= 0 {
		cfg.Patience = 10 * time.Second
	}
	if cfg.Resolve == nil {
		cfg.Resolve = resolve
	}
	if cfg.Dial == nil {
		cfg.Dial = dial
	}
	return &Proxy{cfg: cfg, slots: make(chan struct{}, cfg.AtOnce), left: cfg.Bytes}
}

// Connections returns what came to the proxy so far, in the order of arrival. Connections beyond
// Config.Total are closed at once and are not among them.
func (p *Proxy) Connections() []Connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Connection, len(p.conns))
	for i, c := range p.conns {
		list[i] = *c
	}
	return list
}

// Unlisted returns the number of connections that were closed because there had been too many.
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

// pause waits a little and reports whether ctx has not ended.
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

// take accounts for n bytes and reports whether they may be carried.
func (p *Proxy) take(counter *int64, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if int64(n) > p.left {
		p.left = 0 // else smaller pieces would still be carried, and a stream have holes
		return false
	}
	p.left -= int64(n)
	*counter += int64(n)
	return true
}
