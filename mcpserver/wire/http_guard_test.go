package wire

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// What the guard accepts as a loopback host or origin is one to a URL parser as well.
func FuzzGuard(f *testing.F) {
	for _, seed := range []string{"localhost", "localhost:80", "127.0.0.1", "[::1]:80", "::1", "::1:8080", "localhost.", "127.1", "[::ffff:127.0.0.1]",
		"localhost:80:80", "evil.example.com", "localhost@evil.example.com", "[localhost]", "a:localhost", "127.0.0.1%00", "[::1%lo]:1"} {
		f.Add(seed)
	}
	g, err := newGuard(&HTTPOptions{}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := &http.Request{Host: text, Header: http.Header{}}
		if g.host(r) {
			u, err := url.Parse("http://" + text)
			if err != nil && !strings.Contains(text, "%") {
				t.Fatalf("host %q is accepted and no host: %v", text, err)
			}
			if err == nil && (!loopbackName(u.Hostname()) || strings.Contains(u.Hostname(), ":") && text[0] != '[') {
				t.Errorf("host %q is accepted and names %q", text, u.Hostname())
			}
		}
		for _, scheme := range []string{"http://", "https://"} {
			if !g.origin(scheme+text, "localhost") {
				continue
			}
			if u, err := url.Parse(scheme + text); err != nil || !loopbackName(u.Hostname()) {
				t.Errorf("origin %q is accepted: %v %v", scheme+text, u, err)
			}
		}
	})
}

func loopbackName(name string) bool {
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && (ip.IsLoopback() || net.IP(ip.AsSlice()).IsLoopback())
}

func FuzzAcceptsEvents(f *testing.F) {
	f.Add("application/json, text/event-stream")
	f.Add("TEXT/*;q=0.1")
	f.Add(",,;,")
	f.Add("")
	f.Fuzz(func(t *testing.T, accept string) {
		if acceptsEvents([]string{accept}) && !strings.Contains(strings.ToLower(accept), "text/") && !strings.Contains(accept, "*/*") {
			t.Errorf("Accept %q", accept)
		}
	})
}

func TestHTTPHostOfConnection(t *testing.T) {
	g, err := newGuard(&HTTPOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		local net.Addr
		host  string
		want  bool
	}{
		{&net.TCPAddr{IP: net.IPv4(192, 168, 1, 5), Port: 80}, "192.168.1.5:80", true},
		{&net.TCPAddr{IP: net.IPv4(192, 168, 1, 5), Port: 80}, "192.168.1.6:80", false},
		{&net.TCPAddr{IP: net.ParseIP("fd00::5"), Port: 80}, "[fd00::5]:80", true},
		{&net.TCPAddr{IP: net.IPv4(192, 168, 1, 5), Port: 80}, "skills.lan", false},
		{&net.UnixAddr{Name: "s"}, "anything", true},
		{nil, "192.168.1.5", false},
	} {
		r := &http.Request{Host: tt.host}
		if tt.local != nil {
			r = r.WithContext(contextWithLocal(t, tt.local))
		}
		if got := g.host(r); got != tt.want {
			t.Errorf("Host %q on %v = %v, want %v", tt.host, tt.local, got, tt.want)
		}
	}
}

func contextWithLocal(t *testing.T, addr net.Addr) context.Context {
	return context.WithValue(t.Context(), http.LocalAddrContextKey, addr)
}
