// Package web fetches files of hosts that other people run, for programs that trust neither the host nor
// what it names.
//
// A fetch is bounded: in bytes, in redirects, in time without a byte. It goes over https, verified against
// the certificates of the system; over http only to this machine, or if the caller trusts the network. A
// host other than the one that the user named, to which a redirect or an index leads, must be public: no
// name and no number of it may lead into a private network, to this machine or to a metadata service
// ([address.Public]). The host of the user may be in a private network, since only who has its certificate
// can answer for it, but never at a link-local address. Cookies are not kept. A token goes to its host
// alone.
//
// The package does not look at what it fetches, and keeps nothing.
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

	"github.com/skillsd/skillsd/sandbox/egress/address"
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
	Home *url.URL // what the user named; other hosts must be public
	// Insecure accepts http for hosts other than this machine.
	Insecure bool
	// Token is sent to the host of Home as a bearer token; empty for none.
	Token string
	// Proxy returns the proxy for a request, nil for none; may be nil. Who it connects to is up to a proxy.
	Proxy func(*url.URL) (*url.URL, error)
	// Transport is what requests are made with, in tests; may be nil.
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

// Parse reads the URL of a file: https, or http of this machine or with insecure, without credentials, query
// and fragment.
func Parse(text string, insecure bool) (*url.URL, error) {
	at, err := url.Parse(text)
	if err != nil || len(text) > maxURL {
		return nil, errors.New("is not a URL")
	}
	return at, Check(at, insecure)
}

// Check returns why nothing is fetched from a URL.
func Check(at *url.URL, insecure bool) error {
	switch {
	case at.Host == "" || at.Opaque != "":
		return errors.New("names no host")
	case at.User != nil:
		return errors.New("holds credentials")
	case at.RawQuery != "" || at.ForceQuery || at.Fragment != "":
		return errors.New("has a query or a fragment")
	case at.Scheme != "https" && at.Scheme != "http":
		return fmt.Errorf("has the protocol %.20q; only https is used", at.Scheme)
	case at.Scheme == "http" && !insecure && !isHere(at.Hostname()):
		return errors.New("is of plain http, which anyone on the network can change")
	}
	return nil
}

func isHere(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// SameHost reports whether two URLs are of one server.
func SameHost(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// File is what a fetch brought.
type File struct {
	Digest string // sha256:HEX of all bytes
	Size   int64
	Type   string // its media type as the server says, without parameters; may be empty
}

// Fetch writes the file at a URL to w, at most limit bytes. What was written when it fails is not the file.
//
// Errors: *StatusError; errors of ctx, of w and of the network.
func (c *Client) Fetch(ctx context.Context, at *url.URL, limit int64, w io.Writer) (*File, error) {
	if err := c.follow(at); err != nil {
		return nil, fmt.Errorf("%s %w", shown(at), err)
	}
	ctx, end := context.WithTimeout(ctx, maxTime)
	defer end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := cmp.Or(c.quiet, maxQuiet)
	timer := time.AfterFunc(quiet, func() { cancel(fmt.Errorf("nothing came for %s", quiet)) })
	defer timer.Stop()
	client := &http.Client{Transport: c.transport()}
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		return c.redirect(req, len(via))
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "skillsd")
	// What is fetched has a digest of its bytes, so no server may pack them on the way.
	req.Header.Set("Accept-Encoding", "identity")
	c.authorize(req)
	answer, err := client.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, plain(at, err)
	}
	defer answer.Body.Close()
	final := shown(answer.Request.URL)
	switch encoding := answer.Header.Get("Content-Encoding"); {
	case answer.StatusCode != http.StatusOK:
		return nil, &StatusError{final, answer.StatusCode}
	case encoding != "" && encoding != "identity":
		return nil, fmt.Errorf("%s answered with the encoding %.20q", final, encoding)
	case answer.ContentLength > limit:
		return nil, fmt.Errorf("%s has more than %d bytes", final, limit)
	}
	sum := sha256.New()
	moved := readFunc(func(p []byte) (int, error) {
		n, err := answer.Body.Read(p)
		timer.Reset(quiet)
		return n, err
	})
	n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(moved, limit+1))
	switch cause := context.Cause(ctx); {
	case err != nil && cause != nil:
		return nil, plain(at, cause)
	case err != nil:
		return nil, plain(at, err)
	case n > limit:
		return nil, fmt.Errorf("%s has more than %d bytes", final, limit)
	}
	kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";")
	return &File{fmt.Sprintf("sha256:%x", sum.Sum(nil)), n, strings.ToLower(strings.TrimSpace(kind))}, nil
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// authorize sends the token to the host that it is for, and to no other.
func (c *Client) authorize(req *http.Request) {
	req.Header.Del("Authorization")
	if c.Token != "" && SameHost(c.Home, req.URL) {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
}

// follow returns why a place that a server or an index names is not used. Unlike that of a source, its URL
// may have a query.
func (c *Client) follow(at *url.URL) error {
	to := *at
	to.RawQuery, to.Fragment, to.ForceQuery = "", "", false
	err := Check(&to, c.Insecure)
	if err == nil && to.Scheme == "http" && c.Home.Scheme == "https" {
		err = errors.New("is of plain http")
	}
	return err
}

// redirect allows a few redirects.
func (c *Client) redirect(req *http.Request, done int) error {
	if done > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	if err := c.follow(req.URL); err != nil {
		return fmt.Errorf("redirected to %s, which %w", shown(req.URL), err)
	}
	req.Header.Del("Referer")
	c.authorize(req)
	return nil
}

// transport returns a transport that dials only whom the rules of the package allow.
func (c *Client) transport() http.RoundTripper {
	t := &http.Transport{}
	if c.Transport != nil {
		t = c.Transport.Clone()
	}
	t.MaxResponseHeaderBytes, t.DisableCompression = maxHeader, true
	t.TLSHandshakeTimeout, t.ForceAttemptHTTP2 = 30*time.Second, true
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		var proxy *url.URL
		var err error
		if c.Proxy != nil {
			proxy, err = c.Proxy(req.URL)
		}
		if err != nil {
			return nil, err
		}
		home := SameHost(c.Home, req.URL)
		if addr, err := netip.ParseAddr(req.URL.Hostname()); err == nil && !home {
			if err := allowed(addr, false); err != nil {
				return nil, err
			}
		}
		own := t.Clone()
		own.DisableKeepAlives = true
		if own.Proxy = nil; proxy != nil {
			own.Proxy = http.ProxyURL(proxy)
			return own.RoundTrip(req)
		}
		// The address is checked when it is dialled: a name may lead elsewhere a moment later.
		dialer := &net.Dialer{Timeout: 30 * time.Second,
			Control: func(_, to string, _ syscall.RawConn) error {
				at, err := netip.ParseAddrPort(to)
				if err != nil {
					return err
				}
				return allowed(at.Addr(), home)
			}}
		own.DialContext = dialer.DialContext
		return own.RoundTrip(req)
	})
}

// allowed returns why an address is not dialled. home says that it is of the host that the user named.
func allowed(addr netip.Addr, home bool) error {
	addr = addr.Unmap()
	if home {
		if addr.IsLinkLocalUnicast() || addr.IsMulticast() || addr.IsUnspecified() {
			return fmt.Errorf("%s is a link-local address, where no source is", addr)
		}
		return nil
	}
	own, err := address.OwnNetworks()
	if err == nil && !address.Public(addr, own) {
		err = fmt.Errorf("%s is not a public address, and the host is not the one that was named", addr)
	}
	return err
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// plain takes the URL with its query, which may be a secret of the server, from an error.
func plain(at *url.URL, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	return fmt.Errorf("%s: %w", shown(at), err)
}

// shown returns a URL for messages.
func shown(at *url.URL) string {
	plain := url.URL{Scheme: at.Scheme, Host: at.Host, Path: at.Path, RawPath: at.RawPath}
	return plain.String()
}
