package wire

import (
	"cmp"
	"context"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"golang.org/x/time/rate"

	"github.com/skillsd/skillsd/mcpserver/admit"
)

// HTTPOptions are the parameters of NewHTTP. The zero value of every field is its default.
type HTTPOptions struct {
	// Path is the endpoint of both protocol eras; "" means "/mcp".
	Path string
	// Hosts are accepted in the Host header in addition to loopback names and the address of the connection:
	// a name, which includes every port, or name:port.
	Hosts []string
	// Origins, such as "https://app.example.com", are accepted in the Origin header in addition to origins
	// with loopback names, and get CORS answers.
	Origins []string
	// SameHost accepts, among origins with loopback names, only the server's own. It is for servers without
	// authentication, which a page of any other program on the machine could call.
	SameHost bool
	// Authenticate returns the context and the principal of r. If it returns false, it has sent an answer.
	// Nil means that all clients are the one principal "".
	Authenticate func(w http.ResponseWriter, r *http.Request) (ctx context.Context, principal string, ok bool)
	// Shared is set if there are several principals. Each may then use half of each limit below.
	Shared bool
	// Public answers requests for other paths, after the checks of Host and Origin but before authentication.
	// Nil answers 404.
	Public http.Handler
	// Ready answers /readyz. Nil means always ready.
	Ready func() bool
	// SessionKey signs the ids of protocol sessions: a server with the same key accepts ids that an earlier
	// server issued, each from its own principal. Nil generates a key for this process.
	SessionKey []byte
	// SessionEnded is called with the id of each protocol session that ended. With Spread it is called only
	// for sessions that their client ended, because other servers may still have the others. It must not
	// block.
	SessionEnded func(id string)
	// OnlySessions reports whether a client is not offered 2026-07-28, which has no sessions: its
	// server/discover is refused, and such a client then sends initialize. Nil offers 2026-07-28 to all
	// clients.
	OnlySessions func(client mcp.Implementation) bool
	// Forward sends the request with the body to the server at address and relays its answer; see [Forward].
	// It returns ErrMisdirected, with nothing written, if that server does not have the session or cannot be
	// found. Nil: there are no other servers.
	Forward func(w http.ResponseWriter, r *http.Request, body []byte, address string) error
	// Spread sends a message of a client of a protocol session that is not a request (an answer, a
	// cancellation, or the end of the session) to the other servers. It returns once one of them has taken
	// it, which is answered 202, or none has in time, even if the client has disconnected. It returns an
	// error if a server that was not reached may be the right one. It is nil if and only if Forward is nil.
	Spread func(r *http.Request, body []byte) error

	MaxBody int64 // maximum size of a body in bytes; 0 means 4 MiB
	// MaxInFlight is the maximum of requests being read at a time, and of requests running at a time; 0 means
	// 256. Further requests wait for some seconds and are then answered 503. Pings, streams and requests that
	// yielded their slot are exempt.
	MaxInFlight int
	// Patience is how long a request waits for a free slot; 0 means 10 s.
	Patience   time.Duration
	MaxStreams int // maximum of open GET streams and subscriptions; 0 means 1024
	// MaxSessions is the maximum of protocol sessions; 0 means 2048. A new session beyond it ends the longest
	// idle session of the principal with the most sessions.
	MaxSessions int
	// MaxStrangers is the maximum of open connections without authentication; 0 and more than 1024 mean 1024.
	// One address of another machine may have a quarter of them. A connection beyond the maximum ends the
	// oldest one that is at least three seconds old; each ends after its first answer.
	MaxStrangers int
	// MaxConnections is the maximum of open connections; 0 means 65,536. A connection beyond it ends the
	// longest idle one, or waits until one ends. Streams take at most half of them.
	MaxConnections int
	SessionIdle    time.Duration // how long an unused protocol session is kept; 0 means 1 h
	Memory         int64         // memory limit of the process in bytes; 0 means unlimited
	Rate           rate.Limit    // requests per second of each principal; 0 means unlimited
	Burst          int           // burst of requests of each principal
	KeepAlive      time.Duration // interval of comments on a silent stream; 0 means 15 s
	WriteTimeout   time.Duration // how long a client may take to read what is written; 0 means 30 s
	Drain          time.Duration // how long calls may continue after shutdown begins; 0 means 2 s
}

// Check returns the error that NewHTTP would return: a host or origin of the wrong form.
func (o *HTTPOptions) Check() error {
	_, err := newGuard(o, nil)
	return err
}

// HTTP serves many clients over Streamable HTTP, both protocol eras on one endpoint. Use [HTTP.Serve]: the
// handler alone lacks the limits of connections.
//
// # Order of the checks
//
// Host and Origin on every verb and path; authentication; duplicate headers; rate; form of the body;
// concurrency; size of the body; envelope and keys of params; session; and then versions, headers and _meta.
//
// # Sessions
//
// A session of the older revisions belongs to the principal that sent initialize; for others it does not
// exist. If it ended because it was idle or room was needed, or with an earlier process with the same key, it
// is reopened by its id. Servers with the same key, connected by Forward and Spread, therefore all serve it.
// The revision 2026-07-28 has no sessions; its requests are independent.
//
// # Cancellation
//
// A call ends with cause [ErrDisconnected] when its client closes the connection, and with [ErrCanceled] when
// the same session cancels it. A call that its client cancelled gets an empty stream. If a client closes its
// connection, even only for sending, its unfinished calls get no answer.
type HTTP struct {
	opts       HTTPOptions
	dispatcher *Dispatcher
	guard      *guard
	rates      *admit.Rates
	bodies     *admit.Quota // requests being read
	decoding   *admit.Quota // bytes of messages being read and decoded
	memory     *admit.Quota // bytes taken by files, pictures and answers
	waiting    *admit.Quota // bytes of requests that are decoded, or yielded their slot
	calls      *admit.Quota
	streams    *admit.Quota
	listens    *admit.Quota // subscriptions, which are streams too
	spreads    *admit.Quota // messages being sent to other servers
	conns      *admit.Connections
	sessions   *sessionTable
	leaves     func() // unregisters the audience

	base     context.Context // ends with the last call
	abort    context.CancelCauseFunc
	hangUp   context.Context // ends when shutdown begins
	endInput context.CancelFunc
	forwards sync.RWMutex // read-locked by each request that another server has forwarded
	requests atomic.Uint64
	audience *audience
}

// maxWaiting is the maximum size in bytes of the messages of decoded requests: a request keeps its message
// until it is answered.
const maxWaiting = 64 << 20

// maxSpreads is the maximum of messages being sent to other servers at a time.
const maxSpreads = 64

// NewHTTP returns a handler that serves d. [HTTP.Serve] must be called to release its resources.
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
		// One principal must not lock out all others.
		share = 2
	}
	h := &HTTP{
		opts:       opts,
		guard:      guard,
		dispatcher: d,
		rates:      admit.NewRates(opts.Rate, opts.Burst),
		bodies:     newQuota(opts.MaxInFlight, share),
		decoding:   newDecoding(int(opts.MaxBody)),
		memory:     newMemory(opts.Memory),
		waiting:    newQuota(maxWaiting, 2),
		calls:      newQuota(opts.MaxInFlight, share),
		streams:    newQuota(opts.MaxStreams, share),
		listens:    newQuota(opts.MaxStreams, 1),
		spreads:    newQuota(maxSpreads, share),
		conns:      admit.NewConnections(opts.MaxConnections, opts.MaxStrangers, headerTimeout),
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
	// Only an authenticated connection is kept for further requests, and not even that if there are too many.
	if h.conns.Asks(r.Context()) || h.endsConnection(r) {
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

// endsConnection reports whether the connection of r must close after the answer, regardless of the
// principal. It closes after a chunked body: net/http hides a Content-Length sent in addition, and a
// proxy that used it may have taken the rest of the body for the next request.
func (h *HTTP) endsConnection(r *http.Request) bool {
	return h.conns.Crowded() || len(r.TransferEncoding) > 0
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

// endpoint answers a request for the path of the protocol.
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
	if h.conns.Authenticated(ctx) && !h.endsConnection(r) {
		w.Header().Del("Connection")
	}
	r = r.WithContext(ctx)
	if name := ambiguous(r); name != "" {
		plainText(w, http.StatusBadRequest, "duplicate header "+name+" with different values")
		return
	}
	// The rate is counted per principal, so clients without authentication cannot use it up.
	if wait, ok := h.rates.Take(principal); !ok {
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

// retryLater refuses a request that may be sent again after wait.
func retryLater(w http.ResponseWriter, status int, wait time.Duration, text string) {
	w.Header().Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(wait.Seconds())))))
	plainText(w, status, text)
}

// refuseVerb refuses a verb where others are allowed.
func refuseVerb(w http.ResponseWriter, allowed string) {
	w.Header().Set("Allow", allowed)
	plainText(w, http.StatusMethodNotAllowed, "method not allowed")
}

func plainText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	io.WriteString(w, text+"\n")
}
