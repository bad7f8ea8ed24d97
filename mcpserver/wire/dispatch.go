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

// Dispatcher answers single JSON-RPC messages. Its fields must not change while it is in use; the zero value
// of each is its default. All methods are safe for concurrent use.
type Dispatcher struct {
	// Methods are the methods besides initialize, ping, server/discover and subscriptions/listen.
	Methods Methods
	// ServerInfo is the identity in the results of initialize and server/discover. Its name and version are
	// in the _meta of all results on 2026-07-28, unless the name is empty.
	ServerInfo mcp.Implementation
	// Capabilities returns what the server declares to a client of 2026-07-28, or of the older revisions.
	// Clients may subscribe to changes of the lists in it. Nil declares nothing.
	Capabilities func(modern bool) mcp.ServerCapabilities
	// Instructions returns the instructions for the client of ctx. Nil sends no instructions.
	Instructions func(ctx context.Context) string
	// Changes begins to watch the lists of the client of ctx. The returned function reports whether the
	// client should get a notification of a method. If either is nil, the client gets all. It must not block.
	Changes func(ctx context.Context) func(method string) bool
	// CacheTTL is the ttlMs hint, in whole milliseconds, of results that embed mcp.CacheableResult and set no
	// hint themselves. The scope is private.
	CacheTTL time.Duration
	// Logger gets panics and the private text of internal errors. Nil discards them.
	Logger *slog.Logger
	// Trace is called at the start of each request. It returns the context for the request, and a
	// function that is called at its end with its error or nil. Nil disables tracing.
	Trace func(context.Context, string, json.RawMessage) (context.Context, func(*Error))
	// Withhold redacts the JSON of an error before it is sent, because an error may repeat text of the
	// request. Nil sends it unchanged.
	Withhold func(json.RawMessage) json.RawMessage

	mu        sync.Mutex
	audiences []*audience // of the transports that use this dispatcher
}

// Announce notifies clients of a changed list: clients of the older revisions, and subscribers. method is one
// of the list-changed notifications. Announce does not block.
func (d *Dispatcher) Announce(method string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.audiences {
		a.post(method)
	}
}

// join registers the clients of a transport for notifications, until leave is called.
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

// respond checks the protocol fields of a request and answers it. header is from its HTTP request; nil if it
// came by another transport. An HTTP request whose client no longer waits has neither a result nor an error.
func (d *Dispatcher) respond(ctx context.Context, c *call, header http.Header) (result any, failure *Error) {
	m := c.msg
	if d.Trace != nil {
		var end func(*Error)
		ctx, end = d.Trace(ctx, m.method, m.params)
		defer func() { end(failure) }()
	}
	defer func() {
		r := recover()
		switch {
		case r != nil:
			// One handler must not end the connections of all clients.
			d.logger().ErrorContext(ctx, "handler panicked", slog.String("method", m.method),
				slog.String("err", fmt.Sprint(r)), slog.String("stack", string(debug.Stack())))
			result, failure = nil, internalError()
		case header != nil && ctx.Err() != nil:
			result, failure = nil, nil
		}
	}()

	said := m.protocol()
	method := d.lookup(m.method, said.modern)
	if said.modern || header != nil && isModern(header, m) {
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
	if said.modern {
		c.declared = &known{version: said.version, capabilities: *said.capabilities}
		if said.client != nil {
			c.declared.info = *said.client
		}
	}

	r := &Request{Method: m.method, Params: m.params, Header: header, Modern: said.modern}
	result, err := method(ctx, r)
	if err != nil {
		return nil, d.public(ctx, m, err)
	}
	if said.modern {
		d.decorate(result)
	}
	return result, nil
}

// public returns the error of a method as its client sees it. The rest of it is for the log only.
func (d *Dispatcher) public(ctx context.Context, m *message, err error) *Error {
	failure, public := errors.AsType[*Error](err)
	if !public {
		d.logPrivate(ctx, m, err.Error())
		return internalError()
	}
	// The error around the public one has the cause.
	if err != error(failure) {
		d.logger().DebugContext(ctx, "request refused",
			slog.String("method", m.method), slog.String("err", err.Error()))
	}
	return failure
}

// NotFound returns the error for an unknown method.
func NotFound(method string) *Error {
	return &Error{Code: mcp.METHOD_NOT_FOUND, Message: "Method " + method + " not found"}
}

// lookup returns the method with that name in 2026-07-28 or in the older revisions, or nil.
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

// protocol is the revision and the client that a request declares (SEP-2575).
type protocol struct {
	modern       bool // of 2026-07-28 or later
	version      string
	client       *mcp.Implementation
	capabilities *mcp.ClientCapabilities
}

// protocol parses and caches the declaration of a request or notification. Not safe for concurrent use.
func (m *message) protocol() *protocol {
	if m.said != nil {
		return m.said
	}
	m.said = new(protocol)
	var p struct {
		Meta *mcp.Meta `json:"_meta"`
	}
	// Every spelling of _meta contains one of these bytes; most requests of the older revisions have neither.
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

// check returns what is wrong with a request of 2026-07-28, or nil. Over HTTP its headers must repeat the
// body (SEP-2243); known reports whether the method exists.
func (p *protocol) check(m *message, header http.Header, known bool) *Error {
	if header != nil {
		if failure := p.checkVersions(header); failure != nil {
			return failure
		}
	}
	switch {
	// A client of a later version may declare itself in another way.
	case !mcp.IsValidProtocolVersion(p.version):
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
		// mcp-go does not check that the id of a task is repeated in a header (SEP-2663).
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

// checkVersions returns what is wrong with the headers of a message of 2026-07-28, or nil: the version in the
// header must equal the one in _meta, and streams cannot be resumed.
func (p *protocol) checkVersions(header http.Header) *Error {
	version := header.Get(mcp.HeaderProtocolVersion)
	mismatch := func(text string) *Error { return &Error{Code: mcp.HEADER_MISMATCH, Message: text} }
	switch {
	case header.Get(mcp.HeaderLastEventID) != "":
		return mismatch(mcp.HeaderLastEventID + " is not supported in this revision: send the request again")
	case version == "":
		return mismatch(mcp.HeaderProtocolVersion + " is missing")
	case p.version == "":
		return invalidParams("missing or invalid _meta field " + mcp.MetaKeyProtocolVersion)
	case version != p.version:
		return mismatch(mcp.HeaderProtocolVersion + " is not the version in _meta")
	case !mcp.IsValidProtocolVersion(version):
		return unsupported(version, Versions())
	}
	return nil
}

func unsupported(version string, served []string) *Error {
	of := mcp.UnsupportedProtocolVersionError{Version: version, Supported: served}.JSONRPCError().Error
	return &Error{Code: of.Code, Message: of.Message, Data: of.Data}
}

// maxHello is the maximum size of the params of initialize in bytes: a session keeps the client's
// description.
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
	// The newest revision has no handshake, so a client that sends initialize gets an older one.
	if !slices.Contains(Versions()[1:], version) {
		version = Versions()[1]
	}
	callOf(ctx).known.Store(&known{params.ClientInfo, params.Capabilities, version})
	return &mcp.InitializeResult{ProtocolVersion: version, ServerInfo: d.ServerInfo,
		Capabilities: d.capabilities(false), Instructions: d.instructions(ctx)}, nil
}

func ping(context.Context, *Request) (any, error) { return &mcp.EmptyResult{}, nil }

// discover is server/discover, the first request of clients of 2026-07-28.
func (d *Dispatcher) discover(ctx context.Context, _ *Request) (any, error) {
	result := &mcp.DiscoverResult{SupportedVersions: Versions(),
		Capabilities: d.capabilities(true), Instructions: d.instructions(ctx)}
	result.EnsureResultMeta().SetServerInfo(d.ServerInfo)
	return result, nil
}

// listen is subscriptions/listen, which lasts until the client cancels it or the connection ends.
func (d *Dispatcher) listen(ctx context.Context, r *Request) (any, error) {
	var params mcp.SubscriptionsListenParams
	if err := Decode(r.Params, &params); err != nil {
		return nil, err
	}
	c, has, asked := callOf(ctx), d.capabilities(true), params.Notifications
	granted := mcp.SubscriptionFilter{
		ToolsListChanged:     asked.ToolsListChanged && has.Tools != nil && has.Tools.ListChanged,
		PromptsListChanged:   asked.PromptsListChanged && has.Prompts != nil && has.Prompts.ListChanged,
		ResourcesListChanged: asked.ResourcesListChanged && has.Resources != nil && has.Resources.ListChanged,
	}
	defer c.subscribe(granted, d.changes(ctx))()
	if !granted.IsEmpty() {
		<-ctx.Done()
	}
	return listened(c.msg.id), nil
}

// listened is the result of an ended subscription.
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

// decorate adds the fields that the revision 2026-07-28 requires in a result.
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
		// The client does not wait for the answer.
		level = slog.LevelDebug
	}
	d.logger().Log(ctx, level, "request failed", slog.String("method", m.method), slog.String("err", text))
}

func (d *Dispatcher) logger() *slog.Logger {
	if d.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return d.Logger
}

// encode returns the answer to m. A result that cannot be marshalled becomes an internal error.
func (d *Dispatcher) encode(ctx context.Context, m *message, result any, failure *Error) []byte {
	if failure != nil {
		return d.refusal(m.id, failure)
	}
	var line, made []byte
	var err error
	switch own := result.(type) {
	case Appender:
		line, err = own.AppendJSON(begin(m.id, "result", 0))
	case json.Marshaler:
		// encoding/json would check and copy the output of MarshalJSON once more.
		made, err = own.MarshalJSON()
	}
	// A newline in the result would end the message on stdio, and encoding/json removes it.
	if line == nil && (made == nil || bytes.IndexByte(made, '\n') >= 0) {
		made, err = json.Marshal(result)
	}
	if err != nil {
		d.logPrivate(ctx, m, "marshal result: "+err.Error())
		return d.refusal(m.id, internalError())
	}
	if line == nil {
		line = append(begin(m.id, "result", len(made)), made...)
	}
	return append(line, '}')
}

// refusal returns the answer for an error. A nil id is sent as null.
func (d *Dispatcher) refusal(id json.RawMessage, failure *Error) []byte {
	public, err := json.Marshal(failure)
	if err != nil {
		d.logger().Error("error not marshalled", slog.String("err", err.Error()))
		return d.refusal(id, internalError())
	}
	if d.Withhold != nil {
		public = d.Withhold(public)
	}
	return append(append(begin(id, "error", len(public)), public...), '}')
}

// begin returns the start of a message up to its result or error, with capacity for a value of that size and
// for what follows it.
func begin(id json.RawMessage, key string, size int) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	const start = `{"jsonrpc":"2.0","id":`
	line := make([]byte, 0, len(start)+len(id)+len(`,"":`)+len(key)+size+AfterResult)
	line = append(append(line, start...), id...)
	return append(append(append(line, `,"`...), key...), `":`...)
}
