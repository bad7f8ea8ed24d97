package admit

import (
	"container/list"
	"context"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// strangerGrace is the minimum life of an unauthenticated connection if there are too many: many honest
	// clients at once take a while to authenticate. idleGrace is the same for a connection between requests.
	strangerGrace = 3 * time.Second
	idleGrace     = time.Second

	// maxKnown is how many addresses with an authenticated client are remembered.
	maxKnown = 10_000
)

// Connections bounds the open connections of a server, and of them those on which no client has authenticated
// yet: the strangers. At either bound, no connection is accepted until one has ended.
//
// At the bound of all, the connection that was idle longest is closed for a new one. At the bound of
// strangers, the oldest one is closed once its grace has passed. One address of another machine may have a
// quarter of the strangers; beyond it, its oldest one is closed at once, or after its grace if a client has
// authenticated from that address, which may be a proxy of many clients.
//
// Safe for concurrent use.
type Connections struct {
	most, mostStrangers int
	answerTime          time.Duration

	mu        sync.Mutex
	open      map[net.Conn]*connection
	idle      list.List                // of *connection, the longest idle first
	strangers map[string][]*connection // by address
	unknown   int                      // number of strangers
	known     map[string]bool          // addresses of other machines with an authenticated client
	freed     chan struct{}            // signals that a connection was removed or became idle
}

// connection is the state of an open connection; guarded by Connections.mu.
type connection struct {
	net.Conn
	host     string // its address if it is from another machine, else ""
	stranger bool
	arrived  time.Time     // of a stranger; when its answer is due, if it has asked for one
	idle     *list.Element // nil while in use
	idleFrom time.Time
}

// NewConnections returns bounds of most connections and mostStrangers strangers. A request of a stranger has
// answerTime for its answer, before its grace begins.
func NewConnections(most, mostStrangers int, answerTime time.Duration) *Connections {
	return &Connections{most: most, mostStrangers: mostStrangers, answerTime: answerTime,
		open: make(map[net.Conn]*connection), strangers: make(map[string][]*connection),
		known: make(map[string]bool), freed: make(chan struct{}, 1)}
}

// connKey is the context key of the connection of a request.
type connKey struct{}

// Context returns the context of the requests of a connection.
func (c *Connections) Context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// of returns the connection of a request, or nil. c.mu is held.
func (c *Connections) of(ctx context.Context) *connection {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	return c.open[conn]
}

// Asks reports whether no client has authenticated yet on the connection of a request. The time until the
// answer, which no longer depends on the client, is then not part of its grace.
func (c *Connections) Asks(ctx context.Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.of(ctx)
	if conn == nil || !conn.stranger {
		return false
	}
	conn.arrived = time.Now().Add(c.answerTime)
	return true
}

// Authenticated records that a client has authenticated on the connection of a request. It reports whether
// the request has a connection.
func (c *Connections) Authenticated(ctx context.Context) bool {
	conn, ok := ctx.Value(connKey{}).(net.Conn)
	if ok {
		c.know(conn)
	}
	return ok
}

func (c *Connections) know(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own := c.open[conn]; own != nil {
		c.forgetStranger(own)
	}
	host := hostOf(conn)
	if host == "" {
		return
	}
	if len(c.known) >= maxKnown {
		clear(c.known)
	}
	c.known[host] = true
}

// Crowded reports whether connections should close after their answers: a quarter or less is left.
func (c *Connections) Crowded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open) > c.most-c.most/4
}

// Open returns the number of open connections, and of strangers among them.
func (c *Connections) Open() (all, strangers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open), c.unknown
}

// Add adds a new connection.
func (c *Connections) Add(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := &connection{Conn: conn, host: hostOf(conn), stranger: true, arrived: time.Now()}
	c.open[conn] = own
	c.unknown++
	c.strangers[own.host] = append(c.strangers[own.host], own)
	if own.host == "" || len(c.strangers[own.host]) <= max(c.mostStrangers/4, 1) {
		return
	}
	oldest := slices.MinFunc(c.strangers[own.host], byArrival)
	if !c.known[own.host] || time.Since(oldest.arrived) > strangerGrace {
		c.end(oldest)
	}
}

func byArrival(x, y *connection) int { return x.arrived.Compare(y.arrived) }

// SetIdle records that a connection waits for its next request, or has one.
func (c *Connections) SetIdle(conn net.Conn, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.open[conn]
	if own == nil {
		return
	}
	c.use(own)
	if idle {
		own.idle, own.idleFrom = c.idle.PushBack(own), time.Now()
		c.signal()
	}
}

// use records that a connection is not idle. c.mu is held.
func (c *Connections) use(own *connection) {
	if own.idle != nil {
		c.idle.Remove(own.idle)
		own.idle = nil
	}
}

// Remove removes a connection that has ended. It does nothing if the connection is not open.
func (c *Connections) Remove(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own := c.open[conn]; own != nil {
		c.forget(own)
	}
}

// forget removes a connection. c.mu is held.
func (c *Connections) forget(own *connection) {
	delete(c.open, own.Conn)
	c.use(own)
	c.forgetStranger(own)
	c.signal()
}

// forgetStranger removes a connection from the strangers. c.mu is held.
func (c *Connections) forgetStranger(own *connection) {
	if !own.stranger {
		return
	}
	own.stranger = false
	c.unknown--
	i := slices.Index(c.strangers[own.host], own)
	c.strangers[own.host] = slices.Delete(c.strangers[own.host], i, i+1)
	if len(c.strangers[own.host]) == 0 {
		delete(c.strangers, own.host)
	}
	c.signal()
}

// end closes a connection. c.mu is held.
func (c *Connections) end(own *connection) {
	c.forget(own)
	conn := own.Conn
	// A peer that does not read could block the close notification of TLS.
	if encrypted, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = encrypted.NetConn()
	}
	conn.Close()
}

// signal wakes the goroutine that waits for room. c.mu is held.
func (c *Connections) signal() {
	select {
	case c.freed <- struct{}{}:
	default:
	}
}

// room returns how long to wait for room for one more connection. It closes connections to make room.
func (c *Connections) room() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.idleRoom(), c.strangerRoom())
}

// idleRoom is room at the bound of all connections. It closes a connection only after a second of idling.
// c.mu is held.
func (c *Connections) idleRoom() time.Duration {
	if len(c.open) < c.most {
		return 0
	}
	first := c.idle.Front()
	if first == nil {
		// The wait ends earlier when a connection is removed.
		return time.Minute
	}
	oldest := first.Value.(*connection)
	// The client of a fresher connection may be about to reuse it.
	if left := time.Until(oldest.idleFrom.Add(idleGrace)); left > 0 {
		return left
	}
	c.end(oldest)
	return 0
}

// strangerRoom is room at the bound of strangers. c.mu is held.
func (c *Connections) strangerRoom() time.Duration {
	if c.unknown < c.mostStrangers {
		return 0
	}
	var oldest *connection
	for _, of := range c.strangers {
		first := slices.MinFunc(of, byArrival)
		if oldest == nil || byArrival(first, oldest) < 0 {
			oldest = first
		}
	}
	if left := time.Until(oldest.arrived.Add(strangerGrace)); left > 0 {
		return left
	}
	c.end(oldest)
	return 0
}

// hostOf returns the remote address of a connection from another machine, else "".
func hostOf(conn net.Conn) string {
	tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() {
		return ""
	}
	return tcp.IP.String()
}

// Listener returns a listener that accepts a connection of l once there is room for it. After ended is
// closed, as l is, it waits no longer.
func (c *Connections) Listener(l net.Listener, ended <-chan struct{}) net.Listener {
	return &listener{l, c, ended}
}

type listener struct {
	net.Listener
	connections *Connections
	ended       <-chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		wait := l.connections.room()
		if wait == 0 {
			return l.Listener.Accept()
		}
		select {
		case <-l.connections.freed:
		case <-time.After(wait):
		case <-l.ended:
			// This returns the error of the closed listener.
			return l.Listener.Accept()
		}
	}
}
