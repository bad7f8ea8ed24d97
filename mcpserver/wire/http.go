package wire

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"golang.org/x/time/rate"
)

// HTTPOptions are the parameters of NewHTTP. The zero value of every field is its default.
type HTTPOptions struct {
	// Path is the endpoint of both protocol eras; "" means "/mcp".
	Path string
	// Hosts are accepted in the Host header in addition to loopback names and the address that the
	// connection came to: a name, which includes every port, or name:port.
	Hosts []string
	// Origins, such as "https://app.example.com", are accepted in the Origin header in addition to
	// origins with loopback names, and get CORS answers.
	Origins []string
	// SameHost says that of origins with loopback names only that of the server itself is accepted, as when
	// clients do not authenticate: a page of any other program of the machine could call then.
	SameHost bool
	// Authenticate returns the context and the name of the principal that sent r. When it
	// reports false it has answered. Nil means that every client is the one principal "".
	Authenticate func(w http.ResponseWriter, r *http.Request) (ctx context.Context, principal string, ok bool)
	// Shared says that there are several principals. Each may take half of each limit below.
	Shared bool
	// Public answers requests for other paths, behind the Host and Origin guard but before
	// authentication. Nil answers 404.
	Public http.Handler
	// Ready answers /readyz. Nil means always.
	Ready func() bool
	// SessionKey marks the ids of protocol sessions: a server with the same key accepts the ids that one
	// before it gave, each from its principal. Nil makes a key that ends with the server.
	SessionKey []byte
	// SessionEnded is called with the id of each protocol session that ended; with Spread only of each that
	// its client ended, as other servers may have the others. It must not block.
	SessionEnded func(id string)
	// OnlySessions reports whether a client is not offered 2026-07-28, which has no sessions: its
	// server/discover is refused, and such a client then sends initialize. Nil offers it to all.
	OnlySessions func(client mcp.Implementation) bool
	// Forward answers a request by the server with an address, to which it sends body; see [Forward]. Its
	// error is ErrMisdirected if that server is not the one, or no server is there, and nothing was written.
	// Nil: there are no other servers.
	Forward func(w http.ResponseWriter, r *http.Request, body []byte, address string) error
	// Spread gives what a client of a protocol session sends that is no request to the other servers: an
	// answer, a cancellation, or the end of the session. It returns once one has taken it, which it answers
	// 202, or none has in time, also if the client has left. Its error says that one that was not reached
	// may be the one to take it. It is nil if Forward is.
	Spread func(r *http.Request, body []byte) error

	MaxBody int64 // most bytes of a body; 0 means 4 MiB
	// MaxInFlight is how many requests may be read at a time, and how many may run; 0 means 256. Further ones
	// wait for some seconds and are then answered 503. Pings, streams and requests that yielded their slot
	// are not counted.
	MaxInFlight int
	// Patience is how long a request waits until others that run have ended; 0 means 10 s.
	Patience   time.Duration
	MaxStreams int // most GET streams and subscriptions that are open; 0 means 1024
	// MaxSessions is how many protocol sessions may exist; 0 means 2048. A new session beyond them ends the
	// one that was idle longest of whoever has the most.
	MaxSessions int
	// MaxStrangers is how many connections may be open on which nobody has authenticated; 0 and more than
	// 1024 mean 1024. Of another machine's address there may be a quarter. A connection beyond them ends the
	// oldest one that is three seconds old; each ends after its first answer.
	MaxStrangers int
	// MaxConnections is how many connections may be open; 0 means 65,536. A connection beyond them ends the
	// one that was idle longest, or waits until one ends. Streams take half of them at most.
	MaxConnections int
	SessionIdle    time.Duration // how long an unused protocol session is kept; 0 means 1 h
	Memory         int64         // bytes that the process may take; 0 means any
	Rate           rate.Limit    // requests a second of each principal; 0 sets no limit
	Burst          int           // requests at once
	KeepAlive      time.Duration // how often a silent stream carries a comment; 0 means 15 s
	WriteTimeout   time.Duration // how long a client may fail to take what is written; 0 means 30 s
	Drain          time.Duration // how long calls may finish after the end was asked for; 0 means 2 s
}

// Check reports what NewHTTP would refuse: a host or origin of the wrong form.
func (o *HTTPOptions) Check() error {
	_, err := newGuard(o, nil)
	return err
}

// HTTP serves many clients over Streamable HTTP, both protocol eras on one endpoint. Use [HTTP.Serve]; a
// handler alone would miss the limits of the connection.
//
// # Order of the checks
//
// Host and Origin on every verb and path, authentication, headers sent twice, rate, form of the
// body, concurrency, body limit, envelope and keys of params, session, and then versions, headers and
// _meta.
//
// # Sessions
//
// A session of the older revisions belongs to the principal that sent initialize; for anyone else
// it does not exist. If it ended for lack of use or of room, or with an earlier process that had the same
// key, it is opened again by its id: so servers with the same key, which Forward and Spread connect, all
// serve it. The revision 2026-07-28 has no sessions; its requests are independent.
//
// # Cancellation
//
// A call ends with cause [ErrDisconnected] when its client closes the connection, and with [ErrCanceled] when
// the same session cancels it. A call that its client cancelled gets an empty stream; a connection that its
// client closed, even for sending only, is closed without an answer to calls that were not done.
type HTTP struct {
	opts       HTTPOptions
	dispatcher *Dispatcher
	guard      *guard
	rates      *rates
	bodies     *quota // requests being read
	decoding   *quota // bytes of messages being read and decoded
	memory     *quota // bytes that files, pictures and answers take
	waiting    *quota // bytes of requests that are decoded, or yielded their slot
	calls      *quota
	streams    *quota
	listens    *quota // subscriptions, which are streams too
	spreads    *quota // what is given to other servers
	strangers  *strangers
	conns      *conns
	sessions   *sessionTable
	leaves     func() // ends what the audience hears of

	base     context.Context // ends with the last call
	abort    context.CancelCauseFunc
	hangUp   context.Context // ends when the end was asked for
	endInput context.CancelFunc
	forwards sync.RWMutex // held to read by each request that another server has forwarded
	requests atomic.Uint64
	audience *audience
}

// maxWaiting is how many bytes the messages of requests that are decoded may have: a request holds its
// message until it is answered.
const maxWaiting = 64 << 20

// maxSpreads is how much is given to the other servers at a time.
const maxSpreads = 64

// NewHTTP returns a handler that serves d. [HTTP.Serve] must be called for it to end.
//
// Errors: the errors of [HTTPOptions.Check].
func NewHTTP(d *Dispatcher, opts HTTPOptions) (*HTTP, error) {
	guard, err := newGuard(&opts, d.logger())
	if err != nil {
		return nil, err
	}
	opts.Path = cmp.Or(opts.Path, "/mcp")
	opts.MaxBody = cmp.Or(opts.MaxBody, 4<<20)
	opts.MaxInFlight = cmp.Or(opts.MaxInFlight, 256)
	opts.Patience = cmp.Or(opts.Patience, 10*time.Second)
	opts.MaxStreams = cmp.Or(opts.MaxStreams, 1024)
	opts.MaxSessions = cmp.Or(opts.MaxSessions, 2048)
	opts.MaxConnections = cmp.Or(opts.MaxConnections, 1<<16)
	opts.MaxStreams = min(opts.MaxStreams, max(opts.MaxConnections/2, 1))
	opts.MaxStrangers = min(cmp.Or(opts.MaxStrangers, 1024), 1024)
	opts.SessionIdle = cmp.Or(opts.SessionIdle, time.Hour)
	opts.KeepAlive = cmp.Or(opts.KeepAlive, 15*time.Second)
	opts.WriteTimeout = cmp.Or(opts.WriteTimeout, 30*time.Second)
	opts.Drain = cmp.Or(opts.Drain, 2*time.Second)
	share := 1
	if opts.Shared {
		share = 2 // so that one principal cannot keep all others out
	}
	h := &HTTP{
		opts:       opts,
		guard:      guard,
		dispatcher: d,
		rates:      &rates{limit: opts.Rate, burst: max(opts.Burst, 1), each: make(map[string]*rate.Limiter)},
		bodies:     newQuota(opts.MaxInFlight, share),
		decoding:   newDecoding(int(opts.MaxBody)),
		memory:     newMemory(opts.Memory),
		waiting:    newQuota(maxWaiting, 2),
		calls:      newQuota(opts.MaxInFlight, share),
		streams:    newQuota(opts.MaxStreams, share),
		listens:    newQuota(opts.MaxStreams, 1),
		spreads:    newQuota(maxSpreads, share),
		strangers:  newStrangers(opts.MaxStrangers),
		conns:      newConns(opts.MaxConnections),
		audience:   newAudience(),
	}
	h.sessions = newSessionTable(newQuota(opts.MaxSessions, share), h.sessionEnded)
	h.sessions.ids = newIdentities(opts.SessionKey)
	h.base, h.abort = context.WithCancelCause(context.Background())
	h.hangUp, h.endInput = context.WithCancel(h.base)
	h.leaves = d.join(h.audience)
	return h, nil
}

// ServeHTTP answers one request; see the order of the checks above.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	// A connection on which somebody has authenticated may be kept for the next request, no other,
	// and none when there are many.
	if h.strangers.asks(r.Context()) || h.endsConnection(r) {
		header.Set("Connection", "close")
	}
	if done := h.guard.check(w, r); done {
		return
	}
	switch r.URL.Path {
	case "/healthz":
		status(w, r, true)
	case "/readyz":
		status(w, r, h.hangUp.Err() == nil && (h.opts.Ready == nil || h.opts.Ready()))
	case h.opts.Path:
		h.endpoint(w, r)
	default:
		if h.opts.Public == nil {
			http.NotFound(w, r)
			return
		}
		h.opts.Public.ServeHTTP(w, r)
	}
}

// endsConnection reports whether the connection of r ends with its answer, whoever sent it. One with a body
// in chunks does: net/http hides whether there was a Content-Length too, by which a proxy in front may have
// taken the rest of the body for the next request.
func (h *HTTP) endsConnection(r *http.Request) bool {
	return h.conns.crowded() || len(r.TransferEncoding) > 0
}

func status(w http.ResponseWriter, r *http.Request, good bool) {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		refuseVerb(w, "GET, HEAD")
	case good:
		plainText(w, http.StatusOK, "ok")
	default:
		plainText(w, http.StatusServiceUnavailable, "not ready")
	}
}

// endpoint answers a request for the protocol's own path.
func (h *HTTP) endpoint(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPost, http.MethodGet, http.MethodDelete:
	default:
		refuseVerb(w, "POST, GET, DELETE")
		return
	}
	ctx, principal := r.Context(), ""
	if h.opts.Authenticate != nil {
		var ok bool
		ctx, principal, ok = h.opts.Authenticate(w, r)
		if !ok {
			return
		}
	}
	if conn, ok := ctx.Value(connKey{}).(net.Conn); ok {
		h.strangers.know(conn)
		if !h.endsConnection(r) {
			w.Header().Del("Connection")
		}
	}
	r = r.WithContext(ctx)
	if name := ambiguous(r); name != "" {
		plainText(w, http.StatusBadRequest, "duplicate header "+name+" with different values")
		return
	}
	// The rate is of a principal, so strangers cannot use it up.
	if wait, ok := h.rates.take(principal); !ok {
		retryLater(w, http.StatusTooManyRequests, wait, "too many requests")
		return
	}
	switch r.Method {
	case http.MethodPost:
		h.post(w, r, principal)
	case http.MethodGet:
		h.get(w, r, principal)
	default:
		h.delete(w, r, principal)
	}
}
