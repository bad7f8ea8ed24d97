package wire

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"golang.org/x/time/rate"
)

// guard refuses requests that a web page could make a browser send: requests whose Host is not a name of the
// server (DNS rebinding), and requests with a foreign Origin.
type guard struct {
	hosts    []string // lower case, name or name:port
	origins  []string // lower case
	sameHost bool     // among origins with loopback names, accept only the server's own
	logger   *slog.Logger
	logs     *rate.Limiter // limits the log, because a page can send any number of requests
}

func newGuard(o *HTTPOptions, logger *slog.Logger) (*guard, error) {
	g := &guard{sameHost: o.SameHost, logger: logger, logs: rate.NewLimiter(1, 20)}
	for _, host := range o.Hosts {
		if host == "" || strings.ContainsAny(host, "/@ *") {
			return nil, fmt.Errorf("allowed host %q is not a host name", host)
		}
		g.hosts = append(g.hosts, strings.ToLower(host))
	}
	for _, origin := range o.Origins {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || u.Scheme == "" || !strings.EqualFold(origin, u.Scheme+"://"+u.Host) {
			return nil, fmt.Errorf("allowed origin %q is not of the form scheme://host[:port]", origin)
		}
		g.origins = append(g.origins, strings.ToLower(origin))
	}
	return g, nil
}

// check reports whether it has answered r, with a refusal or as a preflight request.
func (g *guard) check(w http.ResponseWriter, r *http.Request) (done bool) {
	if !g.host(r) {
		g.refused(r, "a request was refused: its Host is not a name of this server", "host", r.Host)
		plainText(w, http.StatusForbidden,
			"Host is not a name of this server; the operator can add it with --allowed-host")
		return true
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return false
	}
	if len(origins) > 1 || !g.origin(origins[0], r.Host) {
		g.refused(r, "a request was refused: its Origin is not allowed", "origin", strings.Join(origins, " "))
		plainText(w, http.StatusForbidden,
			"Origin is not allowed; the operator can add it with --allowed-origin")
		return true
	}
	return cors(w, r, origins[0])
}

// maxLogged is the maximum length in bytes of a logged header.
const maxLogged = 200

// refused logs a refusal with the value of the refused header.
func (g *guard) refused(r *http.Request, what, header, value string) {
	if !g.logs.Allow() {
		return
	}
	g.logger.WarnContext(r.Context(), what,
		slog.String(header, strings.Trim(strconv.QuoteToASCII(value[:min(len(value), maxLogged)]), `"`)),
		slog.String("hint", "if it is yours, start the server with --allowed-"+header))
}

// ambiguous returns the name of a protocol header that r has twice with different values, or "". A proxy in
// front of the server might read the other one.
func ambiguous(r *http.Request) string {
	for _, name := range []string{
		HeaderSession, mcp.HeaderProtocolVersion, mcp.HeaderMethod, mcp.HeaderName,
		"Content-Type", "Content-Encoding",
	} {
		if values := r.Header.Values(name); len(values) > 1 && len(slices.Compact(slices.Clone(values))) > 1 {
			return name
		}
	}
	return ""
}

// host reports whether the Host header is a name of this server. DNS rebinding cannot lead to a Unix socket,
// nor from one IP address to another.
func (g *guard) host(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if _, unix := local.(*net.UnixAddr); unix {
		return true
	}
	name := hostName(r.Host)
	if isLoopback(name) {
		return true
	}
	if slices.Contains(g.hosts, strings.ToLower(r.Host)) || name != "" && slices.Contains(g.hosts, name) {
		return true
	}
	tcp, ok := local.(*net.TCPAddr)
	if !ok {
		return false
	}
	// A client may use the IP address that it connected to.
	said, err := netip.ParseAddr(name)
	return err == nil && said.Unmap() == tcp.AddrPort().Addr().Unmap()
}

// origin reports whether a page of that origin may call. A loopback origin may if the client addresses the
// server by a loopback name.
func (g *guard) origin(origin, host string) bool {
	if slices.Contains(g.origins, strings.ToLower(origin)) {
		return true
	}
	u, err := url.Parse(origin)
	if g.sameHost && (err != nil || !strings.EqualFold(u.Host, host)) {
		return false
	}
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.User == nil &&
		isLoopback(hostName(u.Host)) && isLoopback(hostName(host))
}

// cors lets pages of an accepted origin read answers, and reports whether r was only a preflight request.
func cors(w http.ResponseWriter, r *http.Request, origin string) (done bool) {
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", origin)
	header.Add("Vary", "Origin")
	header.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate, Retry-After")
	if r.Method != http.MethodOptions {
		return false
	}
	header.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	header.Set("Access-Control-Allow-Headers",
		"Authorization, Content-Type, Accept, Last-Event-ID, "+
			"Mcp-Session-Id, Mcp-Protocol-Version, Mcp-Method, Mcp-Name")
	header.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// hostName returns the host of host[:port] in lower case, without the brackets of an IPv6 address; "" if host
// is not valid.
func hostName(host string) string {
	u, err := url.Parse("//" + host)
	// Without brackets, the last part of an IPv6 address would be taken for a port.
	if err != nil || u.Host != host || strings.Contains(u.Hostname(), ":") && host[0] != '[' {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

func isLoopback(name string) bool {
	if name == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Unmap().IsLoopback()
}
