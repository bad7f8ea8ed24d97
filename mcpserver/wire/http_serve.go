package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

const (
	headerTimeout  = 10 * time.Second
	bodyTimeout    = 60 * time.Second // for header and body together
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 32 << 10
	sweepEvery     = time.Minute

	// strangerGrace is the minimum life of an unauthenticated connection if there are too many: many honest
	// clients at once take a while to authenticate. idleGrace is the same for a connection between requests.
	strangerGrace = 3 * time.Second
	idleGrace     = time.Second

	// maxKnown is how many addresses with an authenticated client are remembered.
	maxKnown = 10_000
)

// Serve answers the connections of listener until ctx ends; it closes listener. Contexts of [KillAtEOF] and
// all streams then end at once; other calls may continue for Drain. Serve returns nil after that, or the
// error of a listener that failed. It must be called once.
func (h *HTTP) Serve(ctx context.Context, listener net.Listener) error {
	defer h.end()
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      h.opts.WriteTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(h.dispatcher.logger().Handler(), slog.LevelDebug),
		ConnState: func(conn net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				h.conns.add(conn)
				h.strangers.add(conn)
			case http.StateActive:
				h.conns.setIdle(conn, false)
			case http.StateIdle:
				h.conns.setIdle(conn, true)
			case http.StateClosed, http.StateHijacked:
				h.strangers.remove(conn)
				h.conns.remove(conn)
			}
		},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(&patientListener{listener, h.strangers, h.conns, h.hangUp.Done()}) }()
	sweep := time.NewTicker(min(sweepEvery, h.opts.SessionIdle))
	defer sweep.Stop()
	for {
		select {
		case err := <-failed:
			return fmt.Errorf("serve: %w", errors.Join(err, s.Close()))
		case <-sweep.C:
			before := time.Now().Add(-h.opts.SessionIdle)
			h.sessions.end(func(s *httpSession) bool { return s.unused(before) })
		case <-ctx.Done():
			h.shutdown(s)
			<-failed
			return nil
		}
	}
}

// shutdown lets calls finish and ends those that take too long.
func (h *HTTP) shutdown(s *http.Server) {
	// Streams never finish by themselves, and scripts must not outlive their clients.
	h.endInput()
	limit, cancel := context.WithTimeout(context.Background(), h.opts.Drain)
	defer cancel()
	if h.drained(limit, s) {
		return
	}
	h.abort(ErrDisconnected)
	grace, cancel := context.WithTimeout(context.Background(), h.opts.Drain/graceFraction)
	defer cancel()
	if !h.drained(grace, s) {
		s.Close()
	}
}

// drained waits until all requests, including forwarded ones, have ended. It returns false if ctx ends first.
func (h *HTTP) drained(ctx context.Context, s *http.Server) bool {
	forwarded := make(chan struct{})
	go func() {
		h.forwards.Lock()
		defer h.forwards.Unlock()
		close(forwarded)
	}()
	if s.Shutdown(ctx) != nil {
		return false
	}
	select {
	case <-forwarded:
		return true
	case <-ctx.Done():
		return false
	}
}

// end releases the resources of the handler.
func (h *HTTP) end() {
	h.endInput()
	h.sessions.end(func(*httpSession) bool { return true })
	h.abort(ErrDisconnected)
	h.leaves()
}

// strangers tracks the connections without authentication yet. At the limit for all of them, the oldest one
// is closed once its grace has passed, and no connection is accepted before that. One address of another
// machine may have a quarter; beyond it, its oldest connection is closed at once, or after its grace if a
// client has authenticated from that address, which may be a proxy of many clients. Safe for concurrent use.
type strangers struct {
	most int

	mu    sync.Mutex
	since map[net.Conn]time.Time
	known map[string]bool // addresses of other machines with an authenticated client
	freed chan struct{}   // signals that a connection was removed
}

func newStrangers(most int) *strangers {
	return &strangers{most: most, since: make(map[net.Conn]time.Time), known: make(map[string]bool),
		freed: make(chan struct{}, 1)}
}

// connKey is the context key of the connection of a request.
type connKey struct{}

// asks reports whether the connection of a request is not authenticated. Such a connection has until
// headerTimeout for its answer, which no longer depends on the client.
func (s *strangers) asks(ctx context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	_, stranger := s.since[conn]
	if stranger {
		s.since[conn] = time.Now().Add(headerTimeout)
	}
	return stranger
}

func (s *strangers) add(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since[conn] = time.Now()
	host := hostOf(conn)
	if host == "" {
		return
	}
	oldest, n := s.oldest(host)
	if n > max(s.most/4, 1) && (!s.known[host] || time.Since(s.since[oldest]) > strangerGrace) {
		s.end(oldest)
	}
}

// know records that a client has authenticated on a connection.
func (s *strangers) know(conn net.Conn) {
	s.remove(conn)
	host := hostOf(conn)
	if host == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxKnown {
		clear(s.known)
	}
	s.known[host] = true
}

// remove forgets a connection that has ended or has been authenticated.
func (s *strangers) remove(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.since, conn)
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

// oldest returns the oldest connection of a host and the number of its connections; host "" means all. s.mu
// is held.
func (s *strangers) oldest(host string) (conn net.Conn, n int) {
	for c, since := range s.since {
		if host != "" && hostOf(c) != host {
			continue
		}
		n++
		if conn == nil || since.Before(s.since[conn]) {
			conn = c
		}
	}
	return conn, n
}

// end closes a connection. s.mu is held.
func (s *strangers) end(conn net.Conn) {
	delete(s.since, conn)
	hangUp(conn)
}

// hangUp closes a connection without the TLS close notification, which a peer that does not read could block.
func hangUp(conn net.Conn) {
	if encrypted, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = encrypted.NetConn()
	}
	conn.Close()
}

// room returns how long to wait for room for one more connection; it closes one whose grace has passed.
func (s *strangers) room() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.since) < s.most {
		return 0
	}
	conn, _ := s.oldest("")
	if left := time.Until(s.since[conn].Add(strangerGrace)); left > 0 {
		return left
	}
	s.end(conn)
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

// conns tracks all open connections. At the limit, the longest idle one is closed for a new one; close to the
// limit, connections are closed after their answers. Safe for concurrent use.
type conns struct {
	most int

	mu    sync.Mutex
	open  map[net.Conn]time.Time // since when it is idle; zero while in use
	freed chan struct{}          // signals that a connection was removed or became idle
}

func newConns(most int) *conns {
	return &conns{most: most, open: make(map[net.Conn]time.Time), freed: make(chan struct{}, 1)}
}

func (c *conns) add(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[conn] = time.Time{}
}

func (c *conns) remove(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
	c.signal()
}

// signal wakes the goroutine that waits for room. c.mu is held.
func (c *conns) signal() {
	select {
	case c.freed <- struct{}{}:
	default:
	}
}

func (c *conns) setIdle(conn net.Conn, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.open[conn]; !open {
		return
	}
	c.open[conn] = time.Time{}
	if idle {
		c.open[conn] = time.Now()
		c.signal()
	}
}

// crowded reports whether connections should close after their answers: a quarter or less is left.
func (c *conns) crowded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open) > c.most-c.most/4
}

// room returns how long to wait for room for one more connection. It closes a connection only after a second
// of idling, because its client may be about to reuse a fresher one.
func (c *conns) room() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) < c.most {
		return 0
	}
	var oldest net.Conn
	for conn, since := range c.open {
		if !since.IsZero() && (oldest == nil || since.Before(c.open[oldest])) {
			oldest = conn
		}
	}
	if oldest == nil {
		return time.Minute // until one is removed
	}
	if left := time.Until(c.open[oldest].Add(idleGrace)); left > 0 {
		return left
	}
	delete(c.open, oldest)
	hangUp(oldest)
	return 0
}

// patientListener accepts a connection once there is room in conns and strangers.
type patientListener struct {
	net.Listener
	strangers *strangers
	conns     *conns
	ended     <-chan struct{}
}

func (l *patientListener) Accept() (net.Conn, error) {
	for {
		wait := max(l.conns.room(), l.strangers.room())
		if wait == 0 {
			return l.Listener.Accept()
		}
		select {
		case <-l.conns.freed:
		case <-l.strangers.freed:
		case <-time.After(wait):
		case <-l.ended:
			return l.Listener.Accept() // returns the error of the closed listener
		}
	}
}

// get opens the GET stream with notifications of a session of the older revisions.
func (h *HTTP) get(w http.ResponseWriter, r *http.Request, principal string) {
	s := h.enter(w, r, principal)
	if s == nil {
		return
	}
	defer h.leave(s)
	if !acceptsEvents(r.Header.Values("Accept")) {
		plainText(w, http.StatusNotAcceptable, notEvents)
		return
	}
	if !h.streams.take(principal, 1) {
		retryLater(w, http.StatusServiceUnavailable, busyWait, "too many streams")
		return
	}
	defer h.streams.leave(principal, 1)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	for _, end := range []context.Context{h.hangUp, s.base} {
		defer context.AfterFunc(end, cancel)()
	}
	defer s.takeStream(cancel)()
	out := newLineWriter(newHTTPStream(w, r, h.opts.WriteTimeout))
	defer out.retire()
	out.write([]byte(": open"))
	defer keepAlive(out, h.opts.KeepAlive).Stop()
	s.announcer.open() // changes queued since the last stream come first
	s.announcer.run(ctx.Done(), out, out.notify)
}

// delete ends a session of the older revisions.
func (h *HTTP) delete(w http.ResponseWriter, r *http.Request, principal string) {
	s := h.enter(w, r, principal)
	if s == nil {
		return
	}
	defer h.leave(s)
	if h.opts.Spread != nil && !h.maySpread(w, principal) {
		return
	}
	h.forget(s.id, principal)
	if h.opts.Spread != nil && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // the next request on it would wait for the other servers
	}
	w.WriteHeader(http.StatusNoContent)
	if h.opts.Spread != nil {
		defer h.spreads.leave(principal, 1)
		http.NewResponseController(w).Flush() // the client needs nothing more
		_ = h.opts.Spread(r, nil)             // already answered
	}
}

// forget ends a session for its client, even if it is open at other servers only.
func (h *HTTP) forget(id, principal string) {
	if _, genuine := h.sessions.ids.textOf(id, principal); !genuine {
		return
	}
	h.sessions.forget(id)
	if h.opts.Spread != nil && h.opts.SessionEnded != nil {
		h.opts.SessionEnded(id)
	}
}

// enter returns the session that a GET or DELETE names; the caller must leave it. Otherwise it answers and
// returns nil. 2026-07-28 has no such requests.
func (h *HTTP) enter(w http.ResponseWriter, r *http.Request, principal string) *httpSession {
	version, id := r.Header.Get(mcp.HeaderProtocolVersion), r.Header.Get(HeaderSession)
	switch {
	case mcp.IsModernProtocol(version):
		refuseVerb(w, http.MethodPost)
		return nil
	case refusesVersion(w, version):
		return nil
	case id == "" && r.Method == http.MethodGet:
		refuseVerb(w, "POST, DELETE")
		return nil
	case id == "":
		plainText(w, http.StatusBadRequest, "Mcp-Session-Id is missing")
		return nil
	}
	s := h.session(r.Context(), id, principal)
	if s == nil {
		plainText(w, http.StatusNotFound, "Invalid session ID")
	}
	return s
}

// leave ends the use of a session. SessionEnded is called again after the last call of a session that its
// client ended, because that call may have opened or restored something after the end.
func (h *HTTP) leave(s *httpSession) {
	if h.sessions.leave(s) && h.opts.SessionEnded != nil {
		h.opts.SessionEnded(s.id)
	}
}

func (h *HTTP) sessionEnded(s *httpSession) {
	s.end(ErrDisconnected)
	h.audience.remove(s.announcer)
	if h.opts.Spread == nil && h.opts.SessionEnded != nil {
		h.opts.SessionEnded(s.id)
	}
}
