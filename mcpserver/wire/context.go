package wire

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"
)

// ErrCanceled is the cause (context.Cause) of a request context that ended because the client cancelled the
// request.
var ErrCanceled = errors.New("request canceled by the client")

// ErrDisconnected is the cause (context.Cause) of a request context that ended
// because the client left or the server is stopping.
var ErrDisconnected = errors.New("connection closed")

type sessionKey struct{}

// withSession returns a context whose requests are of a session: a *callSession, or a *session before the
// first request.
func withSession(ctx context.Context, s interface{ said() known }) context.Context {
	return context.WithValue(ctx, sessionKey{}, s)
}

// callSessionOf returns the session of a request that this package serves, nil outside of one.
func callSessionOf(ctx context.Context) *callSession {
	s, _ := ctx.Value(sessionKey{}).(*callSession)
	return s
}

// KillAtEOF returns a context that ends as soon as the input of ctx's connection ends, or the server is asked
// to stop, while ctx itself has some time left to finish. A handler uses it for the part of its work that
// must not outlive the client, such as a running script; the cause is then [ErrDisconnected]. Outside of
// ServeStdio and HTTP it ends with ctx only. The returned function releases its resources and must be called.
func KillAtEOF(ctx context.Context) (context.Context, context.CancelFunc) {
	s := callSessionOf(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	if s == nil {
		return ctx, func() { cancel(nil) }
	}
	stop := context.AfterFunc(s.hangUp, func() { cancel(ErrDisconnected) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// YieldSlot gives the slot that the request of ctx has among those that may run to another one, while the
// handler waits for its turn at something scarce. The request can be cancelled and is answered as before;
// the handler has to bound how many requests wait so. It reports false, and the request keeps its slot, if
// the messages of requests that yielded theirs over HTTP take too much memory already: 64 MiB in all, 32 MiB
// of one principal; the handler is then not to wait. Done again, and outside of a request, it does nothing.
func YieldSlot(ctx context.Context) bool {
	s := callSessionOf(ctx)
	return s == nil || s.yield == nil || s.yield()
}

// Decoded says that the handler has decoded the arguments of the request of ctx. Few long messages are
// decoded at a time, so a handler calls it before it waits for anything. Outside of a request it does
// nothing.
func Decoded(ctx context.Context) {
	if s := callSessionOf(ctx); s != nil && s.decoded != nil {
		s.decoded()
	}
}

// Hold waits until there is memory for a file of n bytes, which the request of ctx has until its answer is
// written, and reports whether there was within 10 seconds. Over HTTP there is room for 192 MiB in all, and
// for 80 MiB of one principal or of a client on stdio, or for less; an answer takes five times the memory of
// its file. Outside of a request it does nothing.
func Hold(ctx context.Context, n int) bool {
	Decoded(ctx)
	s := callSessionOf(ctx)
	return s == nil || s.ledger == nil || s.ledger.hold(ctx, fileCost*n)
}

// Borrow waits until there is room for n bytes of memory, out of what Hold takes from, and reports whether
// there was. It returns what gives them back. Outside of a request it does nothing.
func Borrow(ctx context.Context, n int) (giveBack func(), ok bool) {
	Decoded(ctx)
	s := callSessionOf(ctx)
	if s == nil || s.ledger == nil {
		return func() {}, true
	}
	return s.ledger.borrow(ctx, n)
}

// RequestID returns the id of the JSON-RPC request that ctx belongs to, as the client wrote it; nil
// outside of one.
func RequestID(ctx context.Context) json.RawMessage {
	if s := callSessionOf(ctx); s != nil {
		return s.msg.id
	}
	return nil
}

// Length returns how many bytes the message of the request of ctx has; 0 outside of one.
func Length(ctx context.Context) int {
	if s := callSessionOf(ctx); s != nil {
		return len(s.msg.raw)
	}
	return 0
}

// Meta returns a member of the _meta of the request that ctx belongs to, as the client wrote it, or nil.
func Meta(ctx context.Context, name string) json.RawMessage {
	s := callSessionOf(ctx)
	if s == nil {
		return nil
	}
	value := s.msg.params
	for _, name := range []string{"_meta", name} {
		members, err := Members(value)
		i := slices.IndexFunc(members, func(m Member) bool { return m.Key == name })
		if err != nil || i < 0 {
			return nil
		}
		value = members[i].Value
	}
	return value
}

// Client is a description that a client gave of itself. None of it is verified.
type Client struct {
	// SessionID is the id of the session, "" without a session.
	SessionID string
	// Info names the software; zero when the client did not say.
	Info mcp.Implementation
	// Capabilities are declared by the request on 2026-07-28, and by the initialize request before.
	Capabilities mcp.ClientCapabilities
	// Version is the protocol revision of the request, "" before initialize.
	Version string
	// Modern reports whether the revision is 2026-07-28 or later.
	Modern bool
}

// ClientOf returns what is known of the client whose request ctx belongs to; nothing outside of one.
func ClientOf(ctx context.Context) Client {
	var c Client
	var said known
	switch s := ctx.Value(sessionKey{}).(type) {
	case *callSession:
		c.SessionID, c.Modern, said = s.id, s.isModern(), s.said()
	case *session:
		c.SessionID, said = s.id, s.said()
	}
	c.Info, c.Capabilities, c.Version = said.info, said.capabilities, said.version
	return c
}

// ErrNotAsked is the error of asking a client that did not declare that it can answer.
var ErrNotAsked = errors.New("the client does not answer such requests")

// ErrFailed is the error of a request that the client answered with an error.
var ErrFailed = errors.New("client answered")

// Ask sends a request to the client of ctx and decodes its result: elicitation/create, roots/list or
// sampling/createMessage, which a client of the older revisions answers during the call if it declared so.
// 2026-07-28 has results that ask instead.
//
// Errors: ErrNotAsked; ErrFailed; a result of another form; the cause of ctx.
func Ask(ctx context.Context, method mcp.MCPMethod, params, result any) error {
	s := callSessionOf(ctx)
	if s == nil || s.isModern() {
		return ErrNotAsked
	}
	has := s.said().capabilities
	if !(method == mcp.MethodElicitationCreate && has.Elicitation != nil ||
		method == mcp.MethodListRoots && has.Roots != nil ||
		method == mcp.MethodSamplingCreateMessage && has.Sampling != nil) {
		return ErrNotAsked
	}
	return s.asks.ask(ctx, s.out, method, params, result)
}

// Notify sends a notification that belongs to the request of ctx, before its answer. It waits while the
// client does not read, until ctx ends. The progress of a request goes to a client that asked for it, with
// its own token.
//
// Errors: the request is answered, or ctx has ended; outside of a request there is none.
func Notify(ctx context.Context, method string, params map[string]any) error {
	s := callSessionOf(ctx)
	if s == nil {
		return nil
	}
	n := mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION}
	n.Method, n.Params.AdditionalFields = method, params
	return s.own.send(ctx, n)
}
