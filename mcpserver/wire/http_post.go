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
	// busyWait is after how long a client that was refused for lack of room may try again.
	busyWait = time.Second

	// decodingPatience is how long a message waits until those before it are decoded.
	decodingPatience = 10 * time.Second

	// readingPatience is how long a request waits until others are read: slow senders hold the places.
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
		case m.kind != request && IsForwarded(r.Context()): // nothing of the session may be here
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
		// A session of another principal does not exist for this one.
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

// spread gives the message, which is for a call that is not here, to the other servers. It reports false if
// it has answered.
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
			ex.decoded() // else it keeps its place among those that are decoded
		}
		err := h.opts.Spread(ex.r, ex.msg.raw)
		if err != nil && ex.msg.kind == response { // nobody sends a cancellation again
			retryLater(ex.w, http.StatusServiceUnavailable, busyWait,
				"the call may be at a server that does not answer")
			return false
		}
	}
	return true
}

// maySpread takes a place in spreads, or answers that there is none.
func (h *HTTP) maySpread(w http.ResponseWriter, principal string) bool {
	may := h.spreads.take(principal, 1)
	if !may {
		retryLater(w, http.StatusServiceUnavailable, busyWait, "too many messages for other servers")
	}
	return may
}

// unsupportedForm returns what is wrong with the declared form of a body, or "" if it is JSON in UTF-8.
// A body is read in the form that it declares or not at all.
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
	// Only reading is counted here, since a slow sender holds memory before it holds a slot.
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
		// The message is sound; clients of the older revisions give up the session at another status.
		h.writeRefusal(w, http.StatusOK, m.id, failure)
	default:
		h.writeRefusal(w, http.StatusBadRequest, m.id, failure)
	}
	return nil
}

// isModern reports whether a message says that it is of 2026-07-28 or later.
func isModern(header http.Header, m *message) bool {
	return mcp.IsModernProtocol(header.Get(mcp.HeaderProtocolVersion)) ||
		mcp.IsModernProtocol(m.protocol().version)
}

// refusesVersion refuses a version in the header of a message in a session that no revision has, and reports
// whether it did.
func refusesVersion(w http.ResponseWriter, version string) bool {
	unknown := version != "" && !mcp.IsValidProtocolVersion(version)
	if unknown {
		plainText(w, http.StatusBadRequest, "unsupported protocol version")
	}
	return unknown
}

// notification takes a notification of the client. Others than a cancellation mean nothing here.
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

// checkVersions returns what is wrong with the headers of a message of 2026-07-28, or nil: its version is in
// a header and in its _meta, and streams are not taken up again.
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
