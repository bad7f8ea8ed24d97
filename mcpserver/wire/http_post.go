package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
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
	size := int(h.opts.MaxBody)
	if r.ContentLength >= 0 {
		size = int(min(r.ContentLength, h.opts.MaxBody))
	}
	if !h.decoding.wait(r.Context(), principal, size, decodingPatience) {
		retryLater(w, http.StatusServiceUnavailable, busyWait, "too many large requests in flight")
		return
	}
	decoded := sync.OnceFunc(func() { h.decoding.leave(principal, size) })
	defer decoded()
	m := h.readMessage(w, r, principal)
	if m == nil {
		return
	}
	ex := &exchange{h: h, w: w, r: r, principal: principal, msg: m, modern: isModern(r.Header, m),
		decoded: decoded}
	if !ex.modern {
		switch id := r.Header.Get(HeaderSession); {
		case id == "" && m.method != string(mcp.MethodInitialize):
			plainText(w, http.StatusBadRequest, "Mcp-Session-Id is missing; send initialize first")
			return
		case m.kind != request && IsForwarded(r.Context()): // this server may have no part of the session
			ex.protocol = h.sessions.enter(id, principal)
		case id != "":
			ex.protocol = h.session(r.Context(), id, principal)
		}
		if ex.protocol != nil {
			defer h.leave(ex.protocol)
		}
	}
	version, opening := r.Header.Get(mcp.HeaderProtocolVersion), m.method == string(mcp.MethodInitialize)
	switch {
	case !ex.modern && !opening && refusesVersion(w, version):
	case !ex.modern && !opening && ex.protocol == nil:
		// A session of another principal is treated as unknown.
		plainText(w, http.StatusNotFound, "Invalid session ID")
	case m.kind == request:
		ex.request()
	case m.kind == notification:
		ex.notification()
	case ex.modern:
		h.writeRefusal(w, http.StatusBadRequest, m.id, invalidRequest(
			"the server asks by results in this revision, and takes no responses"))
	case ex.protocol.asks.route(m) || ex.spread():
		w.WriteHeader(http.StatusAccepted)
	}
}

// spread sends the message, which belongs to a call on another server, to the other servers. It returns false
// if it has sent an answer.
func (ex *exchange) spread() bool {
	h := ex.h
	switch {
	case h.opts.Spread == nil:
	case IsForwarded(ex.r.Context()):
		ex.w.WriteHeader(http.StatusMisdirectedRequest)
		return false
	case !h.maySpread(ex.w, ex.principal):
		return false
	default:
		defer h.spreads.leave(ex.principal, 1)
		if size := len(ex.msg.raw); h.waiting.take(ex.principal, size) {
			defer h.waiting.leave(ex.principal, size)
			ex.decoded() // else it keeps the memory reserved for decoding
		}
		err := h.opts.Spread(ex.r, ex.msg.raw)
		if err != nil && ex.msg.kind == response { // clients repeat an answer, but not a cancellation
			retryLater(ex.w, http.StatusServiceUnavailable, busyWait,
				"the call may be at a server that does not answer")
			return false
		}
	}
	return true
}

// maySpread acquires a place in spreads, or answers 503.
func (h *HTTP) maySpread(w http.ResponseWriter, principal string) bool {
	may := h.spreads.take(principal, 1)
	if !may {
		retryLater(w, http.StatusServiceUnavailable, busyWait, "too many messages for other servers")
	}
	return may
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
	if !h.bodies.wait(r.Context(), principal, 1, readingPatience) {
		retryLater(w, http.StatusServiceUnavailable, busyWait, "too many requests in flight")
		return nil
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.opts.MaxBody))
	// The quota is for reading only: slow senders hold memory before they have a slot.
	h.bodies.leave(principal, 1)
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
