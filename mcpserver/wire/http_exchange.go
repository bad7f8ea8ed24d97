package wire

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// exchange is one POST, from its message to the end of its response.
type exchange struct {
	h         *HTTP
	w         http.ResponseWriter
	r         *http.Request
	principal string
	msg       *message
	modern    bool
	protocol  *httpSession // nil on 2026-07-28, and if the client named no valid session
	session   *callSession // the session for handlers; nil without one
	decoded   func()       // releases the memory reserved for decoding

	// For requests only.
	owner  *httpSession // protocol, or a new one
	opened bool         // the session was added or entered
	call   *call
	stream *httpStream
	out    *lineWriter
}

// request answers a request, once there is a slot for it.
func (ex *exchange) request() {
	h, r, method := ex.h, ex.r, ex.msg.method
	if method == string(mcp.MethodServerDiscover) && h.opts.OnlySessions != nil {
		said := ex.msg.protocol()
		if said.client != nil && h.opts.OnlySessions(*said.client) {
			failure := unsupported(said.version, Versions()[1:])
			failure.Message = "this client is served in sessions only: send initialize"
			h.writeRefusal(ex.w, http.StatusBadRequest, ex.msg.id, failure)
			return
		}
	}
	ex.call = &call{
		msg:    ex.msg,
		key:    idKey(ex.msg.id),
		listen: method == string(mcp.MethodSubscriptionsListen),
		ping:   method == string(mcp.MethodPing),
	}
	slots, patience := h.calls, h.opts.Patience
	if ex.call.listen {
		if !acceptsEvents(r.Header.Values("Accept")) { // it would wait forever and hold a slot
			plainText(ex.w, http.StatusNotAcceptable, notEvents)
			return
		}
		slots, patience = h.streams, 0
	}
	if ex.call.listen && h.listens.take(ex.principal, 1) {
		defer h.listens.leave(ex.principal, 1)
	}
	leave := func() {}
	// 2026-07-28 has no sessions, so each request gets its own.
	opening := method == string(mcp.MethodInitialize) && !ex.modern
	switch {
	case opening:
		ex.owner = h.newSession(r.Context(), ex.principal, int(8*h.opts.MaxBody))
		defer func() {
			if !ex.opened { // the session was not opened
				ex.owner.end(ErrDisconnected)
				h.audience.remove(ex.owner.announcer)
			}
		}()
	case ex.modern:
		id := "request-" + strconv.FormatUint(h.requests.Add(1), 10)
		ex.owner = &httpSession{session: &session{id: id}}
	default:
		ex.owner = ex.protocol
	}
	ex.stream = newHTTPStream(ex.w, r, h.opts.WriteTimeout)
	ex.out = newLineWriter(ex.stream)
	// The context of the HTTP request ends without a cause, but handlers need to know why a call ended.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	ends := []context.Context{r.Context(), h.base}
	switch {
	case ex.call.listen:
		ends[1] = h.hangUp
	case ex.owner.base != nil:
		ends[1] = ex.owner.base
	}
	for _, end := range ends {
		defer context.AfterFunc(end, func() { cancel(ErrDisconnected) })()
	}
	ex.call.ctx, ex.call.cancel = ctx, cancel
	defer ex.out.retire()
	ex.session = newCallSession(h.hangUp, ex.owner.session, ex.msg, ex.out, h.audience)
	ex.call.session = ex.session
	ex.session.deaf = !ex.stream.events
	ex.session.alone = func() bool {
		return h.sessions.room.taken(ex.principal)+h.listens.taken(ex.principal) <= 1
	}
	// Memory for the message replaces the reservation for decoding, or the slot. The two functions are called
	// only by the handler of this call.
	waiting := 0
	ex.session.decoded = sync.OnceValue(func() bool {
		if !h.waiting.take(ex.principal, len(ex.msg.raw)) {
			return false
		}
		waiting = len(ex.msg.raw)
		ex.decoded()
		return true
	})
	ex.session.yield = sync.OnceValue(func() bool {
		if !ex.session.decoded() {
			return false
		}
		leave()
		return true
	})
	defer func() { h.waiting.leave(ex.principal, waiting) }()
	ex.session.ledger = &ledger{memory: h.memory, principal: ex.principal}
	defer ex.session.ledger.close()
	if calls := ex.owner.calls; calls != nil {
		switch ok, failure := calls.add(ex.call); {
		case failure != nil:
			h.writeRefusal(ex.w, http.StatusOK, ex.msg.id, failure)
			return
		case !ok:
			retryLater(ex.w, http.StatusServiceUnavailable, busyWait, "the session has ended")
			return
		}
		defer calls.leave(ex.call)
	}
	if !ex.call.ping {
		// From here on the client can cancel the call.
		if !slots.wait(ctx, ex.principal, 1, patience) {
			if ctx.Err() != nil {
				ex.empty()
			} else {
				retryLater(ex.w, http.StatusServiceUnavailable, busyWait, "too many requests in flight")
			}
			return
		}
		leave = sync.OnceFunc(func() { slots.leave(ex.principal, 1) })
		defer leave()
	}
	ex.run(opening)
}

// run answers the request; opening is set if the request opens a session.
func (ex *exchange) run(opening bool) {
	d := ex.h.dispatcher
	if !opening { // a stream could not send the id of the new session
		defer keepAlive(ex.out, ex.h.opts.KeepAlive).Stop()
	}
	ctx := withSession(ex.call.ctx, ex.session)
	var result any
	var failure *Error
	begin := time.Now()
	for again, done := true, false; again; {
		result, failure = d.guard(ctx, ex.msg, ex.respond)
		done, again = ex.forwarded()
		if done {
			ex.session.finish()
			return
		}
		again = again && ctx.Err() == nil && time.Since(begin) < forwardPatience
		if again {
			time.Sleep(forwardPause)
		}
	}
	ex.session.finish()
	status := http.StatusOK
	switch {
	case result != nil || failure != nil:
	case ex.call.listen && ex.h.hangUp.Err() != nil && ex.r.Context().Err() == nil:
		// The stream ends because the server is stopping.
		ex.out.hungUp(ex.msg.id)
		result = listened(ex.msg.id)
		d.decorate(result)
	default:
		ex.empty()
		return
	}
	// A session exists only once its initialize request was accepted.
	if opening && failure == nil {
		// Set the id first: announcements read it.
		ex.owner.id = ex.h.sessions.ids.give(ex.principal, ex.owner.said())
		ex.h.audience.add(ex.owner.announcer)
		ex.opened = ex.h.sessions.add(ex.owner)
		if !ex.opened {
			ex.out.retire()
			retryLater(ex.w, http.StatusServiceUnavailable, busyWait, "too many sessions")
			return
		}
		ex.w.Header().Set(HeaderSession, ex.owner.id)
	}
	if failure != nil && ex.modern {
		status = statusOf(failure.Code)
	}
	line := d.encode(ctx, ex.msg, result, failure)
	if len(line) > shortAnswer && !ex.session.ledger.answer(ctx, len(line)) {
		line = d.encode(ctx, ex.msg, nil, &Error{Code: CodeBusy,
			Message: "the request was carried out, and there is no room for its answer: read the others"})
	}
	answered := false
	ex.out.writeIf(line, func() bool {
		answered = ex.r.Context().Err() == nil
		if ex.owner.calls != nil {
			answered = ex.owner.calls.settle(ex.call)
		}
		ex.stream.answer, ex.stream.status = answered, status
		return answered
	})
	if !answered {
		ex.empty()
	}
}

// shortAnswer is the size in bytes up to which answers are not charged to the memory quota.
const shortAnswer = 64 << 10

// respond returns the result of the request; nil without an error if the client no longer waits for it.
func (ex *exchange) respond(ctx context.Context) (result any, failure *Error) {
	if ex.modern {
		failure = ex.checkVersions()
		if failure != nil {
			return nil, failure
		}
	}
	result, failure = ex.h.dispatcher.respond(ctx, ex.session, ex.r.Header)
	if ctx.Err() != nil {
		return nil, nil
	}
	return result, failure
}

// statusOf returns the HTTP status of an error of 2026-07-28.
func statusOf(code int) int {
	switch code {
	case mcp.METHOD_NOT_FOUND:
		return http.StatusNotFound
	case mcp.INVALID_PARAMS, mcp.INVALID_REQUEST, mcp.PARSE_ERROR,
		mcp.HEADER_MISMATCH, mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, mcp.UNSUPPORTED_PROTOCOL_VERSION:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// empty ends a response without an answer. A client that cancelled its call gets an empty stream. In other
// cases an empty stream could be taken for success, so the connection is closed instead: a client that closed
// its sending side may still read, the end of the server may have ended the call, or another server may have
// forwarded the request.
func (ex *exchange) empty() {
	ex.out.retire()
	switch {
	case ex.r.Context().Err() != nil, ex.h.base.Err() != nil,
		IsForwarded(ex.r.Context()) && !errors.Is(context.Cause(ex.call.ctx), ErrCanceled):
		panic(http.ErrAbortHandler)
	case ex.stream.begun:
	case ex.stream.events:
		ex.stream.begin()
	case IsForwarded(ex.r.Context()): // an earlier version's 202 does not say that it was cancelled
		ex.w.WriteHeader(http.StatusNoContent)
	default:
		ex.w.WriteHeader(http.StatusAccepted)
	}
}

// Forward makes the server at address answer the request of ctx, instead of the handler's answer. An empty
// address means that this server, to which the request was forwarded, does not have the session; so does any
// address then, because a request is forwarded only once. Nothing may have been sent to the client yet, and
// the handler may be called again. Without [HTTPOptions.Forward] it does nothing.
func Forward(ctx context.Context, address string) {
	if s := callSessionOf(ctx); s != nil {
		if IsForwarded(ctx) {
			address = ""
		}
		s.forward.Store(&address)
	}
}

// forwardPatience is how long the other server is searched for, with forwardPause between attempts;
// cancelPatience is how long the end of a cancelled call may take.
const (
	forwardPatience = 5 * time.Second
	forwardPause    = 20 * time.Millisecond
	cancelPatience  = 2 * time.Second
)

// ErrMisdirected is the error of forwarding a request to a server that does not have its session. Nothing was
// written to the client, and the handler of the request is called again.
var ErrMisdirected = errors.New("the other server does not answer this request")

type forwardedKey struct{}

// IsForwarded reports whether the request of ctx was forwarded by another server.
func IsForwarded(ctx context.Context) bool { return ctx.Value(forwardedKey{}) != nil }

// ServeForwarded answers a request that another server has forwarded or spread, after that server made all
// checks up to the rate. If this server does not have the session, or is stopping, it answers 421.
func (h *HTTP) ServeForwarded(w http.ResponseWriter, r *http.Request, principal string) {
	lives := h.forwards.TryRLock()
	if lives {
		defer h.forwards.RUnlock()
	}
	lives = lives && h.hangUp.Err() == nil
	switch {
	case lives && r.Method == http.MethodPost:
		h.post(w, r.WithContext(context.WithValue(r.Context(), forwardedKey{}, true)), principal)
	case lives && r.Method == http.MethodDelete:
		h.forget(r.Header.Get(HeaderSession), principal)
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusMisdirectedRequest)
	}
}

// forwarded sends the request to another server if its handler called Forward. done reports whether the
// request was answered, again whether the handler must be called again.
func (ex *exchange) forwarded() (done, again bool) {
	if ex.h.opts.Forward == nil {
		return false, false
	}
	to := ex.session.forward.Swap(nil)
	if to == nil {
		return false, false
	}
	if ex.owner.calls != nil && !ex.owner.calls.sendAway(ex.call) {
		return false, false
	}
	ex.session.yield() // the wait on the other server needs no slot here
	ctx, cancel := context.WithCancel(ex.r.Context())
	defer cancel()
	// Wait a moment after a cancellation, which may reach the other server before the request does.
	defer context.AfterFunc(ex.call.ctx, func() { time.AfterFunc(cancelPatience, cancel) })()
	canceled := func() bool { return errors.Is(context.Cause(ex.call.ctx), ErrCanceled) }
	ex.out.handOver(func() bool {
		switch {
		case ex.stream.begun:
			return false // too late; the client gets the handler's error
		case *to == "":
			ex.w.WriteHeader(http.StatusMisdirectedRequest)
			done = true
		default:
			err := ex.h.opts.Forward(ex.w, ex.r.WithContext(ctx), ex.msg.raw, *to)
			again = errors.Is(err, ErrMisdirected)
			done = !again && !(err != nil && canceled())
			if err != nil && done {
				ex.h.dispatcher.logPrivate(ex.call.ctx, ex.msg, err.Error())
				ex.h.writeRefusal(ex.w, http.StatusOK, ex.msg.id, &Error{Code: mcp.INTERNAL_ERROR,
					Message: "the server that has the session did not answer; what it did is not known"})
			}
		}
		return done
	})
	return done, again
}
