package wire

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// Dispatcher answers single JSON-RPC messages with an MCPServer and the methods it lacks. Server is required;
// the fields must not change once it is in use. All methods are safe for concurrent use.
type Dispatcher struct {
	// Server gets every message first.
	Server *server.MCPServer
	// Methods are answered when Server does not know them.
	Methods Methods
	// Overrides are answered instead of Server's own methods of that name.
	Overrides Methods
	// ServerInfo is the identity put in the _meta of results of Methods and
	// Overrides on 2026-07-28. Nothing is put there when its name is empty.
	ServerInfo mcp.Implementation
	// CacheTTL is the ttlMs hint, in whole milliseconds, of results that embed
	// mcp.CacheableResult and set none themselves. The scope is private.
	CacheTTL time.Duration
	// Logger gets panics and the private text of internal errors. Nil discards.
	Logger *slog.Logger
	// Trace is called as each request begins. It returns the context to handle the request in, and what to
	// call at its end with its error or nil. Nil traces nothing.
	Trace func(context.Context, string, json.RawMessage) (context.Context, func(*Error))
	// Withhold returns the JSON of an error as the client may see it: an error repeats what a
	// request said. Nil leaves it as it is.
	Withhold func(json.RawMessage) json.RawMessage
}

// alias returns the name under which an override's request is shown to mcp-go, which must not know it.
func alias(method string) string { return "skillsd/answered-here/" + method }

func (d *Dispatcher) lookup(name string) Method {
	if method, ok := d.Overrides[name]; ok {
		return method
	}
	return d.Methods[name]
}

// answer returns the answer to a request, which has no newline, inside or at its end. The caller puts the
// client session into ctx.
func (d *Dispatcher) answer(ctx context.Context, m *message) []byte {
	result, failure := d.guard(ctx, m, func(ctx context.Context) (any, *Error) { return d.respond(ctx, m) })
	return d.encode(ctx, m, result, failure)
}

func (d *Dispatcher) notify(ctx context.Context, m *message) {
	d.guard(ctx, m, func(ctx context.Context) (any, *Error) {
		d.Server.HandleMessage(ctx, m.raw)
		return nil, nil
	})
}

// guard makes an internal error of a panic: one handler must not end the connection of all the others.
func (d *Dispatcher) guard(
	ctx context.Context, m *message, handle func(context.Context) (any, *Error),
) (result any, failure *Error) {
	if d.Trace != nil && m.kind == request {
		var end func(*Error)
		ctx, end = d.Trace(ctx, m.method, m.params)
		defer func() { end(failure) }()
	}
	defer func() {
		if r := recover(); r != nil {
			d.logger().ErrorContext(ctx, "handler panicked", slog.String("method", m.method),
				slog.String("err", fmt.Sprint(r)), slog.String("stack", string(debug.Stack())))
			result, failure = nil, internalError()
		}
	}()
	return handle(ctx)
}

func (d *Dispatcher) respond(ctx context.Context, m *message) (any, *Error) {
	raw := m.raw
	if d.lookup(m.method) != nil {
		// All that mcp-go says to a request of the older revisions is that it does not know the method: what
		// it checks before are the envelope, which parse has checked, and what the newer revision adds.
		if said := protocolOf(m.params); !said.Modern {
			return d.own(ctx, m, said)
		}
	}
	if _, ok := d.Overrides[m.method]; ok {
		// Under its own name the library would answer it.
		raw = rewritten(m, alias(m.method))
	}
	reply := d.Server.HandleMessage(ctx, raw)
	switch reply := reply.(type) {
	case mcp.JSONRPCResponse:
		if listen, ok := reply.Result.(mcp.SubscriptionsListenResult); ok {
			// The one result that repeats the request id, which mcp-go holds as a float64.
			listen.EnsureResultMeta().SetSubscriptionID(m.id)
			return listen, nil
		}
		return reply.Result, nil
	case mcp.JSONRPCError:
		failure := &Error{Code: reply.Error.Code, Message: reply.Error.Message, Data: reply.Error.Data}
		return d.replace(ctx, m, failure)
	}
	d.logPrivate(ctx, m, fmt.Sprintf("library answered with %T", reply))
	return nil, internalError()
}

// replace turns an error of mcp-go into the answer to m: the answer of the tables to a method that only they
// have, the error that the handler chose instead of an internal one, or failure itself, without the text of
// a decoder about Go types.
func (d *Dispatcher) replace(ctx context.Context, m *message, failure *Error) (any, *Error) {
	switch failure.Code {
	case mcp.INVALID_REQUEST, mcp.INVALID_PARAMS, mcp.PARSE_ERROR:
		if fromDecoder(failure.Message) {
			d.logger().DebugContext(ctx, "params not decoded",
				slog.String("method", m.method), slog.String("err", failure.Message))
			return nil, &Error{Code: failure.Code, Message: errParams}
		}
	case mcp.METHOD_NOT_FOUND:
		if d.lookup(m.method) != nil {
			return d.own(ctx, m, protocolOf(m.params))
		}
	case mcp.INTERNAL_ERROR:
		if s := callSessionOf(ctx); s != nil {
			if result := s.instead.Load(); result != nil {
				d.decorate(*result)
				return *result, nil
			}
			if failure := s.chosen.Load(); failure != nil {
				return nil, failure
			}
		}
		d.logPrivate(ctx, m, failure.Message)
		return nil, internalError()
	}
	return nil, failure
}

// fromDecoder reports whether mcp-go made a message of an error of decoding. Its own messages, such
// as those that name an unknown tool, have none of these marks; a caller who puts one into a name
// gets a vaguer answer.
func fromDecoder(message string) bool {
	return strings.HasPrefix(message, "unparsable ") || strings.Contains(message, "json: ") ||
		strings.HasPrefix(message, "illegal base64 data")
}

// rewritten is m under another method, with everything in it that mcp-go reads.
func rewritten(m *message, method string) []byte {
	name, _ := json.Marshal(method)
	out := fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%s`, name)
	if m.id != nil {
		out = append(append(out, `,"id":`...), m.id...)
	}
	if m.params != nil {
		out = append(append(out, `,"params":`...), m.params...)
	}
	return append(out, '}')
}

// own runs a method of the tables. mcp-go has accepted the request or would, so its declared version alone
// decides the revision.
func (d *Dispatcher) own(ctx context.Context, m *message, info *server.RequestProtocolInfo) (any, *Error) {
	r := &Request{Method: m.method, Params: m.params, Modern: info.Modern}
	result, err := d.lookup(m.method)(server.WithRequestProtocolInfo(ctx, info), r)
	if err != nil {
		if failure, public := errors.AsType[*Error](err); public {
			return nil, failure
		}
		d.logPrivate(ctx, m, err.Error())
		return nil, internalError()
	}
	if info.Modern {
		d.decorate(result)
	}
	return result, nil
}

func protocolOf(params json.RawMessage) *server.RequestProtocolInfo {
	var p struct {
		Meta *mcp.Meta `json:"_meta"`
	}
	// No spelling of _meta does without these, and few requests of the older revisions have one.
	if !bytes.ContainsAny(params, `_\`) || json.Unmarshal(params, &p) != nil || p.Meta == nil {
		return new(server.RequestProtocolInfo)
	}
	info := &server.RequestProtocolInfo{ProtocolVersion: p.Meta.ProtocolVersion()}
	if mcp.IsModernProtocol(info.ProtocolVersion) {
		info.Modern = true
		info.ClientInfo = p.Meta.ClientInfo()
		info.ClientCapabilities = p.Meta.ClientCapabilities()
		info.LogLevel = p.Meta.LogLevel()
	}
	return info
}

// decorate adds what the revision 2026-07-28 requires of a result.
func (d *Dispatcher) decorate(result any) {
	decorated, ok := result.(mcp.ResultMetadata)
	if !ok {
		return
	}
	if decorated.GetResultType() == "" {
		decorated.SetResultType(mcp.ResultTypeComplete)
	}
	if d.ServerInfo.Name != "" {
		meta := cmp.Or(decorated.GetResultMeta(), new(mcp.Meta))
		if meta.ServerInfo() == nil {
			meta.SetServerInfo(d.ServerInfo)
		}
		decorated.SetResultMeta(meta)
	}
	if cached, ok := decorated.(interface {
		mcp.CacheHintSetter
		TTL() (int64, bool)
	}); ok {
		if _, set := cached.TTL(); !set {
			cached.SetCacheHints(d.CacheTTL.Milliseconds(), mcp.CacheScopePrivate)
		}
	}
}

func (d *Dispatcher) logPrivate(ctx context.Context, m *message, text string) {
	level := slog.LevelError
	if ctx.Err() != nil {
		level = slog.LevelDebug // nobody waits for the answer
	}
	d.logger().Log(ctx, level, "request failed", slog.String("method", m.method), slog.String("err", text))
}

func (d *Dispatcher) logger() *slog.Logger {
	if d.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return d.Logger
}

// encode returns the answer to m. A result that does not marshal becomes an internal error.
func (d *Dispatcher) encode(ctx context.Context, m *message, result any, failure *Error) []byte {
	if failure != nil {
		return d.refusal(m.id, failure)
	}
	var line, made []byte
	var err error
	switch own := result.(type) {
	case Appender:
		line, err = own.AppendJSON(begin(m.id, "result"))
	case json.Marshaler:
		// Given to encoding/json, what it makes would be checked and copied once more.
		made, err = own.MarshalJSON()
	}
	if line == nil && (made == nil || bytes.IndexByte(made, '\n') >= 0) {
		made, err = json.Marshal(result)
	}
	if err != nil {
		d.logPrivate(ctx, m, "marshal result: "+err.Error())
		return d.refusal(m.id, internalError())
	}
	if line != nil {
		return append(line, '}')
	}
	return envelope(m.id, "result", made)
}

// refusal is the answer that an error makes. A nil id is null.
func (d *Dispatcher) refusal(id json.RawMessage, failure *Error) []byte {
	public, err := json.Marshal(failure)
	if err != nil {
		d.logger().Error("error not marshalled", slog.String("err", err.Error()))
		return d.refusal(id, internalError())
	}
	if d.Withhold != nil {
		public = d.Withhold(public)
	}
	return envelope(id, "error", public)
}

// envelope returns a message with a result or an error, and with room for the newline.
func envelope(id json.RawMessage, key string, value []byte) []byte {
	return append(append(slices.Grow(begin(id, key), len(value)+AfterResult), value...), '}')
}

// begin returns a message up to its result or error.
func begin(id json.RawMessage, key string) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	return slices.Concat([]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"`), []byte(key), []byte(`":`))
}
