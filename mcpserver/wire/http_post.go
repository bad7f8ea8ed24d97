package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// busyWait is when a client that was refused for want of room may try again.
const busyWait = time.Second

type httpCallKey struct{}

// httpCall is one POST on its way through mcp-go.
type httpCall struct {
	msg       *message
	header    http.Header
	modern    bool
	principal string
	protocol  *httpSession // nil on 2026-07-28 and when the client named none it has
	session   server.ClientSession
	slot      *errorSlot
}

// withOwnSession gives handlers this package's session in the place of mcp-go's.
func (h *HTTP) withOwnSession(ctx context.Context, _ *http.Request) context.Context {
	call, ok := ctx.Value(httpCallKey{}).(*httpCall)
	if !ok || call.session == nil {
		return ctx
	}
	return h.dispatcher.Server.WithContext(ctx, call.session)
}

// post answers one POST on the endpoint.
func (h *HTTP) post(w http.ResponseWriter, r *http.Request, principal string) {
	if form := unsupportedForm(r.Header); form != "" {
		plainText(w, http.StatusUnsupportedMediaType, form)
		return
	}
	m := h.readMessage(w, r, principal)
	if m == nil {
		return
	}
	call := &httpCall{msg: m, header: r.Header, modern: isModern(r.Header, m), principal: principal, slot: new(errorSlot)}
	if !call.modern {
		if id := r.Header.Get(server.HeaderKeySessionID); id != "" {
			if call.protocol = h.sessions.enter(id, principal); call.protocol != nil {
				defer h.sessions.leave(call.protocol)
			}
		} else if m.method != string(mcp.MethodInitialize) {
			plainText(w, http.StatusBadRequest, "Mcp-Session-Id is missing; send initialize first")
			return
		}
	}
	switch {
	case m.kind == request:
		h.request(w, r, call)
	case m.kind == notification:
		h.notification(w, r, call)
	case call.modern:
		h.library.Handle(&recorder{header: w.Header(), to: w}, &server.HTTPRequest{Method: http.MethodPost, Header: r.Header, Body: m.raw, Context: r.Context()})
	case call.protocol == nil:
		plainText(w, http.StatusNotFound, "Invalid session ID")
	default:
		call.protocol.route(m)
		w.WriteHeader(http.StatusAccepted)
	}
}

// unsupportedForm says what is wrong with the declared form of a body, "" when it is JSON in UTF-8.
// A body is read as what it declares to be or not at all.
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
	if !h.bodies.take(principal) {
		retryLater(w, http.StatusServiceUnavailable, busyWait, "too many requests in flight")
		return nil
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.opts.maxBody()))
	h.bodies.leave(principal)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		h.writeRefusal(w, http.StatusRequestEntityTooLarge, nil, invalidRequest(fmt.Sprintf("message longer than %d bytes", h.opts.maxBody())))
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

// isModern reports whether mcp-go takes the message for one of 2026-07-28 or later.
func isModern(header http.Header, m *message) bool {
	return mcp.IsModernProtocol(header.Get(mcp.HeaderProtocolVersion)) || mcp.IsModernProtocol(protocolOf(m.params).ProtocolVersion)
}

// notification gives a notification of the client to mcp-go. A cancellation is only shown to
// it under another name: it would cancel requests by ids it has rounded.
func (h *HTTP) notification(w http.ResponseWriter, r *http.Request, call *httpCall) {
	if call.protocol != nil {
		call.session = newCallSession(r.Context(), call.protocol.session, call.msg, newLineWriter(io.Discard), call.protocol.announcer)
	}
	raw := call.msg.raw
	canceled := call.msg.method == string(mcp.MethodNotificationCancelled)
	if canceled {
		raw = renamed(call.msg)
	}
	rec := &recorder{header: make(http.Header)}
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), httpCallKey{}, call))
	defer cancel()
	_, failure := h.dispatcher.guard(ctx, call.msg, func(ctx context.Context, _ *message) (any, *Error) {
		h.library.Handle(rec, &server.HTTPRequest{Method: http.MethodPost, Header: r.Header, Body: raw, Context: ctx})
		return nil, nil
	})
	if failure != nil {
		w.WriteHeader(http.StatusAccepted) // a notification has no answer
		return
	}
	if canceled && call.protocol != nil && rec.status == http.StatusAccepted {
		if id := canceledID(call.msg.params); id != nil {
			call.protocol.calls.cancel(idKey(id))
		}
	}
	rec.copyTo(w)
}

// renamed is a notification under its alias.
func renamed(m *message) []byte {
	name, _ := json.Marshal(Alias(m.method))
	out := fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%s`, name)
	if m.params != nil {
		out = append(append(out, `,"params":`...), m.params...)
	}
	return append(out, '}')
}

// request answers a request, at most as many at a time as there are places.
func (h *HTTP) request(w http.ResponseWriter, r *http.Request, call *httpCall) {
	seats := h.calls
	if call.msg.method == string(mcp.MethodSubscriptionsListen) {
		seats = h.streams
	}
	leave := func() {}
	if ping := call.msg.method == string(mcp.MethodPing); !ping {
		if !seats.take(call.principal) {
			retryLater(w, http.StatusServiceUnavailable, busyWait, "too many requests in flight")
			return
		}
		leave = sync.OnceFunc(func() { seats.leave(call.principal) })
	}
	defer leave()
	opening := call.msg.method == string(mcp.MethodInitialize) && !call.modern
	owner := call.protocol
	switch {
	case opening:
		owner = h.newSession(call.principal, int(8*h.opts.maxBody()))
		owner.announcer.news = h.watchFor(r.Context())
		defer func() {
			if owner.id == "" { // it did not come to a session
				owner.end(ErrDisconnected)
			}
		}()
	case call.modern:
		id := "request-" + strconv.FormatUint(h.requests.Add(1), 10)
		owner = &httpSession{session: &session{id: id, level: mcp.LoggingLevelError}}
	}
	ex := h.newExchange(w, r, call, owner)
	defer ex.close()
	if ex.call.session != nil {
		ex.call.session.place = leave
		ex.call.session.room = func() bool { return ex.makeRoom(call.principal, len(call.msg.raw)) }
	}
	if owner != nil && owner.calls != nil {
		if ok, failure := owner.calls.add(ex.call); !ok {
			ex.refuse(failure)
			return
		}
		defer owner.calls.leave(ex.call)
	}
	ex.run(opening)
}

// writeRefusal answers a message that mcp-go was not shown.
func (h *HTTP) writeRefusal(w http.ResponseWriter, status int, id json.RawMessage, failure *Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(h.dispatcher.refusal(id, failure), '\n'))
}

// recorder is the response mcp-go writes to. It cannot stream, so that all it gets is the
// answer, whole. When to is set it passes everything on.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
	to     http.ResponseWriter
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) Flush()              {}
func (r *recorder) CanStream() bool     { return false }

func (r *recorder) WriteHeader(status int) {
	r.status = status
	if r.to != nil {
		r.to.WriteHeader(status)
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.to != nil {
		return r.to.Write(p)
	}
	return r.body.Write(p)
}

// message returns the answer when it is a JSON-RPC message.
func (r *recorder) message() (*message, bool) {
	if r.header.Get("Content-Type") != "application/json" {
		return nil, false
	}
	m, failure := parse(bytes.TrimSpace(r.body.Bytes()))
	return m, failure == nil && m.kind == response
}

// copyTo writes what was recorded.
func (r *recorder) copyTo(w http.ResponseWriter) {
	for key, values := range r.header {
		w.Header()[key] = values
	}
	if r.status == 0 {
		r.status = http.StatusAccepted
	}
	w.WriteHeader(r.status)
	w.Write(r.body.Bytes())
}
