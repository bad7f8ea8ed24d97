package egress_test

import (
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/egress"
	"github.com/skillsd/skillsd/sandbox/native"
)

func TestMain(m *testing.M) {
	native.MaybeHelper()
	os.Exit(m.Run())
}

// run runs a Python program in a sandbox whose only way out is p.
func run(t *testing.T, p *egress.Proxy, env []string, program string) *sandbox.Result {
	t.Helper()
	python := "/usr/bin/python3"
	if _, err := exec.LookPath(python); err != nil {
		t.Skip("no /usr/bin/python3 here")
	}
	tree, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	res, err := native.New(nil).Run(t.Context(), &sandbox.Cmd{
		Argv: []string{python, "-E", "-s", "-c", program}, Tree: tree, Network: sandbox.Network{Proxy: p},
		Env: append([]string{"PATH=/usr/bin:/bin"}, env...),
	})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// hello is a server on the machine's loopback that answers every connection alike.
func hello(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				head := make([]byte, 1024)
				n, _ := c.Read(head)
				body := "hello\n" + string(head[:n])
				io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: "+itoa(len(body))+"\r\n\r\n"+body)
			}()
		}
	}()
	return l.Addr().String()
}

// What an ordinary client in a sandbox does works, and nothing else of the host answers.
func TestSandboxed(t *testing.T) {
	listed, other := hello(t), hello(t)
	target, err := egress.ParseTarget(listed)
	if err != nil {
		t.Fatal(err)
	}
	p := egress.New(egress.Config{Allow: []egress.Target{target}})
	res := run(t, p, append(egress.Environ(target), "LISTED="+listed, "OTHER="+other), `
import os, socket, urllib.request, urllib.error
print(urllib.request.urlopen("http://%s/x?y" % os.environ["LISTED"]).read().decode().splitlines()[:3])
try:
    urllib.request.urlopen("http://%s/" % os.environ["OTHER"])
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode().strip())
for addr in (os.environ["LISTED"], os.environ["OTHER"], "127.0.0.1:3129"):
    host, port = addr.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), 1)
        print("reached", addr)
    except OSError:
        print("closed")
`)
	want := "['hello', 'GET /x?y HTTP/1.1', 'Host: " + listed + "']\n403 this host and port is not granted to the script; " +
		"the user can add it to the entry's network\nclosed\nclosed\nclosed\n"
	if got := string(res.Stdout.Head); got != want {
		t.Errorf("the script printed %q, want %q; stderr %q", got, want, res.Stderr.Head)
	}
	conns := p.Connections()
	if len(conns) != 2 {
		t.Fatalf("connections = %+v, want two", conns)
	}
	if c := conns[0]; c.Host != "127.0.0.1" || c.Address.String() != listed || c.Sent == 0 || c.Received == 0 || c.Refused != "" {
		t.Errorf("first connection = %+v", c)
	}
	if c := conns[1]; c.Refused != egress.NotListed || c.Address.IsValid() || !strings.HasSuffix(other, ":"+itoa(int(c.Port))) {
		t.Errorf("second connection = %+v", c)
	}
}

// A script cannot take the proxy's place, reach around it, or outlive its run through it.
func TestSandboxedHostile(t *testing.T) {
	listed := hello(t)
	target, err := egress.ParseTarget(listed)
	if err != nil {
		t.Fatal(err)
	}
	p := egress.New(egress.Config{Allow: []egress.Target{target}})
	res := run(t, p, []string{"LISTED=" + listed}, `
import os, socket
def t(name, f):
    try:
        print(name, f())
    except OSError as e:
        print(name, "refused")
def bind(host, reuse):
    s = socket.socket(socket.AF_INET)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, reuse)
    s.bind((host, 3128)); s.listen()
    return "bound"
t("bind", lambda: bind("127.0.0.1", 0))
t("bind reuse", lambda: bind("127.0.0.1", 1))
t("bind any", lambda: bind("0.0.0.0", 1))
t("name", lambda: socket.getaddrinfo("example.com", 80))
def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.sendto(b"x", ("8.8.8.8", 53))
    return "sent"
t("udp", udp)
t("direct", lambda: socket.create_connection(("93.184.215.14", 443), 2))
t("unix", lambda: socket.socket(socket.AF_UNIX))
t("vsock", lambda: socket.socket(40))
t("sock_diag", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4))
print("interfaces", [n for _, n in socket.if_nameindex()])
print("descriptors", [f for f in os.listdir("/proc/self/fd") if int(f) > 2 and os.path.exists("/proc/self/fd/" + f)])
keep = []
for i in range(3):
    s = socket.create_connection(("127.0.0.1", 3128))
    s.sendall(("CONNECT %s HTTP/1.1\r\n\r\n" % os.environ["LISTED"]).encode())
    print("tunnel", s.recv(12))
    keep.append(s)
if os.fork() == 0:
    os.setsid()
    import time
    time.sleep(600)
`)
	want := `bind refused
bind reuse refused
bind any refused
name refused
udp refused
direct refused
unix refused
vsock refused
sock_diag refused
interfaces ['lo']
descriptors []
tunnel b'HTTP/1.1 200'
tunnel b'HTTP/1.1 200'
tunnel b'HTTP/1.1 200'
`
	if got := string(res.Stdout.Head); got != want || res.Outcome != sandbox.Exited {
		t.Errorf("%s, the script printed %q, want %q; stderr %q", res.Outcome, got, want, res.Stderr.Head)
	}
	for _, c := range p.Connections() {
		if c.Refused != "" || c.Address.String() != listed {
			t.Errorf("recorded %+v", c)
		}
	}
}
