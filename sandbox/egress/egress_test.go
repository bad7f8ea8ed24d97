package egress_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/egress"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestParseTarget(t *testing.T) {
	for spec, want := range map[string]string{
		"api.example.com":       "api.example.com:443",
		"api.example.com:8443":  "api.example.com:8443",
		"localhost:3000":        "localhost:3000",
		"xn--bcher-kva.example": "xn--bcher-kva.example:443",
		"a_b.example:80":        "a_b.example:80",
		"10.0.0.5":              "10.0.0.5:443",
		"127.0.0.1:80":          "127.0.0.1:80",
		"::1":                   "[::1]:443",
		"[::1]:80":              "[::1]:80",
		"[2001:DB8::1]":         "[2001:db8::1]:443",

		"": "", "*": "", "*.example.com": "", "http://a.example": "", "a.example/": "", "a.example:": "", "a.example:0": "", "a.example:65536": "",
		"a.example:+80": "", "a.example:080": "", "user@a.example": "", "a.example.": "", ".a.example": "", "a..example": "", "A.example": "",
		"bücher.example": "", "a.example\x00.b": "", "a example": "", "a.example:80:80": "", "-a.example": "", "a-.example": "",
		"1.2.3": "", "127.1": "", "0x7f.0.0.1": "", "0177.0.0.1": "", "2130706433": "", "a.0x1": "", "a.1": "",
		"::ffff:127.0.0.1": "", "[::ffff:127.0.0.1]:80": "", "fe80::1%eth0": "", "[fe80::1%25eth0]:80": "", "[127.0.0.1]:80": "",
		strings.Repeat("a", 64) + ".example": "", strings.Repeat("a.", 127) + "aa": "",
	} {
		got, err := egress.ParseTarget(spec)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("ParseTarget(%q) = %v, %v, want %q", spec, got, err, want)
		}
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"a.example:80", "[::1]:80", "1.2.3.4", "*.x", "a\x00:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		target, err := egress.ParseTarget(spec)
		if err != nil {
			return
		}
		again, err := egress.ParseTarget(target.String())
		if err != nil || again != target {
			t.Errorf("ParseTarget(%q) = %v, which reads as %v, %v", spec, target, again, err)
		}
	})
}

// world is what the proxy under test finds outside: names, and a server behind every address.
type world struct {
	mu       sync.Mutex
	names    map[string][][]netip.Addr // answers by name, one after the other; the last stays
	resolved []string
	dialled  []string
	dead     []netip.Addr
	received bytes.Buffer
	answer   string
}

func (w *world) resolve(_ context.Context, name string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resolved = append(w.resolved, name)
	answers := w.names[name]
	if len(answers) == 0 {
		return nil, errors.New("no such host")
	}
	if len(answers) > 1 {
		w.names[name] = answers[1:]
	}
	return answers[0], nil
}

func (w *world) dial(_ context.Context, addr netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dialled = append(w.dialled, addr.String())
	if slices.Contains(w.dead, addr.Addr()) {
		return nil, errors.New("refused")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	server, err := l.Accept()
	if err != nil {
		return nil, err
	}
	go func() {
		defer server.Close()
		_, _ = io.WriteString(server, w.answer)
		if w.answer != "" {
			_ = server.(*net.TCPConn).CloseWrite()
		}
		buf := make([]byte, 4096)
		for {
			n, err := server.Read(buf)
			w.mu.Lock()
			w.received.Write(buf[:n])
			w.mu.Unlock()
			if err != nil {
				return
			}
			if w.answer == "" {
				if _, err := server.Write(buf[:n]); err != nil {
					return
				}
			}
		}
	}()
	return c, nil
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// serve starts a proxy to the world that allows the targets, and returns its address. stop ends it,
// and is called at the end of the test in any case.
func (w *world) serve(t *testing.T, cfg egress.Config, allow ...string) (p *egress.Proxy, addr string, stop func()) {
	t.Helper()
	for _, spec := range allow {
		target, err := egress.ParseTarget(spec)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Allow = append(cfg.Allow, target)
	}
	cfg.Resolve, cfg.Dial = w.resolve, w.dial
	p = egress.New(cfg)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Serve(ctx, l)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return p, l.Addr().String(), stop
}

// ask sends bytes to the proxy, ends, and returns all that comes back.
func ask(t *testing.T, addr, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	answer, _ := io.ReadAll(c)
	return string(answer)
}

// status is the first line's code.
func status(answer string) string {
	_, rest, _ := strings.Cut(answer, " ")
	return rest[:min(3, len(rest))]
}

const public = "93.184.215.14"

// What is asked for in any other way than the one that is understood alike everywhere is refused, and
// nothing is resolved or dialled for it.
func TestRequests(t *testing.T) {
	for _, tt := range []struct{ name, request, status, dialled string }{
		{"listed", "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n", "200", public + ":443"},
		{"upper case", "CONNECT A.Example:443 HTTP/1.1\r\n\r\n", "200", public + ":443"},
		{"HTTP/1.0", "CONNECT a.example:443 HTTP/1.0\r\n\r\n", "200", public + ":443"},
		{"other port", "CONNECT a.example:22 HTTP/1.1\r\n\r\n", "403", ""},
		{"other host", "CONNECT b.example:443 HTTP/1.1\r\n\r\n", "403", ""},
		{"below", "CONNECT x.a.example:443 HTTP/1.1\r\n\r\n", "403", ""},
		{"behind", "CONNECT a.example.evil.example:443 HTTP/1.1\r\n\r\n", "403", ""},
		{"final dot", "CONNECT a.example.:443 HTTP/1.1\r\n\r\n", "400", ""},
		{"no port", "CONNECT a.example HTTP/1.1\r\n\r\n", "400", ""},
		{"port 0443", "CONNECT a.example:0443 HTTP/1.1\r\n\r\n", "400", ""},
		{"two ports", "CONNECT a.example:443:80 HTTP/1.1\r\n\r\n", "400", ""},
		{"user", "CONNECT a.example:443@evil.example:443 HTTP/1.1\r\n\r\n", "400", ""},
		{"NUL", "CONNECT a.example\x00.evil.example:443 HTTP/1.1\r\n\r\n", "400", ""},
		{"encoded", "CONNECT a%2eexample:443 HTTP/1.1\r\n\r\n", "400", ""},
		{"wide dot", "CONNECT a。example:443 HTTP/1.1\r\n\r\n", "400", ""},
		{"wide letters", "CONNECT ａ.example:443 HTTP/1.1\r\n\r\n", "400", ""},
		{"Kelvin", "CONNECT \u212a.example:443 HTTP/1.1\r\n\r\n", "400", ""},
		{"address", "CONNECT 127.0.0.1:443 HTTP/1.1\r\n\r\n", "403", ""},
		{"address in short", "CONNECT 127.1:443 HTTP/1.1\r\n\r\n", "400", ""},
		{"address as number", "CONNECT 2130706433:443 HTTP/1.1\r\n\r\n", "400", ""},
		{"address in hex", "CONNECT 0x7f000001:443 HTTP/1.1\r\n\r\n", "400", ""},
		{"mapped", "CONNECT [::ffff:127.0.0.1]:443 HTTP/1.1\r\n\r\n", "400", ""},
		{"zone", "CONNECT [fe80::1%25lo]:443 HTTP/1.1\r\n\r\n", "400", ""},
		{"listed address", "CONNECT 10.0.0.5:8080 HTTP/1.1\r\n\r\n", "200", "10.0.0.5:8080"},
		{"listed address, other port", "CONNECT 10.0.0.5:8081 HTTP/1.1\r\n\r\n", "403", ""},
		{"listed address, mapped", "CONNECT [::ffff:10.0.0.5]:8080 HTTP/1.1\r\n\r\n", "400", ""},
		{"listed address, long", "CONNECT [0:0:0:0:0:0:0:5]:443 HTTP/1.1\r\n\r\n", "400", ""},
		{"bare LF", "CONNECT a.example:443 HTTP/1.1\nHost: x\n\n", "400", ""},
		{"LF in line", "CONNECT a.example:443 HTTP/1.1\nX: y\r\n\r\n", "400", ""},
		{"LF in field", "CONNECT a.example:443 HTTP/1.1\r\nX: y\nHost: z\r\n\r\n", "400", ""},
		{"CR in field", "CONNECT a.example:443 HTTP/1.1\r\nX: y\rz\r\n\r\n", "400", ""},
		{"NUL in field", "CONNECT a.example:443 HTTP/1.1\r\nX: y\x00z\r\n\r\n", "400", ""},
		{"CR in line", "CONNECT a.example:443\r HTTP/1.1\r\n\r\n", "400", ""},
		{"two spaces", "CONNECT  a.example:443 HTTP/1.1\r\n\r\n", "400", ""},
		{"tab", "CONNECT\ta.example:443 HTTP/1.1\r\n\r\n", "400", ""},
		{"lower-case method", "connect a.example:443 HTTP/1.1\r\n\r\n", "400", ""},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400", ""},
		{"SOCKS", "\x05\x01\x00\r\n\r\n", "400", ""},
		{"folded", "CONNECT a.example:443 HTTP/1.1\r\nA: b\r\n c\r\n\r\n", "400", ""},
		{"space before colon", "CONNECT a.example:443 HTTP/1.1\r\nHost : a\r\n\r\n", "400", ""},
		{"two hosts", "CONNECT a.example:443 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400", ""},
		{"origin form", "GET / HTTP/1.1\r\nHost: web.example\r\n\r\n", "400", ""},
		{"https in the clear", "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", "400", ""},
		{"ftp", "GET ftp://web.example/ HTTP/1.1\r\n\r\n", "400", ""},
		{"not listed for http", "GET http://a.example/ HTTP/1.1\r\n\r\n", "403", ""},
		{"user in URL", "GET http://web.example@evil.example/ HTTP/1.1\r\n\r\n", "400", ""},
		{"backslash", "GET http://web.example\\@evil.example/ HTTP/1.1\r\n\r\n", "400", ""},
		{"fragment", "GET http://web.example/#@evil.example/ HTTP/1.1\r\n\r\n", "400", ""},
		{"other Host", "GET http://web.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", "400", ""},
		{"chunked", "POST http://web.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400", ""},
		{"two lengths", "POST http://web.example/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400", ""},
		{"odd length", "POST http://web.example/ HTTP/1.1\r\nContent-Length: +1\r\n\r\na", "400", ""},
		{"two lengths in one", "POST http://web.example/ HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\na", "400", ""},
		{"no address", "CONNECT nowhere.example:443 HTTP/1.1\r\n\r\n", "502", ""},
		{"too long", "CONNECT a.example:443 HTTP/1.1\r\nX: " + strings.Repeat("x", 20<<10) + "\r\n\r\n", "400", ""},
		{"nothing", "", "400", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &world{names: map[string][][]netip.Addr{"a.example": {addrs(public)}, "web.example": {addrs(public)}}, answer: "hi"}
			p, addr, stop := w.serve(t, egress.Config{}, "a.example", "10.0.0.5:8080", "[::5]:443", "web.example:80", "nowhere.example")
			if got := status(ask(t, addr, tt.request)); got != tt.status {
				t.Errorf("answered %q, want %q", got, tt.status)
			}
			stop()
			if got := strings.Join(w.dialled, " "); got != tt.dialled {
				t.Errorf("dialled %q, want %q", got, tt.dialled)
			}
			conns := p.Connections()
			if len(conns) != 1 || (conns[0].Refused == "") != (tt.status == "200") || conns[0].Address.IsValid() != (tt.dialled != "") {
				t.Errorf("recorded %+v", conns)
			}
			for _, name := range w.resolved {
				if name != "a.example" && name != "nowhere.example" {
					t.Errorf("resolved %q", name)
				}
			}
		})
	}
}

// A plain request is forwarded as one request, whatever follows it.
func TestPlain(t *testing.T) {
	w := &world{names: map[string][][]netip.Addr{"web.example": {addrs(public)}}, answer: "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"}
	_, addr, stop := w.serve(t, egress.Config{}, "web.example:80")
	request := "POST HTTP://Web.Example?q=1 HTTP/1.1\r\nHost: WEB.example:80\r\nProxy-Authorization: x\r\nConnection: keep-alive\r\n" +
		"Cookie: y\r\nContent-Length: 4\r\n\r\nbodyGET http://evil.example/ HTTP/1.1\r\n\r\n"
	if got := ask(t, addr, request); status(got) != "204" {
		t.Errorf("answered %q", got)
	}
	stop()
	want := "POST /?q=1 HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\nCookie: y\r\nContent-Length: 4\r\n\r\nbody"
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := w.received.String(); got != want && !strings.HasPrefix(want, got) {
		t.Errorf("the server got %q, want %q", got, want)
	}
}

// A body that comes later ends where its length says.
func TestPlainBody(t *testing.T) {
	w := &world{names: map[string][][]netip.Addr{"web.example": {addrs(public)}}}
	_, addr, stop := w.serve(t, egress.Config{}, "web.example:80")
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "PUT http://web.example/ HTTP/1.1\r\nContent-Length: 4\r\n\r\n")
	want := "PUT / HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\nContent-Length: 4\r\n\r\n"
	if _, err := io.ReadFull(c, make([]byte, len(want))); err != nil { // the server echoes
		t.Fatal(err)
	}
	fmt.Fprint(c, "bodyGET http://evil.example/ HTTP/1.1\r\n\r\n")
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := w.received.String(); got != want+"body" {
		t.Errorf("the server got %q, want %q", got, want+"body")
	}
}

// No name leads to an address that is not public, in whatever notation, and a name server that
// changes its answer gains nothing: what was checked is dialled.
func TestAddresses(t *testing.T) {
	own := "127.0.0.1"
	if list, err := net.InterfaceAddrs(); err == nil {
		for _, a := range list {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
				own = n.IP.String()
			}
		}
	}
	refused := []string{"127.0.0.1", "127.255.0.1", "0.0.0.0", "0.1.2.3", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
		"100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1",
		"240.0.0.1", "255.255.255.255", "::", "::1", "::127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::5db8:d70e", "64:ff9b:1::1", "2002:7f00:1::",
		"2001::1", "2001:db8::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "100::1", "3fff::1", "5f00::1", "4000::1", own}
	for _, ip := range refused {
		w := &world{names: map[string][][]netip.Addr{"a.example": {addrs(ip)}}, answer: "hi"}
		p, addr, stop := w.serve(t, egress.Config{}, "a.example")
		got := ask(t, addr, "CONNECT a.example:443 HTTP/1.1\r\n\r\n")
		stop()
		if status(got) != "403" || len(w.dialled) > 0 || p.Connections()[0].Refused != egress.NotPublic {
			t.Errorf("%s: answered %q, dialled %v, recorded %+v", ip, got, w.dialled, p.Connections())
		}
	}
	// A name that is trusted may lead anywhere, and no other name may then.
	trusted, err := egress.ParseTarget("a.example")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{names: map[string][][]netip.Addr{"a.example": {addrs("10.0.0.1")}, "b.example": {addrs("10.0.0.1")}}, answer: "hi"}
	_, addr, stop := w.serve(t, egress.Config{Trusted: []egress.Target{trusted}}, "a.example", "b.example")
	for _, name := range []string{"a.example", "b.example"} {
		ask(t, addr, "CONNECT "+name+":443 HTTP/1.1\r\n\r\n")
	}
	stop()
	if got := strings.Join(w.dialled, " "); got != "10.0.0.1:443" {
		t.Errorf("dialled %q, want the address of the trusted name alone", got)
	}
	for _, tt := range []struct {
		name    string
		answers [][]netip.Addr
		dead    []netip.Addr
		dialled string
	}{
		{"public", [][]netip.Addr{addrs(public)}, nil, "93.184.215.14:443"},
		{"public, mapped", [][]netip.Addr{addrs("::ffff:93.184.215.14")}, nil, "93.184.215.14:443"},
		{"version 6", [][]netip.Addr{addrs("2606:2800:21f::1")}, nil, "[2606:2800:21f::1]:443"},
		{"changes its mind", [][]netip.Addr{addrs(public), addrs("127.0.0.1")}, nil, "93.184.215.14:443"},
		{"both at once", [][]netip.Addr{addrs("127.0.0.1", public, "10.0.0.1")}, nil, "93.184.215.14:443"},
		{"the first is dead", [][]netip.Addr{addrs("2606:2800:21f::1", public)}, addrs("2606:2800:21f::1"), "[2606:2800:21f::1]:443 93.184.215.14:443"},
		{"many dead", [][]netip.Addr{addrs("8.0.0.1", "8.0.0.2", "8.0.0.3", "8.0.0.4", "8.0.0.5")}, addrs("8.0.0.1", "8.0.0.2", "8.0.0.3", "8.0.0.4", "8.0.0.5"),
			"8.0.0.1:443 8.0.0.2:443 8.0.0.3:443 8.0.0.4:443"},
	} {
		w := &world{names: map[string][][]netip.Addr{"a.example": tt.answers}, answer: "hi", dead: tt.dead}
		_, addr, stop := w.serve(t, egress.Config{}, "a.example")
		ask(t, addr, "CONNECT a.example:443 HTTP/1.1\r\n\r\n")
		stop()
		if got := strings.Join(w.dialled, " "); got != tt.dialled || len(w.resolved) != 1 {
			t.Errorf("%s: dialled %q after %d lookups, want %q after one", tt.name, got, len(w.resolved), tt.dialled)
		}
	}
}

// open connects through the proxy and returns the tunnel.
func open(t *testing.T, addr, target string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\n", target)
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("no tunnel: %v", err)
		}
		if line == "\r\n" {
			return c, r
		}
	}
}

func TestBounds(t *testing.T) {
	names := map[string][][]netip.Addr{"a.example": {addrs(public)}}
	const connect = "CONNECT a.example:443 HTTP/1.1\r\n\r\n"

	t.Run("at once", func(t *testing.T) {
		w := &world{names: names}
		p, addr, _ := w.serve(t, egress.Config{AtOnce: 1}, "a.example")
		open(t, addr, "a.example:443")
		if got := status(ask(t, addr, connect)); got != "503" {
			t.Errorf("the second connection at once: %q", got)
		}
		if got := p.Connections()[1].Refused; got != egress.TooMany {
			t.Errorf("recorded %q", got)
		}
	})
	t.Run("total", func(t *testing.T) {
		w := &world{names: names, answer: "hi"}
		p, addr, stop := w.serve(t, egress.Config{Total: 2}, "a.example")
		for i, want := range []string{"200", "200", "", ""} {
			if got := status(ask2(addr, connect)); got != want {
				t.Errorf("connection %d: %q, want %q", i, got, want)
			}
		}
		stop()
		if len(p.Connections()) != 2 || p.Unlisted() != 2 {
			t.Errorf("%d connections and %d unlisted, want 2 and 2", len(p.Connections()), p.Unlisted())
		}
	})
	t.Run("bytes", func(t *testing.T) {
		w := &world{names: names}
		p, addr, stop := w.serve(t, egress.Config{Bytes: 10_000}, "a.example")
		c, r := open(t, addr, "a.example:443")
		back := 0
		for back < 100 {
			if _, err := c.Write(make([]byte, 1000)); err != nil {
				break
			}
			if _, err := io.ReadFull(r, make([]byte, 1000)); err != nil {
				break
			}
			back++
		}
		if back != 5 {
			t.Errorf("%d times 1,000 bytes went there and back, want 5", back)
		}
		if got := status(ask(t, addr, connect)); got != "403" {
			t.Errorf("another connection when all is spent: %q", got)
		}
		stop()
		if c := p.Connections(); c[0].Ended != egress.ByteLimit || c[0].Sent+c[0].Received > 10_000 || c[1].Refused != egress.Spent {
			t.Errorf("recorded %+v", c)
		}
	})
	t.Run("a slow head", func(t *testing.T) {
		w := &world{names: names}
		p, addr, _ := w.serve(t, egress.Config{Patience: 50 * time.Millisecond}, "a.example")
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "CONNECT a.example:443 HTTP/1.1\r\nX: ")
		answer, _ := io.ReadAll(c)
		if status(string(answer)) != "408" || p.Connections()[0].Refused != egress.TooSlow {
			t.Errorf("answered %q, recorded %+v", answer, p.Connections())
		}
	})
	t.Run("the end", func(t *testing.T) {
		w := &world{names: names}
		p, addr, stop := w.serve(t, egress.Config{}, "a.example")
		c, r := open(t, addr, "a.example:443")
		fmt.Fprint(c, "ping")
		if got, err := r.Peek(4); err != nil || string(got) != "ping" {
			t.Fatalf("the tunnel carries %q, %v", got, err)
		}
		silent, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		stop()
		if _, err := io.Copy(io.Discard, r); err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
			t.Errorf("the tunnel ends with %v", err)
		}
		if _, err := net.Dial("tcp", addr); err == nil {
			t.Error("the proxy still listens")
		}
		if got := p.Connections()[0]; got.Ended != egress.RunEnded || got.Sent != 4 || got.Received != 4 {
			t.Errorf("recorded %+v", got)
		}
	})
}

// ask2 is ask for connections that may be closed unheard.
func ask2(addr, request string) string {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return ""
	}
	defer c.Close()
	_, _ = io.WriteString(c, request)
	_ = c.(*net.TCPConn).CloseWrite()
	answer, _ := io.ReadAll(c)
	return string(answer)
}

func TestEnviron(t *testing.T) {
	remote, _ := egress.ParseTarget("a.example")
	own, _ := egress.ParseTarget("127.0.0.1:80")
	env := egress.Environ(remote)
	for _, want := range []string{"HTTPS_PROXY=http://" + sandbox.ProxyAddr, "http_proxy=http://" + sandbox.ProxyAddr, "no_proxy=localhost,127.0.0.1,::1"} {
		if !slices.Contains(env, want) {
			t.Errorf("Environ lacks %q: %q", want, env)
		}
	}
	for _, v := range egress.Environ(remote, own) {
		if strings.HasPrefix(strings.ToUpper(v), "NO_PROXY") {
			t.Errorf("a listed address of the loopback would not be reached: %q", v)
		}
	}
}
