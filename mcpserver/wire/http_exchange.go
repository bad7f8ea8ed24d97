package wire

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

type exchangeKey struct{}

// exchange is one POST, from its message to the end of its response.
type exchange struct {
	h         *HTTP
	w         http.ResponseWriter
	r         *http.Request
	principal string
	msg       *message
	modern    bool
	protocol  *httpSession // nil on 2026-07-28 and if the client named none that it has
	session   *callSession // as handlers see it; nil if there is none
	decoded   func()       // gives back what the message takes while it is decoded

	// Of a request only.
	owner  *httpSession // protocol, or a new one
	call   *call
	stream *httpStream
	out    *lineWriter
}

// request answers a request, if there is a slot for it.
func (ex *exchange) request() {
	h, r, method := ex.h, ex.r, ex.msg.method
	if method == string(mcp.MethodServerDiscover) && h.opts.OnlySessions != nil {
		said := protocolOf(ex.msg.params)
		if said.ClientInfo != nil && h.opts.OnlySessions(*said.ClientInfo) {
			h.writeRefusal(ex.w, http.StatusBadRequest, ex.msg.id, &Error{
				Code:    mcp.UNSUPPORTED_PROTOCOL_VERSION,
				Message: "this client is served in sessions only: send initialize",
				Data: map[string]any{"supported": mcp.LegacyProtocolVersions(),
					"requested": said.ProtocolVersion}})
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
		if !acceptsEvents(r.Header.Values("Accept")) { // it would wait for ever, and hold a place
			plainText(ex.w, http.StatusNotAcceptable, notEvents)
			return
		}
		slots, patience = h.streams, 0
	}
	if ex.call.listen && h.listens.take(ex.principal, 1) {
		defer h.listens.leave(ex.principal, 1)
	}
	leave := func() {}
	// 2026-07-28 has no sessions, so each of its requests gets a session of its own.
	opening := method == string(mcp.MethodInitialize) && !ex.modern
	switch {
	case opening:
		ex.owner = h.newSession(r.Context(), ex.principal, int(8*h.opts.MaxBody))
		defer func() {
			if ex.owner.id == "" { // no session came of it
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
	// The context of the request ends without a cause, and a handler must learn why its call ended.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	ends := []context.Context{r.Context(), h.base}
	switch {
	case ex.call.listen:
		ends[1] = h.hangUp
	case ex.owner != nil && ex.owner.base != nil:
		ends[1] = ex.owner.base
	}
	for _, end := range ends {
		defer context.AfterFunc(end, func() { cancel(ErrDisconnected) })()
	}
	ctx = context.WithValue(ctx, exchangeKey{}, ex)
	ex.call.ctx, ex.call.cancel = ctx, cancel
	defer ex.out.retire()
	if ex.owner != nil {
		ex.session = newCallSession(ctx, h.hangUp, ex.owner.session, ex.msg, ex.out, h.audience)
		ex.session.mayAsk = !ex.modern
		if ex.call.listen {
			ex.session.watch = h.opts.Changes(h.dispatcher.Server.WithContext(ctx, ex.session))
		}
		ex.call.session = ex.session
		// A call takes memory for its message instead of a place among those that are decoded, or of its
		// slot. Nobody else calls these at its end.
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
		hold, answered := h.holding.hold(ex.principal)
		ex.session.hold = hold
		defer answered()
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
	}
	if !ex.call.ping {
		// From here on the client can cancel it.
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

// run answers the request; opening says that it opens a session.
func (ex *exchange) run(opening bool) {
	d := ex.h.dispatcher
	if !opening { // a stream could not carry the id of the session
		defer keepAlive(ex.out, ex.h.opts.KeepAlive).Stop()
	}
	ctx := ex.call.ctx
	if ex.session != nil {
		ctx = d.Server.WithContext(ctx, ex.session)
	}
	var rec *recorder
	var result any
	var failure *Error
	begin := time.Now()
	for again, done := true, false; again; {
		rec = newRecorder()
		result, failure = d.guard(ctx, ex.msg,
			func(ctx context.Context) (any, *Error) { return ex.ask(ctx, rec) })
		if done, again = ex.forwarded(); done {
			ex.session.finish()
			return
		}
		if again = again && ctx.Err() == nil && time.Since(begin) < forwardPatience; again {
			time.Sleep(forwardPause)
		}
	}
	if ex.session != nil {
		ex.session.finish()
	}
	status := http.StatusOK
	switch {
	case result != nil || failure != nil:
	case ex.call.listen && ex.h.hangUp.Err() != nil && ex.r.Context().Err() == nil:
		// The stream ends because the server does.
		ex.out.hungUp(ex.msg.id)
		ended := new(mcp.SubscriptionsListenResult)
		ended.EnsureResultMeta().SetSubscriptionID(ex.msg.id)
		d.decorate(ended)
		result = ended
	case rec.status == 0:
		ex.empty()
		return
	default:
		// mcp-go refused the request without a message.
		ex.out.retire()
		if !ex.stream.begun {
			rec.copyTo(ex.w)
		}
		return
	}
	// A session exists only after the library has accepted its initialize request.
	if opening && failure == nil {
		ex.h.audience.add(ex.owner.announcer)
		if !ex.h.sessions.add(ex.owner) {
			ex.out.retire()
			retryLater(ex.w, http.StatusServiceUnavailable, busyWait, "too many sessions")
			return
		}
		ex.w.Header().Set(server.HeaderKeySessionID, ex.owner.id)
	}
	if failure != nil && ex.modern {
		status = statusOf(failure.Code)
	}
	answered := false
	ex.out.writeIf(d.encode(ctx, ex.msg, result, failure), func() bool {
		answered = ex.r.Context().Err() == nil
		if ex.owner != nil && ex.owner.calls != nil {
			answered = ex.owner.calls.settle(ex.call)
		}
		ex.stream.answer, ex.stream.status = answered, status
		return answered
	})
	if !answered {
		ex.empty()
	}
}

// usual reports whether the request is one of the older revisions in a session, whose headers mcp-go's
// transport would accept: all that it would do is to give the message on, and to encode the answer for the
// recorder.
func (ex *exchange) usual() bool {
	version := ex.r.Header.Get(mcp.HeaderProtocolVersion)
	return ex.protocol != nil && ex.msg.method != "" && ex.msg.method != string(mcp.MethodInitialize) &&
		(version == "" || mcp.IsValidProtocolVersion(version))
}

// ask returns the answer to the request, or nil if the request has none or rec has it.
func (ex *exchange) ask(ctx context.Context, rec *recorder) (any, *Error) {
	if !ex.usual() {
		return ex.askLibrary(ctx, rec)
	}
	result, failure := ex.h.dispatcher.respond(ctx, ex.msg)
	if ctx.Err() != nil {
		return nil, nil // nobody waits for the answer
	}
	return result, failure
}

// askLibrary gives the request to mcp-go's transport and returns the answer, nothing if mcp-go
// answered with something else than a message or not at all.
func (ex *exchange) askLibrary(ctx context.Context, rec *recorder) (any, *Error) {
	d, raw, header := ex.h.dispatcher, ex.msg.raw, ex.r.Header
	_, override := d.Overrides[ex.msg.method]
	if override {
		raw = rewritten(ex.msg, alias(ex.msg.method))
		header = header.Clone()
		header.Set(mcp.HeaderMethod, alias(ex.msg.method))
	}
	ex.handle(ctx, rec, header, raw)
	reply, ok := rec.message()
	switch {
	case !ok:
		return nil, nil
	case reply.failure == nil:
		return reply.result, nil
	}
	var data json.RawMessage
	failure := &Error{Data: &data}
	if err := json.Unmarshal(reply.failure, failure); err != nil {
		d.logPrivate(ctx, ex.msg, err.Error())
		return nil, internalError()
	}
	if data == nil {
		failure.Data = nil
	}
	if override && ex.modern && failure.Code == mcp.METHOD_NOT_FOUND {
		// mcp-go saw the alias in the headers. It has not compared the true name with them.
		version, method := protocolOf(ex.msg.params).ProtocolVersion, mcp.MCPMethod(ex.msg.method)
		err := mcp.ValidateStandardHeaders(ex.r.Header.Get, version, method, ex.msg.params)
		if err != nil {
			return nil, &Error{Code: mcp.HEADER_MISMATCH, Message: err.Error()}
		}
	}
	if ex.modern && failure.Code == mcp.METHOD_NOT_FOUND && d.Methods[ex.msg.method] != nil &&
		strings.HasPrefix(ex.msg.method, "tasks/") {
		// The library does not know that the id of a task travels in a header too (SEP-2663).
		var p struct {
			TaskID string `json:"taskId"`
		}
		name, ok := mcp.DecodeHeaderValue(ex.r.Header.Get(mcp.HeaderName))
		if !ok || json.Unmarshal(ex.msg.params, &p) != nil || name != p.TaskID {
			return nil, &Error{Code: mcp.HEADER_MISMATCH,
				Message: mcp.HeaderName + " does not match the taskId of the body"}
		}
	}
	return d.replace(ctx, ex.msg, failure)
}

// handle gives a message to mcp-go's transport.
func (ex *exchange) handle(ctx context.Context, rec *recorder, header http.Header, body []byte) {
	ex.h.library.Handle(rec, &server.HTTPRequest{
		Method: http.MethodPost, Header: header, Body: body, Context: ctx,
	})
}

// statusOf is the HTTP status of an error of 2026-07-28.
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

// empty ends a response without an answer, with an empty stream. A client that closed its side after the
// request looks as if it had left and may still read. It must not take an empty stream for success, so its
// connection is closed instead; nor must one whose call the end of the server has ended, or the client of a
// server that has forwarded the request, unless it has cancelled it.
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

// Forward has the request of ctx answered by another server, in the place of the answer of its handler. An
// empty address says that this server, to which the request was forwarded, is not the one to answer it; so
// does any address then, as no request is forwarded twice. Nothing must have been sent to the client yet, and
// the handler can be called again. Outside of [HTTPOptions.Forward] it does nothing.
func Forward(ctx context.Context, address string) {
	if s := callSessionOf(ctx); s != nil {
		if IsForwarded(ctx) {
			address = ""
		}
		s.forward.Store(&address)
	}
}

// forwardPatience is how long another server is looked for, and forwardPause is between two attempts;
// cancelPatience is how long it may take to end a call that its client has cancelled.
const (
	forwardPatience = 5 * time.Second
	forwardPause    = 20 * time.Millisecond
	cancelPatience  = 2 * time.Second
)

// ErrMisdirected is the error of forwarding a request to a server that is not the one to answer it. Nothing
// was written to its client, and the handler of the request is called again.
var ErrMisdirected = errors.New("the other server does not answer this request")

type forwardedKey struct{}

// IsForwarded reports whether the request of ctx was forwarded by another server.
func IsForwarded(ctx context.Context) bool { return ctx.Value(forwardedKey{}) != nil }

// ServeForwarded answers a request that another server has forwarded or spread, after it made all checks up
// to that of the rate. A server that is not the one to answer it, or that ends, answers 421.
func (h *HTTP) ServeForwarded(w http.ResponseWriter, r *http.Request, principal string) {
	lives := h.forwards.TryRLock()
	if lives {
		defer h.forwards.RUnlock()
	}
	switch lives = lives && h.hangUp.Err() == nil; {
	case lives && r.Method == http.MethodPost:
		h.post(w, r.WithContext(context.WithValue(r.Context(), forwardedKey{}, true)), principal)
	case lives && r.Method == http.MethodDelete:
		h.forget(r.Header.Get(server.HeaderKeySessionID), principal)
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusMisdirectedRequest)
	}
}

// forwarded answers the request by another server if its handler said so. It reports whether that was so, and
// whether the handler is to be called again.
func (ex *exchange) forwarded() (done, again bool) {
	if ex.session == nil || ex.h.opts.Forward == nil {
		return false, false
	}
	to := ex.session.forward.Swap(nil)
	if to == nil {
		return false, false
	}
	if ex.owner.calls != nil && !ex.owner.calls.sendAway(ex.call) {
		return false, false
	}
	ex.session.yield() // this one waits, and does nothing
	ctx, cancel := context.WithCancel(ex.r.Context())
	defer cancel()
	// A cancellation may reach the other server before the request.
	defer context.AfterFunc(ex.call.ctx, func() { time.AfterFunc(cancelPatience, cancel) })()
	canceled := func() bool { return errors.Is(context.Cause(ex.call.ctx), ErrCanceled) }
	ex.out.handOver(func() bool {
		switch {
		case ex.stream.begun:
			return false // too late; the client gets the error of the handler
		case *to == "":
			ex.w.WriteHeader(http.StatusMisdirectedRequest)
			done = true
		default:
			err := ex.h.opts.Forward(ex.w, ex.r.WithContext(ctx), ex.msg.raw, *to)
			again = errors.Is(err, ErrMisdirected)
			if done = !again && !(err != nil && canceled()); err != nil && done {
				ex.h.dispatcher.logPrivate(ex.call.ctx, ex.msg, err.Error())
				ex.h.writeRefusal(ex.w, http.StatusOK, ex.msg.id, &Error{Code: mcp.INTERNAL_ERROR,
					Message: "the server that has the session did not answer; what it did is not known"})
			}
		}
		return done
	})
	return done, again
}
