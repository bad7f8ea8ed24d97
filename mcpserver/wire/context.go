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

// ErrDisconnected is the cause (context.Cause) of a request context that ended because the client
// disconnected or the server is stopping.
var ErrDisconnected = errors.New("connection closed")

// sessionKey is the key of the session of the requests of a context: a *call, or a *session before the first
// request.
type sessionKey struct{}

// callOf returns the call of the request of ctx, or nil outside of a request.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(sessionKey{}).(*call)
	return c
}

// KillAtEOF returns a context that ends as soon as the input of ctx's connection ends or the server is asked
// to stop, while ctx itself has some time left to finish. A handler uses it for work that must not outlive
// the client, such as a running script; the cause is then [ErrDisconnected]. Outside of ServeStdio and HTTP
// it ends with ctx only. The returned function releases resources and must be called.
func KillAtEOF(ctx context.Context) (context.Context, context.CancelFunc) {
	c := callOf(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	if c == nil {
		return ctx, func() { cancel(nil) }
	}
	stop := context.AfterFunc(c.hangUp, func() { cancel(ErrDisconnected) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// YieldSlot releases the slot of the request of ctx while the handler waits for a scarce resource, so that
// another request can run. The request can still be cancelled and is answered as usual; the handler must
// bound how many requests wait in this way. YieldSlot returns false, and the request keeps its slot, if the
// messages of requests that yielded over HTTP already take 64 MiB in total or 32 MiB of one principal; the
// handler must not wait then. A second call, and a call outside of a request, does nothing.
func YieldSlot(ctx context.Context) bool {
	c := callOf(ctx)
	if c == nil {
		return true
	}
	// If there is no room for the message, the request keeps its slot too.
	if !c.admission.decoded() {
		return false
	}
	c.admission.slot.Release()
	return true
}

// Decoded reports that the handler has decoded the arguments of the request of ctx. Only few long messages
// are decoded at a time, so a handler calls it before it waits. Outside of a request it does nothing.
func Decoded(ctx context.Context) {
	if c := callOf(ctx); c != nil {
		c.admission.decoded()
	}
}

// Hold waits up to 10 seconds for memory for a file of n bytes and reports whether it got it. The request of
// ctx keeps the memory until its answer is written. Over HTTP there is room for files of 192 MiB in total and
// of 80 MiB per principal, also for a client on stdio, or less if the process has less memory; an answer
// takes five times the memory of its file. Outside of a request it does nothing.
func Hold(ctx context.Context, n int) bool {
	Decoded(ctx)
	c := callOf(ctx)
	return c == nil || c.admission.memory.Hold(ctx, fileCost*n)
}

// Borrow waits for n bytes of the memory that Hold uses and reports whether it got them. giveBack releases
// them. Outside of a request it does nothing.
func Borrow(ctx context.Context, n int) (giveBack func(), ok bool) {
	Decoded(ctx)
	c := callOf(ctx)
	if c == nil {
		return func() {}, true
	}
	return c.admission.memory.Borrow(ctx, n)
}

// RequestID returns the id of the JSON-RPC request of ctx, byte for byte as the client sent it; nil outside
// of a request.
func RequestID(ctx context.Context) json.RawMessage {
	if c := callOf(ctx); c != nil {
		return c.msg.id
	}
	return nil
}

// Length returns the length in bytes of the message of the request of ctx; 0 outside of a request.
func Length(ctx context.Context) int {
	if c := callOf(ctx); c != nil {
		return len(c.msg.raw)
	}
	return 0
}

// Meta returns a member of the _meta of the request of ctx as the client sent it, or nil.
func Meta(ctx context.Context, name string) json.RawMessage {
	c := callOf(ctx)
	if c == nil {
		return nil
	}
	value := c.msg.params
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

// Client describes a client in its own words. None of it is verified.
type Client struct {
	// SessionID is the id of the session, or "" without a session.
	SessionID string
	// Info names the software; zero if the client did not send it.
	Info mcp.Implementation
	// Capabilities are from the request on 2026-07-28, and from initialize on older revisions.
	Capabilities mcp.ClientCapabilities
	// Version is the protocol revision of the request, "" before initialize.
	Version string
	// Modern reports whether the revision is 2026-07-28 or later.
	Modern bool
}

// ClientOf returns the description of the client of the request of ctx; the zero value outside of a request.
func ClientOf(ctx context.Context) Client {
	var c Client
	var said *known
	deaf := false
	switch s := ctx.Value(sessionKey{}).(type) {
	case *call:
		c.SessionID, c.Modern, said, deaf = s.id, s.declared != nil, s.declared, s.deaf
		if said == nil {
			said = s.known.Load()
		}
	case *session:
		c.SessionID, said = s.id, s.known.Load()
	}
	if said != nil {
		c.Info, c.Capabilities, c.Version = said.info, said.capabilities, said.version
	}
	// On 2026-07-28 the server asks by results, which every client reads.
	if deaf && !c.Modern {
		c.Capabilities.Elicitation, c.Capabilities.Roots, c.Capabilities.Sampling = nil, nil, nil
	}
	return c
}

// ErrNotAsked is the error of a request to a client that did not declare support for it.
var ErrNotAsked = errors.New("the client does not answer such requests")

// ErrFailed is the error of a request that the client answered with an error.
var ErrFailed = errors.New("client answered")

// Ask sends a request to the client of ctx and decodes the result: elicitation/create, roots/list or
// sampling/createMessage. A client of the older revisions answers during the call, if it declared support. On
// 2026-07-28 a result asks for input instead.
//
// Errors: ErrNotAsked; ErrFailed; a result of another form; the cause of ctx.
func Ask(ctx context.Context, method mcp.MCPMethod, params, result any) error {
	c := callOf(ctx)
	if c == nil || c.declared != nil {
		return ErrNotAsked
	}
	has := ClientOf(ctx).Capabilities
	if !(method == mcp.MethodElicitationCreate && has.Elicitation != nil ||
		method == mcp.MethodListRoots && has.Roots != nil ||
		method == mcp.MethodSamplingCreateMessage && has.Sampling != nil) {
		return ErrNotAsked
	}
	return c.asks.ask(ctx, c.out, method, params, result)
}

// Notify sends a notification of the request of ctx, before its answer. If the client does not read, Notify
// waits until ctx ends. Progress is sent only if the client asked for it, with the client's token.
//
// Errors: the request is answered, or ctx has ended. Outside of a request it returns nil.
func Notify(ctx context.Context, method string, params map[string]any) error {
	c := callOf(ctx)
	if c == nil {
		return nil
	}
	n := mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION}
	n.Method, n.Params.AdditionalFields = method, params
	return c.send(ctx, n)
}

type forwardedKey struct{}

// IsForwarded reports whether the request of ctx was forwarded by another server.
func IsForwarded(ctx context.Context) bool { return ctx.Value(forwardedKey{}) != nil }
