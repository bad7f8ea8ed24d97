package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"runtime/debug"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

const aliasPrefix = "skillsd/answered-here/"

// Dispatcher answers single JSON-RPC messages with an MCPServer and the methods
// it lacks. Server is required; the fields must not change once it is in use.
// All methods are safe for concurrent use.
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
	// Withhold returns the JSON of an error as the client may see it: an error repeats what a
	// request said. Nil leaves it as it is.
	Withhold func(json.RawMessage) json.RawMessage
}

// Alias returns the name under which an override's request is shown to mcp-go,
// which must not know it. A transport that carries the method in a header as
// well must send this name there.
func Alias(method string) string { return aliasPrefix + method }

// Dispatch answers one JSON-RPC message. The answer has no newline, inside or at
// its end, and is nil for notifications and for responses of the client.
// The caller puts the client session and request headers into ctx.
func (d *Dispatcher) Dispatch(ctx context.Context, raw []byte) []byte {
	m, err := parse(raw)
	switch {
	case err != nil:
		return d.refusal(m.id, err)
	case m.kind == response:
		return nil
	case m.kind == notification:
		d.notify(ctx, m)
		return nil
	}
	return d.answer(ctx, m, d.respond)
}

func (d *Dispatcher) lookup(name string) Method {
	if method, ok := d.Overrides[name]; ok {
		return method
	}
	return d.Methods[name]
}

// handler answers a request that it may assume to be well-formed.
type handler func(ctx context.Context, m *message) (any, *Error)

// answer returns the answer that h gives to a request.
func (d *Dispatcher) answer(ctx context.Context, m *message, h handler) []byte {
	result, failure := d.guard(ctx, m, h)
	line, err := d.encode(m.id, result, failure)
	if err != nil {
		d.logPrivate(ctx, m, err.Error())
	}
	return line
}

func (d *Dispatcher) notify(ctx context.Context, m *message) {
	d.guard(ctx, m, func(ctx context.Context, m *message) (any, *Error) {
		d.Server.HandleMessage(ctx, m.raw)
		return nil, nil
	})
}

// guard makes an internal error of a panic: one handler must not end the
// connection of all the others.
func (d *Dispatcher) guard(ctx context.Context, m *message, h handler) (result any, failure *Error) {
	defer func() {
		if r := recover(); r != nil {
			d.logger().ErrorContext(ctx, "handler panicked", slog.String("method", m.method),
				slog.String("err", fmt.Sprint(r)), slog.String("stack", string(debug.Stack())))
			result, failure = nil, internalError()
		}
	}()
	return h(context.WithValue(ctx, requestIDKey{}, m.id), m)
}

func (d *Dispatcher) respond(ctx context.Context, m *message) (any, *Error) {
	raw := m.raw
	if _, ok := d.Overrides[m.method]; ok {
		// Under its own name the library would answer it.
		raw = rewritten(m, Alias(m.method))
	}
	slot := new(errorSlot)
	reply := d.Server.HandleMessage(context.WithValue(ctx, errorSlotKey{}, slot), raw)
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
		return d.replace(ctx, m, slot, failure)
	}
	d.logPrivate(ctx, m, fmt.Sprintf("library answered with %T", reply))
	return nil, internalError()
}

// replace turns an error of mcp-go into the answer to m: the answer of the tables to a method that only they
// have, the error that the handler chose instead of an internal one, or failure itself, without the text of
// a decoder about Go types.
func (d *Dispatcher) replace(ctx context.Context, m *message, slot *errorSlot, failure *Error) (any, *Error) {
	switch failure.Code {
	case mcp.INVALID_REQUEST, mcp.INVALID_PARAMS, mcp.PARSE_ERROR:
		if fromDecoder(failure.Message) {
			d.logger().DebugContext(ctx, "params not decoded",
				slog.String("method", m.method), slog.String("err", failure.Message))
			return nil, &Error{Code: failure.Code, Message: errParams}
		}
	case mcp.METHOD_NOT_FOUND:
		if d.lookup(m.method) != nil {
			return d.own(ctx, m)
		}
	case mcp.INTERNAL_ERROR:
		if chosen := slot.err.Load(); chosen != nil {
			return nil, chosen
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

// rewritten is the request m under another method, with everything in it that mcp-go reads.
func rewritten(m *message, method string) []byte {
	name, _ := json.Marshal(method)
	out := make([]byte, 0, len(m.raw)+len(name)+48)
	out = append(out, `{"jsonrpc":"2.0","id":`...)
	out = append(out, m.id...)
	out = append(out, `,"method":`...)
	out = append(out, name...)
	if m.params != nil {
		out = append(out, `,"params":`...)
		out = append(out, m.params...)
	}
	return append(out, '}')
}

// own runs a method of the tables. mcp-go has accepted the request, so its
// declared version alone decides the revision.
func (d *Dispatcher) own(ctx context.Context, m *message) (any, *Error) {
	info := protocolOf(m.params)
	r := &Request{Method: m.method, Params: m.params, ID: m.id, Modern: info.Modern, Protocol: info}
	result, err := d.lookup(m.method)(server.WithRequestProtocolInfo(ctx, info), r)
	if err != nil {
		failure, public := publicError(err)
		if !public {
			d.logPrivate(ctx, m, err.Error())
		}
		return nil, failure
	}
	if info.Modern {
		result = d.decorate(result)
	}
	return result, nil
}

func protocolOf(params json.RawMessage) *server.RequestProtocolInfo {
	var p struct {
		Meta *mcp.Meta `json:"_meta"`
	}
	if params == nil || json.Unmarshal(params, &p) != nil || p.Meta == nil {
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

// decorate adds what the revision 2026-07-28 requires of a result to a copy of
// it, so that methods may return the same value to several callers.
func (d *Dispatcher) decorate(result any) any {
	value := reflect.ValueOf(result)
	if value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	if value.Kind() != reflect.Struct {
		return result
	}
	fresh := reflect.New(value.Type())
	fresh.Elem().Set(value)
	decorated, ok := fresh.Interface().(mcp.ResultMetadata)
	if !ok {
		return result
	}
	if decorated.GetResultType() == "" {
		decorated.SetResultType(mcp.ResultTypeComplete)
	}
	d.identify(decorated)
	if cached, ok := decorated.(interface {
		mcp.CacheHintSetter
		TTL() (int64, bool)
	}); ok {
		if _, set := cached.TTL(); !set {
			cached.SetCacheHints(d.CacheTTL.Milliseconds(), mcp.CacheScopePrivate)
		}
	}
	return decorated
}

func (d *Dispatcher) identify(result mcp.ResultMetadata) {
	if d.ServerInfo.Name == "" {
		return
	}
	// The result may be shared between calls, so its _meta is copied.
	var meta mcp.Meta
	if old := result.GetResultMeta(); old != nil {
		meta.ProgressToken = old.ProgressToken
		for key, value := range old.AdditionalFields {
			meta.SetMetaField(key, value)
		}
	}
	if meta.ServerInfo() == nil {
		meta.SetServerInfo(d.ServerInfo)
	}
	result.SetResultMeta(&meta)
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

// encode returns one answer. A result that does not marshal becomes an internal
// error, and the reason is returned as well.
func (d *Dispatcher) encode(id json.RawMessage, result any, failure *Error) ([]byte, error) {
	if failure != nil {
		return d.encodeError(id, failure)
	}
	buf := envelopeOf(id)
	buf.WriteString(`,"result":`)
	if own, ok := result.(Appender); ok {
		line, err := own.AppendResult(buf.Bytes())
		if err != nil {
			return d.refusal(id, internalError()), fmt.Errorf("marshal result: %w", err)
		}
		return append(line, '}'), nil
	}
	if tool, ok := result.(*mcp.CallToolResult); ok {
		// Given to encoding/json it would be marshalled, then checked and copied once more.
		made, err := tool.MarshalJSON()
		if err == nil && bytes.IndexByte(made, '\n') < 0 {
			buf.Write(made)
			return append(buf.Bytes(), '}'), nil
		}
	}
	if err := json.NewEncoder(buf).Encode(result); err != nil {
		return d.refusal(id, internalError()), fmt.Errorf("marshal result: %w", err)
	}
	return closeEnvelope(buf), nil
}

func (d *Dispatcher) encodeError(id json.RawMessage, failure *Error) ([]byte, error) {
	told, err := json.Marshal(failure)
	if err != nil {
		return d.refusal(id, internalError()), fmt.Errorf("marshal error data: %w", err)
	}
	if d.Withhold != nil {
		told = d.Withhold(told)
	}
	buf := envelopeOf(id)
	buf.WriteString(`,"error":`)
	buf.Write(told)
	buf.WriteByte('\n')
	return closeEnvelope(buf), nil
}

// refusal is the answer that failure, which has no data, makes. A nil id is null.
func (d *Dispatcher) refusal(id json.RawMessage, failure *Error) []byte {
	line, _ := d.encodeError(id, failure)
	return line
}

func envelopeOf(id json.RawMessage) *bytes.Buffer {
	if id == nil {
		id = json.RawMessage("null")
	}
	buf := bytes.NewBuffer(make([]byte, 0, 512))
	buf.WriteString(`{"jsonrpc":"2.0","id":`)
	buf.Write(id)
	return buf
}

// closeEnvelope puts the closing brace in the place of the encoder's newline and
// leaves room for one.
func closeEnvelope(buf *bytes.Buffer) []byte {
	buf.Truncate(buf.Len() - 1)
	buf.WriteByte('}')
	return buf.Bytes()
}
