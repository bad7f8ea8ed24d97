package wire

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

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
	slot      *errorSlot

	// Of a request only.
	owner   *httpSession // protocol, or a new one
	call    *call
	stream  *httpStream
	out     *lineWriter
	closes  []func()
	retired bool
}

// begin prepares a request to run. It must be closed.
func (ex *exchange) begin() {
	h, r := ex.h, ex.r
	ex.stream = newHTTPStream(ex.w, r, h.opts.writeTimeout())
	ex.out = newLineWriter(ex.stream)
	ex.call = &call{
		msg:    ex.msg,
		key:    idKey(ex.msg.id),
		listen: ex.msg.method == string(mcp.MethodSubscriptionsListen),
		ping:   ex.msg.method == string(mcp.MethodPing),
	}
	// The context of the request ends without a cause, and a handler must learn why its call ended.
	var ctx context.Context
	ctx, ex.call.cancel = context.WithCancelCause(context.WithoutCancel(r.Context()))
	ex.endWith(r.Context())
	switch {
	case ex.call.listen:
		ex.endWith(h.hangUp)
	case ex.owner != nil && ex.owner.base != nil:
		ex.endWith(ex.owner.base)
	default:
		ex.endWith(h.base)
	}
	ctx = context.WithValue(ctx, hangUpKey{}, h.hangUp)
	ctx = context.WithValue(ctx, exchangeKey{}, ex)
	ctx = context.WithValue(ctx, errorSlotKey{}, ex.slot)
	ex.call.ctx = ctx
	if ex.owner == nil {
		return
	}
	var a *announcer
	if ex.call.listen {
		a = newAnnouncer(ex.out)
		a.news = h.watchFor(ctx)
		remove := h.announceTo(a)
		go a.run()
		ex.closes = append(ex.closes, remove, func() { close(a.stop) })
	}
	var questions *asks
	if !ex.modern {
		// Requests of the server in one session need ids of their own in all of its calls.
		questions = newAsks(ex.out, ctx.Done())
		questions.next = int64(h.requests.Add(1)) << 16
		ex.closes = append(ex.closes, ex.owner.addAsks(questions))
	}
	ex.session = newCallSession(ctx, ex.owner.session, ex.msg, ex.out, a, questions)
	ex.call.session = ex.session
}

// endWith ends the call when ctx does.
func (ex *exchange) endWith(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { ex.call.cancel(ErrDisconnected) })
	ex.closes = append(ex.closes, func() { stop() })
}

// takeWaiting takes memory for the message of a call that yields its slot, until the exchange ends. It is
// called in the call's own goroutine.
func (ex *exchange) takeWaiting() bool {
	if !ex.h.waiting.take(ex.principal, len(ex.msg.raw)) {
		return false
	}
	ex.closes = append(ex.closes, func() { ex.h.waiting.leave(ex.principal, len(ex.msg.raw)) })
	return true
}

// libraryRequest is what mcp-go's transport gets of the POST.
func (ex *exchange) libraryRequest(ctx context.Context, header http.Header, body []byte) *server.HTTPRequest {
	return &server.HTTPRequest{Method: http.MethodPost, Header: header, Body: body, Context: ctx}
}

// run answers the request; opening says that it opens a session.
func (ex *exchange) run(opening bool) {
	if !opening { // a stream could not carry the id of the session
		defer keepAlive(ex.out, ex.h.opts.keepAlive()).Stop()
	}
	rec := &recorder{header: make(http.Header)}
	ctx := ex.call.ctx
	if ex.session != nil {
		ctx = ex.h.dispatcher.Server.WithContext(ctx, ex.session)
	}
	result, failure := ex.h.dispatcher.guard(ctx, ex.msg,
		func(ctx context.Context, _ *message) (any, *Error) { return ex.ask(ctx, rec) })
	if ex.session != nil {
		ex.session.finish()
	}
	if result == nil && failure == nil {
		ex.passOn(rec)
		return
	}
	// A session exists only after the library has accepted its initialize request.
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
	if failure != nil && ex.modern {
		status = statusOf(failure.Code)
	}
	line, err := ex.h.dispatcher.encode(ex.msg.id, result, failure)
	if err != nil {
		ex.h.dispatcher.logPrivate(ctx, ex.msg, err.Error())
	}
	ex.answer(line, status)
}

// ask gives the request to mcp-go's transport and returns the answer, nothing if mcp-go
// answered with something else than a message or not at all.
func (ex *exchange) ask(ctx context.Context, rec *recorder) (any, *Error) {
	d, raw, header := ex.h.dispatcher, ex.msg.raw, ex.r.Header
	_, override := d.Overrides[ex.msg.method]
	if override {
		raw = rewritten(ex.msg, Alias(ex.msg.method))
		header = header.Clone()
		header.Set(mcp.HeaderMethod, Alias(ex.msg.method))
	}
	ex.h.library.Handle(rec, ex.libraryRequest(ctx, header, raw))
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
		d.logPrivate(ctx, ex.msg, err.Error())
		return nil, internalError()
	}
	failure := &Error{Code: said.Code, Message: said.Message}
	if said.Data != nil {
		failure.Data = said.Data
	}
	if override && ex.modern && failure.Code == mcp.METHOD_NOT_FOUND {
		// mcp-go saw the alias in the headers. It has not compared the true name with them.
		version, method := protocolOf(ex.msg.params).ProtocolVersion, mcp.MCPMethod(ex.msg.method)
		err := mcp.ValidateStandardHeaders(ex.r.Header.Get, version, method, ex.msg.params)
		if err != nil {
			return nil, &Error{Code: mcp.HEADER_MISMATCH, Message: err.Error()}
		}
	}
	return d.replace(ctx, ex.msg, ex.slot, failure)
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

// answer ends the response with line, unless the call was cancelled or its client is gone. The response
// has the status unless it is a stream already.
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
		result.EnsureResultMeta().SetSubscriptionID(ex.msg.id)
		line, _ := ex.h.dispatcher.encode(ex.msg.id, ex.h.dispatcher.decorate(&result), nil)
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

// empty ends a response without an answer, with an empty stream. A client that closed its side after the
// request looks as if it had left and may still read. It must not take an empty stream for success, so its
// connection is closed instead.
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
	ex.h.writeRefusal(ex.w, http.StatusOK, ex.msg.id, failure)
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
