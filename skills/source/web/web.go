// Package web fetches files from hosts that strangers run, for programs that trust neither the host nor the
// addresses that it names.
//
// A fetch is bounded: in bytes, in redirects, in time without a byte. It uses https, verified against the
// certificates of the system; http only to this machine, or if the caller trusts the network. A host other
// than the one that the user named, to which a redirect or an index leads, must be public: none of its names
// and addresses may lead into a private network, to this machine or to a metadata service
// ([address.Public]). The host of the user may be in a private network, since only the holder of its
// certificate can answer for it, but never at a link-local address. Cookies are not kept. A token is sent
// only to its host.
//
// The package does not look at the content of files, and keeps nothing.
package web

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/skillsd/skillsd/skills/address"
)

// Limits of a fetch.
const (
	maxRedirects = 5
	maxHeader    = 1 << 20
	maxQuiet     = time.Minute
	maxTime      = time.Hour
	maxURL       = 2048
)

// Client fetches files for one source. Its fields are set before the first call; Home is required.
type Client struct {
	Home *url.URL // the URL that the user named; other hosts must be public
	// Insecure accepts http for hosts other than this machine.
	Insecure bool
	// Token, if not empty, is sent to the host of Home as a bearer token.
	Token string
	// Proxy returns the proxy for a request, or nil; it may be nil. A proxy decides itself to which
	// addresses it connects.
	Proxy func(*url.URL) (*url.URL, error)
	// Transport makes the requests, in tests; it may be nil.
	Transport *http.Transport

	quiet time.Duration // 0: maxQuiet
}

// StatusError is an answer other than 200.
type StatusError struct {
	URL    string
	Status int
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s answered %d %s", e.URL, e.Status, http.StatusText(e.Status))
	if e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden {
		text += "; a private source needs a token"
	}
	return text
}

// Parse parses the URL of a file: https, or http of this machine or with insecure, without credentials,
// query and fragment.
func Parse(text string, insecure bool) (*url.URL, error) {
	at, err := url.Parse(text)
	if err != nil || len(text) > maxURL {
		return nil, errors.New("is not a URL")
	}
	return at, check(at, insecure)
}

// check returns why a URL is refused, or nil.
func check(at *url.URL, insecure bool) error {
	switch {
	case at.Host == "" || at.Opaque != "":
		return errors.New("names no host")
	case at.User != nil:
		return errors.New("holds credentials")
	// A query may hold a secret, which the lock file would keep.
	case at.RawQuery != "" || at.ForceQuery || at.Fragment != "":
		return errors.New("has a query or a fragment")
	case at.Scheme != "https" && at.Scheme != "http":
		return fmt.Errorf("has the protocol %.20q; only https is used", at.Scheme)
	case !insecure && !IsProtected(at):
		return errors.New("is of plain http, which anyone on the network can change")
	}
	return nil
}

// IsProtected reports whether no one on the network can read or change what is exchanged with the server of a
// URL: the scheme is https, or the server is on this machine.
func IsProtected(at *url.URL) bool { return at.Scheme == "https" || address.IsHere(at.Hostname()) }

// sameHost reports whether two URLs have the same scheme, host and port.
func sameHost(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// File describes a fetched file.
type File struct {
	Digest string // sha256:HEX of all bytes
	Size   int64
	Type   string // the media type that the server sent, without parameters; may be empty
}

// HTTP returns a client whose requests follow the rules of the package, for protocols with several requests.
// Answers are not limited in length: the caller bounds its reads, and closes the idle connections.
func (c *Client) HTTP() *http.Client {
	redirect := func(req *http.Request, via []*http.Request) error { return c.redirect(req, len(via)) }
	return &http.Client{Transport: c.transport(), CheckRedirect: redirect}
}

// Fetch writes the file at a URL to w, at most limit bytes. If it fails, the bytes that it wrote are not the
// file.
//
// Errors: *StatusError; errors of ctx, of w and of the network.
func (c *Client) Fetch(ctx context.Context, at *url.URL, limit int64, w io.Writer) (*File, error) {
	if err := c.follow(at); err != nil {
		return nil, fmt.Errorf("%s %w", Shown(at), err)
	}
	client := c.HTTP()
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	// The digest is of the file, so no server may compress it on the way.
	req.Header.Set("Accept-Encoding", "identity")
	answer, err := client.Do(req)
	if err != nil {
		return nil, plain(at, err)
	}
	defer answer.Body.Close()
	final := Shown(answer.Request.URL)
	switch encoding := answer.Header.Get("Content-Encoding"); {
	case answer.StatusCode != http.StatusOK:
		return nil, &StatusError{final, answer.StatusCode}
	case encoding != "" && encoding != "identity":
		return nil, fmt.Errorf("%s answered with the encoding %.20q", final, encoding)
	case answer.ContentLength > limit:
		return nil, fmt.Errorf("%s has more than %d bytes", final, limit)
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(answer.Body, limit+1))
	switch {
	case err != nil:
		return nil, plain(at, err)
	case n > limit:
		return nil, fmt.Errorf("%s has more than %d bytes", final, limit)
	}
	kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";")
	return &File{fmt.Sprintf("sha256:%x", sum.Sum(nil)), n, strings.ToLower(strings.TrimSpace(kind))}, nil
}

// authorize sends the token, or the authorization of a caller of HTTP, to the host that it is for and to no
// other.
func (c *Client) authorize(req *http.Request) {
	switch {
	case !sameHost(c.Home, req.URL):
		req.Header.Del("Authorization")
	case c.Token != "":
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
}

// follow returns why a URL in an answer or an index is refused, or nil. Unlike the URL of a source, it may
// have a query.
func (c *Client) follow(at *url.URL) error {
	to := *at
	to.RawQuery, to.Fragment, to.ForceQuery = "", "", false
	if err := check(&to, c.Insecure); err != nil {
		return err
	}
	// A redirect must not remove the protection that the user chose, even with --insecure or to this machine.
	if to.Scheme == "http" && c.Home.Scheme == "https" {
		return errors.New("is of plain http")
	}
	return nil
}

// redirect admits at most maxRedirects redirects, each to a URL that follows the rules.
func (c *Client) redirect(req *http.Request, done int) error {
	if done > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	if err := c.follow(req.URL); err != nil {
		return fmt.Errorf("redirected to %s, which %w", Shown(req.URL), err)
	}
	// The header would give the next host a URL that may hold a secret of the first.
	req.Header.Del("Referer")
	c.authorize(req)
	return nil
}

// transport makes the requests of one source. It dials only addresses that the rules of the package allow.
type transport struct {
	client               *Client
	home, other, proxied *http.Transport
}

func (c *Client) transport() *transport {
	t := &http.Transport{}
	if c.Transport != nil {
		t = c.Transport.Clone()
	}
	t.MaxResponseHeaderBytes, t.DisableCompression, t.Proxy = maxHeader, true, nil
	t.TLSHandshakeTimeout, t.ForceAttemptHTTP2 = 30*time.Second, true
	t.MaxIdleConnsPerHost, t.IdleConnTimeout = 8, 30*time.Second
	direct := func(home bool) *http.Transport {
		own := t.Clone()
		// The address is checked when it is dialled: a name may resolve to another one a moment later.
		dialer := &net.Dialer{Timeout: 30 * time.Second,
			Control: func(_, to string, _ syscall.RawConn) error {
				at, err := netip.ParseAddrPort(to)
				if err != nil {
					return err
				}
				return allowed(at.Addr(), home)
			}}
		own.DialContext = dialer.DialContext
		return own
	}
	proxied := t.Clone()
	if c.Proxy != nil {
		proxied.Proxy = func(req *http.Request) (*url.URL, error) { return c.Proxy(req.URL) }
	}
	return &transport{c, direct(true), direct(false), proxied}
}

// CloseIdleConnections makes http.Client.CloseIdleConnections work.
func (t *transport) CloseIdleConnections() {
	for _, one := range []*http.Transport{t.home, t.other, t.proxied} {
		one.CloseIdleConnections()
	}
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := t.client
	if err := c.follow(req.URL); err != nil {
		return nil, fmt.Errorf("%s %w", Shown(req.URL), err)
	}
	home := sameHost(c.Home, req.URL)
	// A proxy would dial the address itself, past the check of this program's dialer.
	if addr, err := netip.ParseAddr(req.URL.Hostname()); err == nil && !home {
		if err := allowed(addr, false); err != nil {
			return nil, err
		}
	}
	to := t.other
	if home {
		to = t.home
	}
	if c.Proxy != nil {
		if proxy, err := c.Proxy(req.URL); err != nil {
			return nil, err
		} else if proxy != nil {
			to = t.proxied
		}
	}
	return c.watch(to, req)
}

// watch makes a request that ends when no byte was sent or received for a while, or after maxTime.
func (c *Client) watch(to *http.Transport, req *http.Request) (*http.Response, error) {
	// A server that sends a byte a minute never is quiet.
	within, end := context.WithTimeout(req.Context(), maxTime)
	ctx, cancel := context.WithCancelCause(within)
	quiet := cmp.Or(c.quiet, maxQuiet)
	timer := time.AfterFunc(quiet, func() { cancel(fmt.Errorf("nothing came for %s", quiet)) })
	moved := func(body io.ReadCloser, done func()) io.ReadCloser {
		return &watched{body, func() { timer.Reset(quiet) }, done, func() error { return context.Cause(ctx) }}
	}
	stop := func() {
		timer.Stop()
		cancel(nil)
		end()
	}
	req = req.Clone(ctx)
	req.Header.Set("User-Agent", "skillsd")
	if c.Token != "" {
		c.authorize(req)
	}
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = moved(req.Body, func() {})
	}
	answer, err := to.RoundTrip(req)
	if err != nil {
		err = cmp.Or(context.Cause(ctx), err)
		stop()
		return nil, err
	}
	answer.Body = moved(answer.Body, stop)
	return answer, nil
}

// watched is a body that calls moved whenever bytes of it were read.
type watched struct {
	io.ReadCloser
	moved, done func()
	cause       func() error
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if n > 0 {
		w.moved()
	}
	if err != nil && err != io.EOF {
		err = cmp.Or(w.cause(), err)
	}
	return n, err
}

func (w *watched) Close() error {
	defer w.done()
	return w.ReadCloser.Close()
}

// allowed returns why an address is not dialled, or nil. home reports that it belongs to the host that the
// user named.
func allowed(addr netip.Addr, home bool) error {
	addr = addr.Unmap()
	if home {
		// Metadata services of clouds are at link-local addresses and hand out credentials.
		if addr.IsLinkLocalUnicast() || addr.IsMulticast() || addr.IsUnspecified() {
			return fmt.Errorf("%s is a link-local address, where no source is", addr)
		}
		return nil
	}
	own, err := address.OwnNetworks()
	if err != nil {
		return err
	}
	if !address.Public(addr, own) {
		return fmt.Errorf("%s is not a public address, and the host is not the one that was named", addr)
	}
	return nil
}

// plain removes the query of the URL, which may be a secret of the server, from an error.
func plain(at *url.URL, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	return fmt.Errorf("%s: %w", Shown(at), err)
}

// Shown returns a URL for messages: without its query and its user, which may be secrets of the server.
func Shown(at *url.URL) string {
	plain := url.URL{Scheme: at.Scheme, Host: at.Host, Path: at.Path, RawPath: at.RawPath}
	return plain.String()
}
