package wire

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// Dispatcher answers single JSON-RPC messages. Fields must not change once it is in use; the zero value of
// each is its default. All methods are safe for concurrent use.
type Dispatcher struct {
	// Methods are what is answered besides initialize, ping, server/discover and subscriptions/listen.
	Methods Methods
	// ServerInfo is the identity in the results of initialize and server/discover. Its name and version are
	// in the _meta of all results on 2026-07-28, unless the name is empty.
	ServerInfo mcp.Implementation
	// Capabilities returns what the server declares to a client of 2026-07-28, or of the older revisions.
	// Clients may subscribe to the changes of lists that it names. Nil declares nothing.
	Capabilities func(modern bool) mcp.ServerCapabilities
	// Instructions returns what the client of ctx is to know of the server. Nil says nothing.
	Instructions func(ctx context.Context) string
	// Changes begins to watch the lists of the client of ctx. The function that it returns reports whether a
	// notification of a method is news to that client; the client does not get the others. Nil, and a nil
	// function, let all through. It must not block.
	Changes func(ctx context.Context) func(method string) bool
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

	mu        sync.Mutex
	audiences []*audience // of the transports that serve it
}

// Announce notifies clients that a list has changed: those of the older revisions, and those that subscribed.
// A method is one of the notifications of changed lists. It waits for no client.
func (d *Dispatcher) Announce(method string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.audiences {
		a.post(method)
	}
}

// join has a transport's clients notified until leave.
func (d *Dispatcher) join(a *audience) (leave func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.audiences = append(d.audiences, a)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.audiences = slices.DeleteFunc(d.audiences, func(other *audience) bool { return other == a })
	}
}

// answer returns the answer to the request of s, which has no newline, inside or at its end.
func (d *Dispatcher) answer(ctx context.Context, s *callSession) []byte {
	ctx = withSession(ctx, s)
	result, failure := d.guard(ctx, s.msg, func(ctx context.Context) (any, *Error) {
		return d.respond(ctx, s, nil)
	})
	return d.encode(ctx, s.msg, result, failure)
}

// guard makes an internal error of a panic: one handler must not end the connection of all the others.
func (d *Dispatcher) guard(
	ctx context.Context, m *message, handle func(context.Context) (any, *Error),
) (result any, failure *Error) {
	if d.Trace != nil {
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

// respond checks what the request of s, which is in ctx, says of the protocol, and answers it. header is of
// its HTTP request, nil if it came in another way.
func (d *Dispatcher) respond(ctx context.Context, s *callSession, header http.Header) (any, *Error) {
	m, said := s.msg, s.msg.protocol()
	method := d.lookup(m.method, said.modern)
	if said.modern {
		if failure := said.check(m, header, method != nil); failure != nil {
			return nil, failure
		}
	}
	if method == nil {
		text := NotFound(m.method).Message
		if d.lookup(m.method, !said.modern) != nil {
			text += " in this revision of the protocol"
		}
		return nil, &Error{Code: mcp.METHOD_NOT_FOUND, Message: text}
	}
	s.declare(said)
	r := &Request{Method: m.method, Params: m.params, Header: header, Modern: said.modern}
	result, err := method(ctx, r)
	if err != nil {
		if failure, public := errors.AsType[*Error](err); public {
			if err != error(failure) {
				d.logger().DebugContext(ctx, "request refused",
					slog.String("method", m.method), slog.String("err", err.Error()))
			}
			return nil, failure
		}
		d.logPrivate(ctx, m, err.Error())
		return nil, internalError()
	}
	if said.modern {
		d.decorate(result)
	}
	return result, nil
}

// NotFound returns the error of a method that the server does not have.
func NotFound(method string) *Error {
	return &Error{Code: mcp.METHOD_NOT_FOUND, Message: "Method " + method + " not found"}
}

// lookup returns the method of that name in 2026-07-28, or in the older revisions; nil if there is none.
func (d *Dispatcher) lookup(name string, modern bool) Method {
	switch mcp.MCPMethod(name) {
	case mcp.MethodInitialize:
		if !modern {
			return d.initialize
		}
	case mcp.MethodPing:
		if !modern {
			return ping
		}
	case mcp.MethodServerDiscover:
		if modern {
			return d.discover
		}
	case mcp.MethodSubscriptionsListen:
		if modern {
			return d.listen
		}
	}
	return d.Methods[name]
}

// protocol is what a request says of its revision and its client (SEP-2575).
type protocol struct {
	modern       bool // of 2026-07-28 or later
	version      string
	client       *mcp.Implementation
	capabilities *mcp.ClientCapabilities
}

// protocol returns what a request or notification says. It is not safe for concurrent use.
func (m *message) protocol() *protocol {
	if m.said != nil {
		return m.said
	}
	m.said = new(protocol)
	var p struct {
		Meta *mcp.Meta `json:"_meta"`
	}
	// No spelling of _meta does without these, and few requests of the older revisions have one.
	if !bytes.ContainsAny(m.params, `_\`) || json.Unmarshal(m.params, &p) != nil || p.Meta == nil {
		return m.said
	}
	m.said.version = p.Meta.ProtocolVersion()
	m.said.modern = mcp.IsModernProtocol(m.said.version)
	if m.said.modern {
		m.said.client, m.said.capabilities = p.Meta.ClientInfo(), p.Meta.ClientCapabilities()
	}
	return m.said
}

// check returns what is wrong with a request of 2026-07-28, or nil. Over HTTP its headers have to repeat what
// it says (SEP-2243); known says that there is such a method.
func (p *protocol) check(m *message, header http.Header, known bool) *Error {
	switch {
	case !mcp.IsValidProtocolVersion(p.version): // a later one may say less of its client, or more
		return unsupported(p.version, Versions())
	case p.capabilities == nil:
		return invalidParams("missing or invalid _meta field " + mcp.MetaKeyClientCapabilities)
	case header == nil:
		return nil
	}
	err := mcp.ValidateStandardHeaders(header.Get, p.version, mcp.MCPMethod(m.method), m.params)
	if mismatch, ok := errors.AsType[mcp.HeaderMismatchError](err); ok {
		return &Error{Code: mcp.HEADER_MISMATCH, Message: mismatch.Error()}
	}
	if err != nil {
		return invalidParams(err.Error())
	}
	if known && strings.HasPrefix(m.method, "tasks/") {
		// The library does not know that the id of a task travels in a header too (SEP-2663).
		var of struct {
			TaskID string `json:"taskId"`
		}
		name, ok := mcp.DecodeHeaderValue(header.Get(mcp.HeaderName))
		if !ok || json.Unmarshal(m.params, &of) != nil || name != of.TaskID {
			return &Error{Code: mcp.HEADER_MISMATCH,
				Message: mcp.HeaderName + " does not match the taskId of the body"}
		}
	}
	return nil
}

func unsupported(version string, served []string) *Error {
	of := mcp.UnsupportedProtocolVersionError{Version: version, Supported: served}.JSONRPCError().Error
	return &Error{Code: of.Code, Message: of.Message, Data: of.Data}
}

// maxHello is how many bytes the params of initialize may have: a session keeps what they say of the client.
const maxHello = 64 << 10

// initialize is the handshake of the older revisions.
func (d *Dispatcher) initialize(ctx context.Context, r *Request) (any, error) {
	if len(r.Params) > maxHello {
		return nil, invalidParams(fmt.Sprintf("params of initialize have more than %d bytes", maxHello))
	}
	var params mcp.InitializeParams
	if err := Decode(r.Params, &params); err != nil {
		return nil, err
	}
	version := params.ProtocolVersion
	if !slices.Contains(Versions()[1:], version) {
		version = Versions()[1]
	}
	callSessionOf(ctx).learn(known{params.ClientInfo, params.Capabilities, version})
	return &mcp.InitializeResult{ProtocolVersion: version, ServerInfo: d.ServerInfo,
		Capabilities: d.capabilities(false), Instructions: d.instructions(ctx)}, nil
}

func ping(context.Context, *Request) (any, error) { return &mcp.EmptyResult{}, nil }

// discover is server/discover, by which clients of 2026-07-28 begin.
func (d *Dispatcher) discover(ctx context.Context, _ *Request) (any, error) {
	result := &mcp.DiscoverResult{SupportedVersions: Versions(),
		Capabilities: d.capabilities(true), Instructions: d.instructions(ctx)}
	result.EnsureResultMeta().SetServerInfo(d.ServerInfo)
	return result, nil
}

// listen is subscriptions/listen, which lasts until its client or the connection ends it.
func (d *Dispatcher) listen(ctx context.Context, r *Request) (any, error) {
	var params mcp.SubscriptionsListenParams
	if err := Decode(r.Params, &params); err != nil {
		return nil, err
	}
	s, has, asked := callSessionOf(ctx), d.capabilities(true), params.Notifications
	granted := mcp.SubscriptionFilter{
		ToolsListChanged:     asked.ToolsListChanged && has.Tools != nil && has.Tools.ListChanged,
		PromptsListChanged:   asked.PromptsListChanged && has.Prompts != nil && has.Prompts.ListChanged,
		ResourcesListChanged: asked.ResourcesListChanged && has.Resources != nil && has.Resources.ListChanged,
	}
	defer s.subscribe(granted, d.changes(ctx))()
	if !granted.IsEmpty() {
		<-ctx.Done()
	}
	return listened(s.msg.id), nil
}

// listened is the end of a subscription.
func listened(id json.RawMessage) *mcp.SubscriptionsListenResult {
	result := new(mcp.SubscriptionsListenResult)
	result.EnsureResultMeta().SetSubscriptionID(id)
	return result
}

func (d *Dispatcher) capabilities(modern bool) mcp.ServerCapabilities {
	if d.Capabilities == nil {
		return mcp.ServerCapabilities{}
	}
	return d.Capabilities(modern)
}

func (d *Dispatcher) changes(ctx context.Context) func(method string) bool {
	if d.Changes == nil {
		return nil
	}
	return d.Changes(ctx)
}

func (d *Dispatcher) instructions(ctx context.Context) string {
	if d.Instructions == nil {
		return ""
	}
	return d.Instructions(ctx)
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
			meta.SetServerInfo(mcp.Implementation{Name: d.ServerInfo.Name, Version: d.ServerInfo.Version})
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
