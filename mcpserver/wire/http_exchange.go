package wire

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// exchange is one POST, from its message to the end of its response.
type exchange struct {
	h         *HTTP
	w         http.ResponseWriter
	r         *http.Request
	principal string
	admission *admission
	msg       *message
	modern    bool
	protocol  *httpSession // nil on 2026-07-28, and if the client named no valid session

	// For requests only.
	owner   *httpSession // protocol, or a session of this request alone
	opening bool         // the request is to open owner
	opened  bool         // owner is open
	call    *call
	session *callSession // the session for handlers
	stream  *httpStream
	out     *lineWriter
	detach  func() // see ending
}

// request answers a request, once there is a slot for it.
func (ex *exchange) request() {
	if failure := ex.needsSession(); failure != nil {
		ex.h.writeRefusal(ex.w, http.StatusBadRequest, ex.msg.id, failure)
		return
	}
	ex.call = newCall(ex.msg)
	// Without a stream, the call would occupy its slot forever.
	if ex.call.listen && !acceptsEvents(ex.r.Header.Values("Accept")) {
		plainText(ex.w, http.StatusNotAcceptable, notEvents)
		return
	}
	ex.owner, ex.opening = ex.sessionOf()
	ex.begin()
	if ex.register() && ex.awaitSlot() {
		ex.run()
	}
}

// end releases what the exchange has acquired, and ends its response and its context.
func (ex *exchange) end() {
	ex.admission.release()
	if ex.out != nil {
		ex.out.retire()
		ex.detach()
		ex.call.cancel(nil)
	}
	if ex.opening && !ex.opened {
		ex.owner.end(ErrDisconnected)
		ex.h.audience.remove(ex.owner.announcer)
	}
	if ex.protocol != nil {
		ex.h.leave(ex.protocol)
	}
}

// needsSession returns the error for a server/discover request of a client that is served in sessions only,
// or nil.
func (ex *exchange) needsSession() *Error {
	if ex.msg.method != string(mcp.MethodServerDiscover) || ex.h.opts.OnlySessions == nil {
		return nil
	}
	said := ex.msg.protocol()
	if said.client == nil || !ex.h.opts.OnlySessions(*said.client) {
		return nil
	}
	failure := unsupported(said.version, Versions()[1:])
	failure.Message = "this client is served in sessions only: send initialize"
	return failure
}

// sessionOf returns the session of the request, and whether it is a new one that the request is to open.
func (ex *exchange) sessionOf() (owner *httpSession, opening bool) {
	switch {
	// Version 2026-07-28 has no sessions, so each request gets its own.
	case ex.modern:
		id := "request-" + strconv.FormatUint(ex.h.requests.Add(1), 10)
		return &httpSession{session: &session{id: id}}, false
	case ex.msg.method == string(mcp.MethodInitialize):
		return ex.h.newSession(ex.r.Context(), ex.principal, int(8*ex.h.opts.MaxBody)), true
	}
	return ex.protocol, false
}

// begin makes the context, the response and the session of the call.
func (ex *exchange) begin() {
	ex.call.ctx, ex.call.cancel, ex.detach = ex.ending()
	ex.stream = newHTTPStream(ex.w, ex.r, ex.h.opts.WriteTimeout)
	ex.out = newLineWriter(ex.stream)
	s := newCallSession(ex.h.hangUp, ex.owner.session, ex.msg, ex.out, ex.h.audience)
	s.deaf, s.alone, s.admission = !ex.stream.events, ex.alone, ex.admission
	ex.session, ex.call.session = s, s
}

// ending returns the context of the call. It ends with cause ErrDisconnected once the client disconnects, or
// the server or the session ends; a subscription ends as soon as the server is asked to stop. The context of
// an HTTP request ends without a cause, and handlers need one. detach must be called.
func (ex *exchange) ending() (ctx context.Context, cancel context.CancelCauseFunc, detach func()) {
	ctx, cancel = context.WithCancelCause(context.WithoutCancel(ex.r.Context()))
	base := ex.h.base
	switch {
	case ex.call.listen:
		base = ex.h.hangUp
	case ex.owner.base != nil:
		base = ex.owner.base
	}
	disconnect := func() { cancel(ErrDisconnected) }
	client, server := context.AfterFunc(ex.r.Context(), disconnect), context.AfterFunc(base, disconnect)
	return ctx, cancel, func() {
		client()
		server()
	}
}

// register adds the call to the calls of its session, so that the client can cancel it from here on. It
// returns false if it has sent an answer.
func (ex *exchange) register() bool {
	if ex.call.listen {
		ex.admission.listen = ex.h.listens.Take(ex.principal, 1)
	}
	if ex.owner.calls == nil {
		return true
	}
	ok, failure := ex.admission.join(ex.owner.calls, ex.call)
	switch {
	case failure != nil:
		ex.h.writeRefusal(ex.w, http.StatusOK, ex.msg.id, failure)
	case !ok:
		retryLater(ex.w, http.StatusServiceUnavailable, busyWait, "the session has ended")
	}
	return ok
}

// awaitSlot waits for a slot for the call. It returns false if it has sent an answer. A ping needs none; a
// subscription has one of a stream, or is refused at once.
func (ex *exchange) awaitSlot() bool {
	slots, patience := ex.h.calls, ex.h.opts.Patience
	switch {
	case ex.call.ping:
		return true
	case ex.call.listen:
		slots, patience = ex.h.streams, 0
	}
	ex.admission.slot = slots.Wait(ex.call.ctx, ex.principal, 1, patience, nil)
	switch {
	case ex.admission.slot != nil:
		return true
	case ex.call.ctx.Err() != nil:
		ex.empty()
	default:
		retryLater(ex.w, http.StatusServiceUnavailable, busyWait, "too many requests in flight")
	}
	return false
}

// run calls the handler of the request and writes its answer.
func (ex *exchange) run() {
	// A stream could not send the id of the new session, which is in a header.
	if !ex.opening {
		defer keepAlive(ex.out, ex.h.opts.KeepAlive).Stop()
	}
	ctx := withSession(ex.call.ctx, ex.session)
	result, failure, answered := ex.handle(ctx)
	ex.session.finish()
	if answered {
		return
	}
	if result == nil && failure == nil {
		if !ex.isHungUp() {
			ex.empty()
			return
		}
		ex.out.hungUp(ex.msg.id)
		result = listened(ex.msg.id)
		ex.h.dispatcher.decorate(result)
	}
	if ex.opening && failure == nil && !ex.open() {
		return
	}
	ex.answer(ctx, result, failure)
}

// handle calls the handler of the request. If the handler wants another server to answer, handle forwards the
// request; answered reports whether that server did.
func (ex *exchange) handle(ctx context.Context) (result any, failure *Error, answered bool) {
	begin := time.Now()
	for {
		result, failure = ex.h.dispatcher.guard(ctx, ex.msg, ex.respond)
		done, again := ex.forwarded()
		if done || !again || ctx.Err() != nil || time.Since(begin) >= forwardPatience {
			return result, failure, done
		}
		time.Sleep(forwardPause)
	}
}

// isHungUp reports whether the call is a subscription that ends because the server is stopping.
func (ex *exchange) isHungUp() bool {
	return ex.call.listen && ex.h.hangUp.Err() != nil && ex.r.Context().Err() == nil
}

// open adds the session of an accepted initialize request to the sessions of the server. It returns false if
// it has sent an answer.
func (ex *exchange) open() bool {
	// Set the id first: announcements read it.
	ex.owner.id = ex.h.sessions.ids.give(ex.principal, ex.owner.said())
	ex.h.audience.add(ex.owner.announcer)
	ex.opened = ex.h.sessions.add(ex.owner)
	if !ex.opened {
		ex.out.retire()
		retryLater(ex.w, http.StatusServiceUnavailable, busyWait, "too many sessions")
		return false
	}
	ex.w.Header().Set(HeaderSession, ex.owner.id)
	return true
}

// answer writes the answer to the request, unless its client no longer waits for it.
func (ex *exchange) answer(ctx context.Context, result any, failure *Error) {
	d := ex.h.dispatcher
	if failure != nil && ex.modern {
		ex.stream.status = statusOf(failure.Code)
	}
	line := d.encode(ctx, ex.msg, result, failure)
	// Otherwise a client that reads none of its answers would hold memory without limit.
	if len(line) > shortAnswer && !ex.admission.memory.Raise(ctx, len(line)) {
		line = d.encode(ctx, ex.msg, nil, &Error{Code: CodeBusy,
			Message: "the request was carried out, and there is no room for its answer: read the others"})
	}
	ex.out.writeIf(line, ex.settle)
	if !ex.stream.answer {
		ex.empty()
	}
}

// settle reports whether to write the answer, which the stream then takes for the end of the response.
func (ex *exchange) settle() bool {
	ex.stream.answer = ex.r.Context().Err() == nil
	if ex.owner.calls != nil {
		ex.stream.answer = ex.owner.calls.settle(ex.call)
	}
	return ex.stream.answer
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
// cases the connection is closed.
func (ex *exchange) empty() {
	ex.out.retire()
	switch {
	// An empty stream could be taken for success: a client that closed its sending side may still read, the
	// end of the server may have ended the call, or another server may have forwarded the request.
	case ex.r.Context().Err() != nil, ex.h.base.Err() != nil,
		IsForwarded(ex.r.Context()) && !errors.Is(context.Cause(ex.call.ctx), ErrCanceled):
		panic(http.ErrAbortHandler)
	case ex.stream.begun:
	case ex.stream.events:
		ex.stream.begin()
	// The status 202 of an earlier version does not show that the call was cancelled.
	case IsForwarded(ex.r.Context()):
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

// ServeForwarded answers a request that another server has forwarded or spread, after that server made all
// checks up to the rate. If this server does not have the session, or is stopping, it answers 421.
func (h *HTTP) ServeForwarded(w http.ResponseWriter, r *http.Request, principal string) {
	// Once the shutdown waits for forwarded requests, TryRLock fails, so that no other one begins.
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
	// The wait for the other server needs no slot here.
	ex.admission.yield()
	ctx, cancel := context.WithCancel(ex.r.Context())
	defer cancel()
	// Wait a moment after a cancellation, which may reach the other server before the request does.
	defer context.AfterFunc(ex.call.ctx, func() { time.AfterFunc(cancelPatience, cancel) })()
	ex.out.handOver(func() bool {
		done, again = ex.relay(ctx, *to)
		return done
	})
	return done, again
}

// relay has the server at an address answer the request, while nothing else is written. It returns the same
// as forwarded.
func (ex *exchange) relay(ctx context.Context, address string) (done, again bool) {
	switch {
	case ex.stream.begun:
		// This is too late, so the client gets the error of the handler.
		return false, false
	case address == "":
		ex.w.WriteHeader(http.StatusMisdirectedRequest)
		return true, false
	}
	err := ex.h.opts.Forward(ex.w, ex.r.WithContext(ctx), ex.msg.raw, address)
	switch {
	case err == nil:
		return true, false
	case errors.Is(err, ErrMisdirected):
		return false, true
	case errors.Is(context.Cause(ex.call.ctx), ErrCanceled):
		return false, false
	}
	ex.h.dispatcher.logPrivate(ex.call.ctx, ex.msg, err.Error())
	ex.h.writeRefusal(ex.w, http.StatusOK, ex.msg.id, &Error{Code: mcp.INTERNAL_ERROR,
		Message: "the server that has the session did not answer; what it did is not known"})
	return true, false
}
