package wire

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// exchange is one request over HTTP, from its body to the end of its response.
type exchange struct {
	h      *HTTP
	w      http.ResponseWriter
	r      *http.Request
	http   *httpCall
	owner  *httpSession // nil when the client named no session it has
	call   *call
	stream *httpStream
	out    *lineWriter
	closes []func()

	retired bool
}

func (h *HTTP) newExchange(w http.ResponseWriter, r *http.Request, hc *httpCall, owner *httpSession) *exchange {
	ex := &exchange{h: h, w: w, r: r, http: hc, owner: owner, stream: newHTTPStream(w, r, h.opts.writeTimeout())}
	ex.out = newLineWriter(ex.stream)
	listen := hc.msg.method == string(mcp.MethodSubscriptionsListen)
	ex.call = &call{msg: hc.msg, key: idKey(hc.msg.id), listen: listen, inline: hc.msg.method == string(mcp.MethodPing)}
	var ctx context.Context
	ctx, ex.call.cancel = context.WithCancelCause(context.WithoutCancel(r.Context()))
	ex.endWith(r.Context())
	switch {
	case listen:
		ex.endWith(h.hangUp)
	case owner != nil && owner.base != nil:
		ex.endWith(owner.base)
	default:
		ex.endWith(h.base)
	}
	ctx = context.WithValue(ctx, hangUpKey{}, h.hangUp)
	ctx = context.WithValue(ctx, httpCallKey{}, hc)
	ctx = context.WithValue(ctx, errorSlotKey{}, hc.slot)
	ex.call.ctx = ctx
	if owner != nil {
		ex.join(owner)
	}
	return ex
}

// endWith ends the call when ctx does.
func (ex *exchange) endWith(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { ex.call.cancel(ErrDisconnected) })
	ex.closes = append(ex.closes, func() { stop() })
}

// join makes the session the call sees.
func (ex *exchange) join(owner *httpSession) {
	var a *announcer
	if ex.call.listen {
		a = newAnnouncer(ex.out)
		a.news = ex.h.watchFor(ex.call.ctx)
		remove := ex.h.announceTo(a)
		go a.run()
		ex.closes = append(ex.closes, remove, func() { close(a.stop) })
	}
	ex.call.session = newCallSession(ex.call.ctx, owner.session, ex.http.msg, ex.out, a)
	seen := &httpCallSession{callSession: ex.call.session}
	if !ex.http.modern {
		// Requests of the server in one session need ids of their own in all of its calls.
		seen.asks = newAsks(ex.out, ex.call.ctx.Done())
		seen.asks.next = int64(ex.h.requests.Add(1)) << 16
		ex.closes = append(ex.closes, owner.addAsks(seen.asks))
	}
	ex.http.session = seen
}

// makeRoom takes room for a call of n bytes that stands aside, until the exchange ends. It is called in
// the call's own goroutine.
func (ex *exchange) makeRoom(principal string, n int) bool {
	if !ex.h.aside.take(principal, n) {
		return false
	}
	ex.closes = append(ex.closes, func() { ex.h.aside.leave(principal, n) })
	return true
}

// run answers the request; opening says that it opens a session.
func (ex *exchange) run(opening bool) {
	if !opening { // a stream could not carry the id of the session
		defer keepAlive(ex.out, ex.h.opts.keepAlive()).Stop()
	}
	rec := &recorder{header: make(http.Header)}
	ctx := ex.call.ctx
	if ex.http.session != nil {
		ctx = ex.h.dispatcher.Server.WithContext(ctx, ex.http.session)
	}
	result, failure := ex.h.dispatcher.guard(ctx, ex.http.msg, func(ctx context.Context, m *message) (any, *Error) {
		return ex.h.ask(ctx, ex.r.Header, ex.http, rec)
	})
	if ex.call.session != nil {
		ex.call.session.finish()
	}
	if result == nil && failure == nil {
		ex.passOn(rec)
		return
	}
	if opening && failure == nil {
		if !ex.h.sessions.add(ex.owner) {
			ex.retire()
			retryLater(ex.w, http.StatusServiceUnavailable, busyWait, "too many sessions")
			return
		}
		ex.h.sessionBegan(ex.owner)
		ex.w.Header().Set(server.HeaderKeySessionID, ex.owner.id)
	}
	status := http.StatusOK
	if failure != nil && ex.http.modern {
		status = statusOf(failure.Code)
	}
	line, err := ex.h.dispatcher.encode(ex.http.msg.id, result, failure)
	if err != nil {
		ex.h.dispatcher.logPrivate(ctx, ex.http.msg, err.Error())
	}
	ex.answer(line, status)
}

// ask gives a request to mcp-go's transport and returns the answer, nothing when mcp-go
// answered with something else than a message or not at all.
func (h *HTTP) ask(ctx context.Context, header http.Header, hc *httpCall, rec *recorder) (any, *Error) {
	raw := hc.msg.raw
	_, override := h.dispatcher.Overrides[hc.msg.method]
	if override {
		raw = rewritten(hc.msg, Alias(hc.msg.method))
		header = header.Clone()
		header.Set(mcp.HeaderMethod, Alias(hc.msg.method))
	}
	h.library.Handle(rec, &server.HTTPRequest{Method: http.MethodPost, Header: header, Body: raw, Context: ctx})
	reply, ok := rec.message()
	switch {
	case !ok:
		return nil, nil
	case reply.failure == nil:
		return reply.result, nil
	}
	var said struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(reply.failure, &said); err != nil {
		h.dispatcher.logPrivate(ctx, hc.msg, err.Error())
		return nil, internalError()
	}
	failure := &Error{Code: said.Code, Message: said.Message}
	if said.Data != nil {
		failure.Data = said.Data
	}
	if override && failure.Code == mcp.METHOD_NOT_FOUND {
		if failure := standardHeaders(hc); failure != nil {
			return nil, failure
		}
	}
	return h.dispatcher.replace(ctx, hc.msg, hc.slot, failure)
}

// standardHeaders checks the headers of an overridden method, of which mcp-go saw the alias.
func standardHeaders(hc *httpCall) *Error {
	if !hc.modern {
		return nil
	}
	version := protocolOf(hc.msg.params).ProtocolVersion
	if err := mcp.ValidateStandardHeaders(hc.header.Get, version, mcp.MCPMethod(hc.msg.method), hc.msg.params); err != nil {
		return &Error{Code: mcp.HEADER_MISMATCH, Message: err.Error()}
	}
	return nil
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

// answer ends the response with line, unless the call was cancelled or its client is gone. The
// status is that of a response that is no stream yet.
func (ex *exchange) answer(line []byte, status int) {
	answered := false
	ex.out.writeIf(line, func() bool {
		answered = ex.settle()
		ex.stream.answer, ex.stream.status = answered, status
		return answered
	})
	if !answered {
		ex.empty()
	}
}

// settle takes the call off the table of its session and reports whether it is to be answered.
func (ex *exchange) settle() bool {
	if ex.owner != nil && ex.owner.calls != nil {
		return ex.owner.calls.settle(ex.call)
	}
	return ex.r.Context().Err() == nil
}

// passOn ends the response to a call that mcp-go did not answer with a message.
func (ex *exchange) passOn(rec *recorder) {
	switch {
	case ex.call.listen && ex.h.hangUp.Err() != nil && ex.r.Context().Err() == nil:
		// The stream ends because the server does.
		result := mcp.SubscriptionsListenResult{}
		result.EnsureResultMeta().SetSubscriptionID(ex.http.msg.id)
		line, _ := ex.h.dispatcher.encode(ex.http.msg.id, ex.h.dispatcher.decorate(&result), nil)
		ex.answer(line, http.StatusOK)
	case rec.status == 0:
		ex.empty()
	default:
		ex.retire()
		if !ex.stream.begun {
			rec.copyTo(ex.w)
		}
	}
}

// empty ends a response without an answer: with a stream that carries none. A client that seems to have
// left and still reads, as one does that closed its side after the request, must not take that for a
// success, so its connection is closed without.
func (ex *exchange) empty() {
	ex.retire()
	switch {
	case ex.r.Context().Err() != nil:
		panic(http.ErrAbortHandler)
	case ex.stream.begun:
	case ex.stream.events:
		ex.stream.begin()
	default:
		ex.w.WriteHeader(http.StatusAccepted)
	}
}

// refuse answers a call that did not start.
func (ex *exchange) refuse(failure *Error) {
	ex.retire()
	if failure == nil {
		retryLater(ex.w, http.StatusServiceUnavailable, busyWait, "the session has ended")
		return
	}
	ex.h.writeRefusal(ex.w, http.StatusOK, ex.http.msg.id, failure)
}

// close ends what the exchange started. Nothing is written afterwards.
func (ex *exchange) close() {
	ex.retire()
	for _, end := range slices.Backward(ex.closes) {
		end()
	}
	ex.call.cancel(nil)
}

// retire leaves the response to the handler's own goroutine.
func (ex *exchange) retire() {
	if !ex.retired {
		ex.retired = true
		retire(ex.out)
	}
}
