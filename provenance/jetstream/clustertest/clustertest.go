// Package clustertest runs the servers of a NATS cluster for tests, either in the process of the test or, so
// that they can be killed, in separate processes. It is the only user of nats-server, which no program links.
package clustertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// nodeVariable is the environment variable that makes a process a server.
const nodeVariable = "SKILLSD_CLUSTERTEST_NODE"

// patience limits the wait for a server.
const patience = 30 * time.Second

// Main must be called first by TestMain. In a process that a Cluster started, it runs a server and does not
// return.
func Main() {
	words := strings.Split(os.Getenv(nodeVariable), " ")
	if len(words) != 3 {
		return
	}
	i, err := strconv.Atoi(words[0])
	if err != nil {
		panic(err)
	}
	addrs := strings.Split(words[2], ",")
	n := len(addrs) / 3
	if _, err := run(words[1], addrs[:2*n], addrs[2*n:], i); err != nil {
		panic(err)
	}
	select {}
}

// Cluster is a set of servers on loopback that write every message to disk before they acknowledge it.
type Cluster struct {
	t       testing.TB
	dir     string
	addrs   []string  // addresses for clients, then for servers
	routes  [][]*link // the links from server i to server j; nil if servers connect directly
	apart   bool      // each server has a process of its own
	servers []*server.Server
	started []*exec.Cmd
	within  [][]string // prefix of the command of each server

	// Set for servers in a Network:
	Hosts []string // addresses of the servers
	CA    string   // file with the certificate that clients trust
	host  func() (addr string, in []string)
}

// Host creates a host for a client, if the servers are in a Network. It returns the host's address and the
// prefix of commands that run there.
func (c *Cluster) Host() (addr string, in []string) {
	if c.host == nil {
		return "", nil
	}
	return c.host()
}

// Start starts n servers in the process of the test, and stops them when the test ends.
func Start(t testing.TB, n int) *Cluster {
	t.Helper()
	c := made(t, n, false)
	c.run()
	return c
}

// StartApart is like Start, but with a process for each server. TestMain must call [Main].
func StartApart(t testing.TB, n int) *Cluster {
	t.Helper()
	c := made(t, n, true)
	c.run()
	c.listening()
	return c
}

// Shift sets the clock of a server forward, or back if by is negative, from its next Restart on. The test
// must have been built by e2e/clock.
func (c *Cluster) Shift(i int, by time.Duration) {
	c.within[i] = []string{"env", fmt.Sprintf("CLOCK_SHIFT=%.0f", by.Seconds())}
}

// StartDirect is like StartApart, but servers connect directly instead of through the process of the test,
// for measurements. [Cluster.Cut] then does nothing.
func StartDirect(t testing.TB, n int) *Cluster {
	t.Helper()
	c := made(t, n, true)
	c.routes = nil
	c.run()
	c.listening()
	return c
}

// listening waits until the servers listen. A program that connects only once must find them, and on a busy
// machine a process takes seconds to listen.
func (c *Cluster) listening() {
	c.t.Helper()
	for _, addr := range c.addrs[:len(c.servers)] {
		for end := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
			conn, err := net.Dial("tcp", addr)
			if err == nil {
				_ = conn.Close() // nothing was sent
				break
			}
			if time.Now().After(end) {
				c.t.Fatal(err)
			}
		}
	}
}

// StartConfigured starts one server with a configuration file. It returns its address for clients and, if the
// file configures a cluster, its address for servers.
func StartConfigured(t testing.TB, path string) (clients, servers string) {
	t.Helper()
	opts, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatal(err)
	}
	opts.NoSigs, opts.NoLog = true, true
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
	return s.ClientURL(), s.ClusterAddr().String()
}

// made returns n servers with unused addresses that are not running.
func made(t testing.TB, n int, apart bool) *Cluster {
	t.Helper()
	c := &Cluster{t: t, dir: t.TempDir(), apart: apart, servers: make([]*server.Server, n),
		started: make([]*exec.Cmd, n), within: make([][]string, n)}
	ip := loopback()
	for range 2 * n {
		l, err := net.Listen("tcp", ip+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // only after the loop, so that the addresses differ
		c.addrs = append(c.addrs, l.Addr().String())
	}
	for i := range n {
		c.routes = append(c.routes, make([]*link, n))
		for j := range n {
			c.routes[i][j] = newLink(t, c.addrs[n+j])
		}
		t.Cleanup(func() { c.Stop(i) })
	}
	return c
}

// loopback returns a loopback address. On Linux it is a random one that other tests are unlikely to use, so
// that the ports of servers that are not running remain free.
func loopback() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// Cut cuts a server off from the other servers, but not from clients: packets are lost and connections stay
// open.
func (c *Cluster) Cut(i int) { c.links(i, (*link).cut) }

// Heal ends a Cut.
func (c *Cluster) Heal(i int) { c.links(i, (*link).heal) }

func (c *Cluster) links(i int, do func(*link)) {
	for j := range c.routes {
		do(c.routes[i][j])
		do(c.routes[j][i])
	}
}

// link forwards connections from an address of its own, unless it is cut.
type link struct {
	net.Listener
	to string

	mu    sync.Mutex
	whole chan struct{} // closed unless the link is cut
	conns []net.Conn
}

func newLink(t testing.TB, to string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{Listener: listener, to: to, whole: make(chan struct{})}
	close(l.whole)
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", l.to)
			if err != nil {
				from.Close()
				continue
			}
			l.mu.Lock()
			l.conns = append(l.conns, from, to)
			l.mu.Unlock()
			go l.pass(to, from)
			go l.pass(from, to)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		l.heal()
	})
	return l
}

func (l *link) pass(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		l.mu.Lock()
		whole := l.whole
		l.mu.Unlock()
		<-whole
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.whole:
		l.whole = make(chan struct{})
	default: // it is cut already
	}
}

func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.whole:
	default:
		close(l.whole)
	}
	for _, conn := range l.conns {
		conn.Close() // data in transit is lost
	}
	l.conns = nil
}

func (c *Cluster) run() {
	for i := range c.servers {
		c.Restart(i)
	}
}

// Restart starts a server that was stopped.
func (c *Cluster) Restart(i int) {
	c.t.Helper()
	if c.servers[i] != nil || c.started[i] != nil {
		return
	}
	if !c.apart {
		s, err := run(c.dir, c.addrs, c.routesOf(i), i)
		if err != nil {
			c.t.Fatal(err)
		}
		c.servers[i] = s
		return
	}
	exe, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	command := slices.Concat(c.within[i], []string{exe})
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(),
		fmt.Sprintf("%s=%d %s %s", nodeVariable, i, c.dir,
			strings.Join(slices.Concat(c.addrs, c.routesOf(i)), ",")))
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.started[i] = cmd
}

func (c *Cluster) routesOf(i int) (addrs []string) {
	if c.routes == nil {
		return c.addrs[len(c.servers):]
	}
	for _, l := range c.routes[i] {
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// Stop stops a server. A server in a process of its own is killed; another one first transfers its
// leaderships.
func (c *Cluster) Stop(i int) {
	if s := c.servers[i]; s != nil {
		s.Shutdown()
		s.WaitForShutdown()
		c.servers[i] = nil
	}
	if cmd := c.started[i]; cmd != nil {
		_ = cmd.Process.Kill() // fails only if the process has ended
		_ = cmd.Wait()
		c.started[i] = nil
	}
}

// Process returns the process of a server started by [StartApart], or nil if it is not running.
func (c *Cluster) Process(i int) *os.Process {
	if c.started[i] == nil {
		return nil
	}
	return c.started[i].Process
}

// Whole waits until all servers are running and have all messages of the streams. It returns the leader of
// the last stream.
func (c *Cluster) Whole(streams ...string) (leader int) {
	c.t.Helper()
	conn := c.Connect(c.t)
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		c.t.Fatal(err)
	}
	var why any
	whole := func(name string) bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		defer cancel()
		stream, err := js.Stream(ctx, name)
		why = err
		if err != nil || stream.CachedInfo().Cluster == nil {
			return false
		}
		info := stream.CachedInfo().Cluster
		if n, _ := fmt.Sscanf(info.Leader, "n%d", &leader); n != 1 {
			return false
		}
		lags := func(p *jetstream.PeerInfo) bool { why = *p; return !p.Current || p.Offline }
		return len(info.Replicas) == len(c.servers)-1 && !slices.ContainsFunc(info.Replicas, lags)
	}
	for end := time.Now().Add(4 * patience); len(streams) > 0; {
		if whole(streams[0]) {
			streams = streams[1:]
			continue
		}
		if time.Now().After(end) {
			c.t.Fatalf("stream %s does not have all replicas: %+v", streams[0], why)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return leader
}

// URLs returns the addresses of the servers for clients.
func (c *Cluster) URLs() (urls []string) {
	scheme := "nats://"
	if c.CA != "" {
		scheme = "tls://"
	}
	for _, addr := range c.addrs[:len(c.servers)] {
		urls = append(urls, scheme+addr)
	}
	return urls
}

// Connect returns a connection that switches to another server if its own is gone.
func (c *Cluster) Connect(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return c.ConnectTo(t, 0, opts...)
}

// ConnectTo is like Connect, but tries server i first.
func (c *Cluster) ConnectTo(t testing.TB, i int, opts ...nats.Option) *nats.Conn {
	t.Helper()
	urls := c.URLs()
	urls = slices.Concat(urls[i:], urls[:i])
	if c.CA != "" {
		opts = append(opts, nats.RootCAs(c.CA))
	}
	opts = append([]nats.Option{nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.DontRandomize(),
		nats.ReconnectWait(50 * time.Millisecond),
		nats.ReconnectJitter(10*time.Millisecond, 10*time.Millisecond)}, opts...)
	conn, err := nats.Connect(strings.Join(urls, ","), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	for end := time.Now().Add(patience); !conn.IsConnected(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no server of the cluster answers")
		}
	}
	return conn
}

// run starts server i in this process; routes are the addresses of the other servers.
func run(dir string, addrs, routes []string, i int) (*server.Server, error) {
	host := func(addr string) (string, int) {
		host, port, _ := net.SplitHostPort(addr)
		n, _ := strconv.Atoi(port)
		return host, n
	}
	n := len(addrs) / 2
	opts := &server.Options{ServerName: fmt.Sprintf("n%d", i), NoSigs: true, NoLog: true, JetStream: true,
		StoreDir: filepath.Join(dir, strconv.Itoa(i)), SyncAlways: true,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 4 << 30}
	opts.Host, opts.Port = host(addrs[i])
	if _, err := os.Stat(filepath.Join(dir, "server.pem")); err == nil {
		tls, err := server.GenTLSConfig(&server.TLSConfigOpts{CertFile: filepath.Join(dir, "server.pem"),
			KeyFile: filepath.Join(dir, "server.key")})
		if err != nil {
			return nil, err
		}
		opts.TLSConfig, opts.TLS = tls, true
	}
	if n > 1 {
		// No server listens on this address, so a server is reached through the links to it only.
		opts.Cluster.Name, opts.Cluster.Advertise = "skillsd-test", "127.0.0.1:1"
		opts.Cluster.NoAdvertise = true
		opts.Cluster.Host, opts.Cluster.Port = host(addrs[n+i])
		for j := range n {
			if j != i {
				opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: routes[j]})
			}
		}
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	go s.Start()
	if !s.ReadyForConnections(patience) {
		return nil, fmt.Errorf("server %d is not ready", i)
	}
	return s, nil
}
