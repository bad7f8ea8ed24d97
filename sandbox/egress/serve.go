package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/skillsd/skillsd/skills/address"
)

// maxTries is how many addresses of a name are tried.
const maxTries = 4

// answers are the status and the text for a refused client. Many clients show only the status of a refused
// tunnel.
var answers = map[Refusal][2]string{
	Malformed: {"400 Bad Request",
		"the proxy serves CONNECT HOST:PORT, and http requests with a full URL and a plain length"},
	NotListed: {"403 Host Not Granted",
		"this host and port is not granted to the script; the user can add it to the entry's network"},
	NotPublic: {"403 Address Not Public",
		"the name does not lead to a public address; the user can list the address itself"},
	NotResolved: {"502 Name Not Resolved", "the name has no address"},
	NotReached:  {"502 Nothing Answers", "nothing answers at the address"},
	TooSlow:     {"408 Request Timeout", "the request did not arrive in time"},
	TooMany:     {"503 Too Many Connections", "too many connections at once"},
	Spent:       {"403 Byte Limit Reached", "the run has carried all the bytes it may"},
}

// serve handles one connection from start to end.
func (p *Proxy) serve(ctx context.Context, client net.Conn, record *Connection) {
	defer client.Close()
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()
	// A connection that waits would occupy one of the command's sockets without an answer; the command can
	// retry a refused one.
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	default:
		p.refuse(client, record, TooMany)
		return
	}
	_ = client.SetReadDeadline(time.Now().Add(p.cfg.Patience))
	head, rest, err := readHead(client)
	if err != nil {
		why := Malformed
		if errors.Is(err, os.ErrDeadlineExceeded) {
			why = TooSlow
		}
		p.refuse(client, record, why)
		return
	}
	// A tunnel may be silent for long, for example while it waits for events.
	_ = client.SetReadDeadline(time.Time{})
	req, err := parseRequest(head)
	if err != nil {
		p.refuse(client, record, Malformed)
		return
	}
	p.note(func() { record.Host, record.Port = req.target.host, req.target.port })
	server, refusal := p.connect(ctx, req.target, record)
	if refusal != "" {
		p.refuse(client, record, refusal)
		return
	}
	defer server.Close()
	// When the run ends, closing both ends stops the copying, because neither read has a deadline.
	stopServer := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopServer()
	p.relay(client, server, req, rest, record)
	if ctx.Err() != nil {
		p.note(func() { record.Ended = cmp.Or(record.Ended, RunEnded) })
	}
}

// refuse answers a client that is not connected, and records the reason.
func (p *Proxy) refuse(client net.Conn, record *Connection, why Refusal) {
	p.note(func() { record.Refused = why })
	// A client that does not read must not keep its slot.
	_ = client.SetWriteDeadline(time.Now().Add(time.Second))
	a := answers[why]
	const form = "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n" +
		"Connection: close\r\n\r\n%s\n"
	_, _ = fmt.Fprintf(client, form, a[0], len(a[1])+1, a[1])
}

// connect checks a target, resolves it once and dials a checked address.
func (p *Proxy) connect(ctx context.Context, t Target, record *Connection) (net.Conn, Refusal) {
	if !slices.Contains(p.cfg.Allow, t) {
		return nil, NotListed
	}
	p.mu.Lock()
	spent := p.left <= 0
	p.mu.Unlock()
	if spent {
		return nil, Spent
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Patience)
	defer cancel()
	addrs, refusal := p.addresses(ctx, t)
	if refusal != "" {
		return nil, refusal
	}
	for _, addr := range addrs[:min(len(addrs), maxTries)] {
		to := netip.AddrPortFrom(addr, t.port)
		p.note(func() { record.Address = to })
		if server, err := p.cfg.Dial(ctx, to); err == nil {
			return server, ""
		}
	}
	return nil, NotReached
}

// addresses returns the addresses to dial for a target: the target itself if it is an address, otherwise the
// public addresses of its name, or all if it is trusted.
func (p *Proxy) addresses(ctx context.Context, t Target) ([]netip.Addr, Refusal) {
	if t.addr.IsValid() {
		return []netip.Addr{t.addr}, ""
	}
	isTrusted, find := slices.Contains(p.cfg.Trusted, t), p.cfg.Resolve
	if isTrusted {
		find = p.resolveTrusted
	}
	found, err := find(ctx, t.host)
	if err != nil || len(found) == 0 {
		return nil, NotResolved
	}
	// Interfaces come and go, so they are queried each time. If that fails, no address is considered public.
	own, err := address.OwnNetworks()
	if err != nil {
		return nil, NotPublic
	}
	var may []netip.Addr
	for _, addr := range found {
		// Resolvers return IPv4 addresses in either notation.
		addr = addr.Unmap()
		if isTrusted || address.Public(addr, own) {
			may = append(may, addr)
		}
	}
	if len(may) == 0 {
		return nil, NotPublic
	}
	return may, ""
}

// relay copies bytes until both ends are done or one fails. rest is the client's data after the head of its
// request.
func (p *Proxy) relay(client, server net.Conn, req request, rest []byte, record *Connection) {
	from := io.Reader(client)
	if req.tunnel {
		if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
			return
		}
	} else {
		// Bytes beyond the body would be a second, unchecked request.
		rest = rest[:min(int64(len(rest)), req.body)]
		from = io.LimitReader(client, req.body-int64(len(rest)))
		rest = append(req.head, rest...)
	}
	var copying sync.WaitGroup
	abort := func() {
		// Closing both also ends the other direction, whose read has no deadline.
		_ = client.Close()
		_ = server.Close()
	}
	copying.Go(func() {
		if !p.carry(server, rest, from, &record.Sent, record) {
			abort()
		} else if req.tunnel {
			closeWrite(server)
		}
	})
	copying.Go(func() {
		// A plain request has one answer. The connection ends with it, because it could otherwise carry
		// another request.
		if !p.carry(client, nil, server, &record.Received, record) || !req.tunnel {
			abort()
		} else {
			closeWrite(client)
		}
	})
	copying.Wait()
}

// carry writes first and then all of from to to, and reports whether it reached the end of from.
func (p *Proxy) carry(to io.Writer, first []byte, from io.Reader, counter *int64, record *Connection) bool {
	buf := make([]byte, 32<<10)
	part := first
	for {
		if len(part) > 0 {
			if !p.take(counter, len(part)) {
				p.note(func() { record.Ended = ByteLimit })
				return false
			}
			if _, err := to.Write(part); err != nil {
				return false
			}
		}
		n, err := from.Read(buf)
		part = buf[:n]
		// A reader may return its last bytes together with the end.
		if n == 0 && err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// closeWrite closes c for writing but not for reading, if it can.
func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	_ = c.Close()
}

// resolve looks up exactly this name: the final dot prevents the use of search domains.
func resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name+".")
}

// resolveAsHere looks up a name as other programs of this machine do: a name without dots may need a search
// domain, or be in the file of hosts.
func resolveAsHere(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}

func dial(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr.String())
}
