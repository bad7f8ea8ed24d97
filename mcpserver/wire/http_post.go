package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
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
)

// post answers one POST on the endpoint.
func (h *HTTP) post(w http.ResponseWriter, r *http.Request, principal string) {
	if form := unsupportedForm(r.Header); form != "" {
		plainText(w, http.StatusUnsupportedMediaType, form)
		return
	}
	ex := &exchange{h: h, w: w, r: r, principal: principal, admission: &admission{
		principal: principal, messages: h.waiting,
		memory: admit.NewLedger(h.memory, principal, holdingPatience)}}
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

// read reads the message once there is memory to decode it. It returns false if it has sent an answer.
func (ex *exchange) read() bool {
	h, a := ex.h, ex.admission
	size := int(h.opts.MaxBody)
	if ex.r.ContentLength >= 0 {
		size = int(min(ex.r.ContentLength, h.opts.MaxBody))
	}
	a.decoding = h.decoding.Wait(ex.r.Context(), ex.principal, size, decodingPatience, nil)
	if a.decoding == nil {
		retryLater(ex.w, http.StatusServiceUnavailable, busyWait, "too many large requests in flight")
		return false
	}
	ex.msg = h.readMessage(ex.w, ex.r, ex.principal)
	if ex.msg == nil {
		return false
	}
	a.size = len(ex.msg.raw)
	ex.modern = isModern(ex.r.Header, ex.msg)
	return true
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

// spread sends the message, which belongs to a call on another server, to the other servers. It returns false
// if it has sent an answer.
func (ex *exchange) spread() bool {
	h := ex.h
	if h.opts.Spread == nil {
		return true
	}
	if IsForwarded(ex.r.Context()) {
		ex.w.WriteHeader(http.StatusMisdirectedRequest)
		return false
	}
	ex.admission.spread = h.maySpread(ex.w, ex.principal)
	if ex.admission.spread == nil {
		return false
	}
	// If there is no room, the message keeps the memory that was reserved for decoding.
	ex.admission.decoded()
	err := h.opts.Spread(ex.r, ex.msg.raw)
	// Clients repeat an answer, but not a cancellation.
	if err != nil && ex.msg.kind == response {
		retryLater(ex.w, http.StatusServiceUnavailable, busyWait,
			"the call may be at a server that does not answer")
		return false
	}
	return true
}

// maySpread acquires a place in spreads, or answers 503 and returns nil.
func (h *HTTP) maySpread(w http.ResponseWriter, principal string) *admit.Claim {
	place := h.spreads.Take(principal, 1)
	if place == nil {
		retryLater(w, http.StatusServiceUnavailable, busyWait, "too many messages for other servers")
	}
	return place
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

// readMessage reads the one message of a body, or answers and returns nil.
func (h *HTTP) readMessage(w http.ResponseWriter, r *http.Request, principal string) *message {
	reading := h.bodies.Wait(r.Context(), principal, 1, readingPatience, nil)
	if reading == nil {
		retryLater(w, http.StatusServiceUnavailable, busyWait, "too many requests in flight")
		return nil
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.opts.MaxBody))
	// The quota is for reading only: slow senders hold memory before they have a slot.
	reading.Release()
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		failure := invalidRequest(fmt.Sprintf("message longer than %d bytes", h.opts.MaxBody))
		h.writeRefusal(w, http.StatusRequestEntityTooLarge, nil, failure)
		return nil
	}
	if err != nil {
		plainText(w, http.StatusBadRequest, "the body ended early")
		return nil
	}
	m, failure := parse(raw)
	switch {
	case failure == nil:
		return m
	case failure.Code == mcp.INVALID_PARAMS && !isModern(r.Header, m):
		// The envelope is valid; clients of the older revisions drop the session on another status.
		h.writeRefusal(w, http.StatusOK, m.id, failure)
	default:
		h.writeRefusal(w, http.StatusBadRequest, m.id, failure)
	}
	return nil
}

// isModern reports whether a message declares 2026-07-28 or later.
func isModern(header http.Header, m *message) bool {
	return mcp.IsModernProtocol(header.Get(mcp.HeaderProtocolVersion)) ||
		mcp.IsModernProtocol(m.protocol().version)
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
		if failure := ex.checkVersions(); failure != nil {
			ex.h.writeRefusal(ex.w, http.StatusBadRequest, nil, failure)
			return
		}
	} else if ex.msg.method == string(mcp.MethodNotificationCancelled) &&
		!ex.protocol.calls.cancel(ex.msg) && !ex.spread() {
		return
	}
	ex.w.WriteHeader(http.StatusAccepted)
}

// checkVersions returns what is wrong with the headers of a message of 2026-07-28, or nil: the version in the
// header must equal the one in _meta, and streams cannot be resumed.
func (ex *exchange) checkVersions() *Error {
	header, body := ex.r.Header.Get(mcp.HeaderProtocolVersion), ex.msg.protocol().version
	mismatch := func(text string) *Error { return &Error{Code: mcp.HEADER_MISMATCH, Message: text} }
	switch {
	case ex.r.Header.Get(mcp.HeaderLastEventID) != "":
		return mismatch(mcp.HeaderLastEventID + " is not supported in this revision: send the request again")
	case header == "":
		return mismatch(mcp.HeaderProtocolVersion + " is missing")
	case body == "":
		return invalidParams("missing or invalid _meta field " + mcp.MetaKeyProtocolVersion)
	case header != body:
		return mismatch(mcp.HeaderProtocolVersion + " is not the version in _meta")
	case !mcp.IsValidProtocolVersion(body):
		return unsupported(body, Versions())
	}
	return nil
}

// writeRefusal answers a message that starts no call.
func (h *HTTP) writeRefusal(w http.ResponseWriter, status int, id json.RawMessage, failure *Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(h.dispatcher.refusal(id, failure), '\n'))
}
