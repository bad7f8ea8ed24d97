package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/admit"
)

const (
	// busyWait is the Retry-After of a request refused for lack of room.
	busyWait = time.Second

	// decodingPatience is how long a message waits until earlier ones are decoded.
	decodingPatience = 10 * time.Second

	// readingPatience is how long a request waits for others to be read: slow senders can hold all slots.
	readingPatience = 2 * time.Second

	// shortAnswer is the size in bytes up to which answers are not charged to the memory quota.
	shortAnswer = 64 << 10
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
	stream  *httpStream
	out     *lineWriter
	detach  func() // ends the wait for the end of the client or of the server
}

// post answers one POST on the endpoint.
func (h *HTTP) post(w http.ResponseWriter, r *http.Request, principal string) {
	if form := unsupportedForm(r.Header); form != "" {
		plainText(w, http.StatusUnsupportedMediaType, form)
		return
	}
	ex := &exchange{h: h, w: w, r: r, principal: principal, admission: &admission{
		principal: principal, messages: h.waiting,
		memory: admit.Ledger{Memory: h.memory, Principal: principal, Patience: holdingPatience}}}
	defer ex.end()
	if !ex.read() || !ex.enter() {
		return
	}
	switch {
	case ex.msg.kind == request:
		ex.request()
	case ex.msg.kind == notification:
		ex.notification()
	case ex.modern:
		h.writeRefusal(w, http.StatusBadRequest, ex.msg.id, invalidRequest(
			"the server asks by results in this revision, and takes no responses"))
	case ex.protocol.asks.route(ex.msg) || ex.spread():
		w.WriteHeader(http.StatusAccepted)
	}
}

// unsupportedForm returns what is wrong with the declared form of a body, or "" if it is JSON in UTF-8. A
// body is read only in the form that it declares.
func unsupportedForm(header http.Header) string {
	kind, params, err := mime.ParseMediaType(header.Get("Content-Type"))
	charset, declared := params["charset"]
	encoding := header.Get("Content-Encoding")
	switch {
	case err != nil || kind != "application/json":
		return "Content-Type must be application/json"
	case declared && !strings.EqualFold(charset, "utf-8"):
		return "charset must be utf-8"
	case encoding != "" && !strings.EqualFold(encoding, "identity"):
		return "Content-Encoding must be identity"
	}
	return ""
}

// read reads the message once there is memory to decode it. It returns false if it has sent an answer.
func (ex *exchange) read() bool {
	h, w, a, ctx := ex.h, ex.w, ex.admission, ex.r.Context()
	size := int(h.opts.MaxBody)
	if ex.r.ContentLength >= 0 {
		size = int(min(ex.r.ContentLength, h.opts.MaxBody))
	}
	a.decoding = h.decoding.Wait(ctx, ex.principal, size, decodingPatience, nil)
	if a.decoding == nil {
		retryLater(w, http.StatusServiceUnavailable, busyWait, "too many large requests in flight")
		return false
	}

	reading := h.bodies.Wait(ctx, ex.principal, 1, readingPatience, nil)
	if reading == nil {
		retryLater(w, http.StatusServiceUnavailable, busyWait, "too many requests in flight")
		return false
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, ex.r.Body, h.opts.MaxBody))
	// The quota is for reading only: slow senders hold memory before they have a slot.
	reading.Release()
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		failure := invalidRequest(fmt.Sprintf("message longer than %d bytes", h.opts.MaxBody))
		h.writeRefusal(w, http.StatusRequestEntityTooLarge, nil, failure)
		return false
	}
	if err != nil {
		plainText(w, http.StatusBadRequest, "the body ended early")
		return false
	}

	m, failure := parse(raw)
	if failure != nil {
		status := http.StatusBadRequest
		if failure.Code == mcp.INVALID_PARAMS && !isModern(ex.r.Header, m) {
			// The envelope is valid; clients of the older revisions drop the session on another status.
			status = http.StatusOK
		}
		h.writeRefusal(w, status, m.id, failure)
		return false
	}
	ex.msg, ex.modern, a.size = m, isModern(ex.r.Header, m), len(raw)
	return true
}

// isModern reports whether a message declares 2026-07-28 or later.
func isModern(header http.Header, m *message) bool {
	return mcp.IsModernProtocol(header.Get(mcp.HeaderProtocolVersion)) ||
		mcp.IsModernProtocol(m.protocol().version)
}

// enter finds the protocol session of a message of the older revisions, which the exchange then uses. It
// returns false if it has sent an answer. An initialize request needs no session.
func (ex *exchange) enter() bool {
	if ex.modern {
		return true
	}
	h, id, opening := ex.h, ex.r.Header.Get(HeaderSession), ex.msg.method == string(mcp.MethodInitialize)
	switch {
	case id == "" && !opening:
		plainText(ex.w, http.StatusBadRequest, "Mcp-Session-Id is missing; send initialize first")
		return false
	// This server may have no part of the session.
	case ex.msg.kind != request && IsForwarded(ex.r.Context()):
		ex.protocol = h.sessions.enter(id, ex.principal)
	case id != "":
		ex.protocol = h.session(ex.r.Context(), id, ex.principal)
	}
	switch {
	case opening:
		return true
	case refusesVersion(ex.w, ex.r.Header.Get(mcp.HeaderProtocolVersion)):
		return false
	// A session of another principal is treated as unknown.
	case ex.protocol == nil:
		plainText(ex.w, http.StatusNotFound, "Invalid session ID")
		return false
	}
	return true
}

// refusesVersion refuses a message in a session with an unknown version in its header, and reports whether it
// did.
func refusesVersion(w http.ResponseWriter, version string) bool {
	unknown := version != "" && !mcp.IsValidProtocolVersion(version)
	if unknown {
		plainText(w, http.StatusBadRequest, "unsupported protocol version")
	}
	return unknown
}

// notification handles a notification of the client; only cancellations have an effect.
func (ex *exchange) notification() {
	if ex.modern {
		if failure := ex.msg.protocol().checkVersions(ex.r.Header); failure != nil {
			ex.h.writeRefusal(ex.w, http.StatusBadRequest, nil, failure)
			return
		}
	} else if ex.msg.method == string(mcp.MethodNotificationCancelled) &&
		!ex.protocol.calls.cancel(ex.msg) && !ex.spread() {
		return
	}
	ex.w.WriteHeader(http.StatusAccepted)
}

// request answers a request, once there is a slot for it.
func (ex *exchange) request() {
	if failure := ex.needsSession(); failure != nil {
		ex.h.writeRefusal(ex.w, http.StatusBadRequest, ex.msg.id, failure)
		return
	}
	listen := ex.msg.method == string(mcp.MethodSubscriptionsListen)
	// Without a stream, the call would occupy its slot forever.
	if listen && !acceptsEvents(ex.r.Header.Values("Accept")) {
		plainText(ex.w, http.StatusNotAcceptable, notEvents)
		return
	}
	ex.opening = !ex.modern && ex.msg.method == string(mcp.MethodInitialize)
	switch {
	case ex.modern:
		// Version 2026-07-28 has no sessions, so each request gets its own.
		id := "request-" + strconv.FormatUint(ex.h.requests.Add(1), 10)
		ex.owner = &httpSession{session: &session{id: id}}
	case ex.opening:
		ex.owner = ex.h.newSession(ex.r.Context(), ex.principal, int(8*ex.h.opts.MaxBody))
	default:
		ex.owner = ex.protocol
	}
	ex.begin()
	if ex.admit() {
		ex.run()
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

// begin makes the response and the call of the request. The context of the call ends with cause
// ErrDisconnected once the client disconnects, or the server or the session ends; a subscription ends as soon
// as the server is asked to stop.
func (ex *exchange) begin() {
	h, ctx := ex.h, ex.r.Context()
	// The context of an HTTP request ends without a cause, and handlers need one.
	c := newCall(context.WithoutCancel(ctx), ex.owner.session, ex.msg, ex.admission)
	server := h.base
	switch {
	case c.listen:
		server = h.hangUp
	case ex.owner.base != nil:
		server = ex.owner.base
	}
	disconnect := func() { c.cancel(ErrDisconnected) }
	stopClient, stopServer := context.AfterFunc(ctx, disconnect), context.AfterFunc(server, disconnect)
	ex.detach = func() {
		stopClient()
		stopServer()
	}
	ex.stream = newHTTPStream(ex.w, ex.r, h.opts.WriteTimeout)
	ex.out = newLineWriter(ex.stream)
	c.out, c.audience, c.hangUp = ex.out, h.audience, h.hangUp
	c.deaf, c.alone = !ex.stream.events, ex.alone
	ex.call = c
}

// admit adds the call to the calls of its session, so that the client can cancel it from here on, and waits
// for a slot. It returns false if it has sent an answer.
func (ex *exchange) admit() bool {
	h, a, call := ex.h, ex.admission, ex.call
	if call.listen {
		a.listen = h.listens.Take(ex.principal, 1)
	}
	if ex.owner.calls != nil {
		ok, failure := ex.owner.calls.add(call)
		switch {
		case failure != nil:
			h.writeRefusal(ex.w, http.StatusOK, ex.msg.id, failure)
			return false
		case !ok:
			retryLater(ex.w, http.StatusServiceUnavailable, busyWait, "the session has ended")
			return false
		}
	}

	// A ping needs no slot; a subscription has one of a stream, or is refused at once.
	slots, patience := h.calls, h.opts.Patience
	switch {
	case call.ping:
		return true
	case call.listen:
		slots, patience = h.streams, 0
	}
	a.slot = slots.Wait(call.ctx, ex.principal, 1, patience, nil)
	switch {
	case a.slot != nil:
		return true
	case call.ctx.Err() != nil:
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
	result, failure, answered := ex.handle()
	ex.call.finish()
	if answered {
		return
	}
	if result == nil && failure == nil {
		// A subscription has a result if it ends because the server is stopping.
		if !ex.call.listen || ex.h.hangUp.Err() == nil || ex.r.Context().Err() != nil {
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
	ex.answer(result, failure)
}

// handle calls the handler of the request. If the handler wants another server to answer, handle forwards the
// request; answered reports whether that server did. There is neither a result nor an error if the client no
// longer waits for them.
func (ex *exchange) handle() (result any, failure *Error, answered bool) {
	begin, ctx := time.Now(), ex.call.ctx
	for {
		result, failure = ex.h.dispatcher.respond(ctx, ex.call, ex.r.Header)
		done, again := ex.forwarded()
		if done || !again || ctx.Err() != nil || time.Since(begin) >= forwardPatience {
			return result, failure, done
		}
		time.Sleep(forwardPause)
	}
}

// open adds the session of an accepted initialize request to the sessions of the server. It returns false if
// it has sent an answer.
func (ex *exchange) open() bool {
	// Set the id first: announcements read it.
	ex.owner.id = ex.h.sessions.ids.give(ex.principal, *ex.owner.known.Load())
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
func (ex *exchange) answer(result any, failure *Error) {
	d, ctx := ex.h.dispatcher, ex.call.ctx
	if failure != nil && ex.modern {
		ex.stream.status = statusOf(failure.Code)
	}
	line := d.encode(ctx, ex.msg, result, failure)
	// Otherwise a client that reads none of its answers would hold memory without limit.
	if len(line) > shortAnswer && !ex.admission.memory.Raise(ctx, len(line)) {
		line = d.encode(ctx, ex.msg, nil, &Error{Code: CodeBusy,
			Message: "the request was carried out, and there is no room for its answer: read the others"})
	}
	ex.out.writeIf(line, func() bool {
		ex.stream.answer = ex.r.Context().Err() == nil
		if ex.owner.calls != nil {
			ex.stream.answer = ex.owner.calls.settle(ex.call)
		}
		return ex.stream.answer
	})
	if !ex.stream.answer {
		ex.empty()
	}
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

// writeRefusal answers a message that starts no call.
func (h *HTTP) writeRefusal(w http.ResponseWriter, status int, id json.RawMessage, failure *Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(h.dispatcher.refusal(id, failure), '\n'))
}
