package wire

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

var (
	_ server.SessionWithClientInfo         = (*session)(nil)
	_ server.SessionWithLogging            = (*session)(nil)
	_ server.SessionWithProtocolVersion    = (*session)(nil)
	_ server.SessionWithElicitation        = (*callSession)(nil)
	_ server.SessionWithSubscriptionFilter = (*callSession)(nil)
)

// session is the session of a connection, or of the protocol over HTTP. The one that is registered with
// mcp-go gets every broadcast; the audience decides who hears of it.
type session struct {
	id        string
	broadcast *notifications
	asks      asks // ids are unique in all calls of the session

	mu    sync.Mutex
	known known
}

// known is what is known of a client.
type known struct {
	info         mcp.Implementation
	capabilities mcp.ClientCapabilities
	version      string
	level        mcp.LoggingLevel
}

func (s *session) SessionID() string { return s.id }

// Initialize does nothing: what a connection may be sent does not depend on one
// flag, as clients of both revisions may share it.
func (s *session) Initialize() {}

// Initialized is always true, see Initialize.
func (s *session) Initialized() bool { return true }

func (s *session) NotificationChannel() chan<- mcp.JSONRPCNotification { return s.broadcast.room() }

// said returns what the initialize request said of the client.
func (s *session) said() known {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known
}

func (s *session) learn(change func(*known)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.known)
}

func (s *session) GetClientInfo() mcp.Implementation { return s.said().info }

func (s *session) SetClientInfo(info mcp.Implementation) { s.learn(func(k *known) { k.info = info }) }

func (s *session) GetClientCapabilities() mcp.ClientCapabilities { return s.said().capabilities }

func (s *session) SetClientCapabilities(has mcp.ClientCapabilities) {
	s.learn(func(k *known) { k.capabilities = has })
}

func (s *session) ProtocolVersion() string { return s.said().version }

func (s *session) SetProtocolVersion(version string) { s.learn(func(k *known) { k.version = version }) }

func (s *session) GetLogLevel() mcp.LoggingLevel {
	return cmp.Or(s.said().level, mcp.LoggingLevelError)
}

func (s *session) SetLogLevel(level mcp.LoggingLevel) { s.learn(func(k *known) { k.level = level }) }

// callSession is the session as one message sees it: notifications sent through it
// belong to the message, and on 2026-07-28 so does what the client says of itself.
type callSession struct {
	*session
	msg      *message
	out      *lineWriter
	audience *audience                // of its transport
	watch    func(method string) bool // reports whether a change is news to the client; nil for always
	mayAsk   bool                     // the client can be asked during the call
	silent   atomic.Bool              // the client cancelled the call, or it is about to be answered
	own      *notifications
	hangUp   context.Context        // ends with the input of the connection
	chosen   atomic.Pointer[Error]  // see SetError
	instead  atomic.Pointer[any]    // see SetResult
	forward  atomic.Pointer[string] // see Forward

	yield func() bool // gives back the slot among the calls that run; nil if the call has none
	// decoded gives back what the message takes while it is decoded; nil if nothing is counted
	decoded func() bool
	// hold waits for room for bytes that are kept until the answer is written; nil if they are not counted
	hold func(ctx context.Context, n int) bool

	mu          sync.Mutex
	declared    *known // by the message itself, if it is modern
	filter      mcp.SubscriptionFilter
	listening   *announcer // of an open subscription
	unsubscribe func()
}

// newCallSession returns the session of m, whose context is ctx.
func newCallSession(
	ctx, hangUp context.Context, s *session, m *message, out *lineWriter, a *audience,
) *callSession {
	cs := &callSession{session: s, msg: m, out: out, audience: a, hangUp: hangUp}
	cs.own = newNotifications(ctx, cs.emit)
	return cs
}

func (s *callSession) NotificationChannel() chan<- mcp.JSONRPCNotification { return s.own.room() }

// said returns what is known of the client of the message.
func (s *callSession) said() known {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.declared != nil {
		return *s.declared
	}
	return s.session.said()
}

func (s *callSession) learn(change func(*known)) {
	// Only the handshake speaks for the session; modern clients repeat themselves in each request.
	if s.msg.method == string(mcp.MethodInitialize) {
		s.session.learn(change)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.declared == nil {
		s.declared = new(known)
	}
	change(s.declared)
}

func (s *callSession) GetClientInfo() mcp.Implementation { return s.said().info }

func (s *callSession) SetClientInfo(info mcp.Implementation) {
	s.learn(func(k *known) { k.info = info })
}

func (s *callSession) GetClientCapabilities() mcp.ClientCapabilities { return s.said().capabilities }

func (s *callSession) SetClientCapabilities(has mcp.ClientCapabilities) {
	s.learn(func(k *known) { k.capabilities = has })
}

// RequestElicitation asks a client that declared the mode. mcp-go itself asks clients that declared nothing.
func (s *callSession) RequestElicitation(
	ctx context.Context, r mcp.ElicitationRequest,
) (*mcp.ElicitationResult, error) {
	has := s.said().capabilities.Elicitation
	if !s.mayAsk || has == nil || r.Params.Mode == mcp.ElicitationModeURL && has.URL == nil {
		return nil, server.ErrElicitationNotSupported
	}
	var result mcp.ElicitationResult
	if err := s.asks.ask(ctx, s.out, mcp.MethodElicitationCreate, r.Params, &result); err != nil {
		return nil, err
	}
	return &result, nil
}

// ListRoots and RequestSampling ask a client that declared the capability: mcp-go asks so for a handler that
// needs input from a client of an earlier revision.
func (s *callSession) ListRoots(ctx context.Context, _ mcp.ListRootsRequest) (*mcp.ListRootsResult, error) {
	if !s.mayAsk || s.said().capabilities.Roots == nil {
		return nil, server.ErrRootsNotSupported
	}
	var result mcp.ListRootsResult
	if err := s.asks.ask(ctx, s.out, mcp.MethodListRoots, nil, &result); err != nil {
		return nil, err
	}
	return &result, nil
}

func (s *callSession) RequestSampling(
	ctx context.Context, r mcp.CreateMessageRequest,
) (*mcp.CreateMessageResult, error) {
	if !s.mayAsk || s.said().capabilities.Sampling == nil {
		return nil, errors.New("the client does not support sampling")
	}
	var result mcp.CreateMessageResult
	err := s.asks.ask(ctx, s.out, mcp.MethodSamplingCreateMessage, r.CreateMessageParams, &result)
	if err != nil {
		return nil, err
	}
	if fields, ok := result.Content.(map[string]any); ok {
		if result.Content, err = mcp.ParseContent(fields); err != nil {
			return nil, fmt.Errorf("ask %s: %w", mcp.MethodSamplingCreateMessage, err)
		}
	}
	return &result, nil
}

// SetSubscriptionFilter is called by mcp-go when a subscription opens, and with the zero filter when it ends.
func (s *callSession) SetSubscriptionFilter(filter mcp.SubscriptionFilter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filter = filter
	if filter.IsEmpty() {
		if s.unsubscribe != nil {
			s.unsubscribe()
		}
		return
	}
	a, done := newAnnouncer(func(method string) bool {
		asked := method == mcp.MethodNotificationToolsListChanged && filter.ToolsListChanged ||
			method == mcp.MethodNotificationPromptsListChanged && filter.PromptsListChanged ||
			method == mcp.MethodNotificationResourcesListChanged && filter.ResourcesListChanged
		return asked && (s.watch == nil || s.watch(method))
	}), make(chan struct{})
	go a.run(done, s.out, func(n mcp.JSONRPCNotification) { s.write(s.tagged(n)) })
	s.audience.add(a)
	s.listening = a
	s.unsubscribe = func() {
		s.audience.remove(a)
		close(done)
	}
}

func (s *callSession) SubscriptionFilter() (mcp.SubscriptionFilter, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.filter, !s.filter.IsEmpty()
}

// finish delivers what the call has sent; nothing follows it.
func (s *callSession) finish() {
	s.own.close()
	s.silent.Store(true)
}

// emit writes one notification of this call, in the client's own words where mcp-go has put a request id or
// progress token through a float64.
func (s *callSession) emit(n mcp.JSONRPCNotification) {
	switch n.Method {
	case string(mcp.MethodNotificationProgress):
		token := progressToken(s.msg.params)
		if token == nil {
			return
		}
		fields := maps.Clone(n.Params.AdditionalFields)
		if fields == nil {
			fields = make(map[string]any)
		}
		fields["progressToken"] = token
		n.Params.AdditionalFields = fields
	case mcp.MethodNotificationSubscriptionsAcknowledged:
		s.write(s.tagged(n))
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.listening != nil { // nothing may come before the acknowledgement
			s.listening.open()
		}
		return
	}
	s.write(n)
}

// tagged marks n as part of the subscription this call is.
func (s *callSession) tagged(n mcp.JSONRPCNotification) mcp.JSONRPCNotification {
	n.Params.Meta = map[string]any{mcp.MetaKeySubscriptionID: s.msg.id}
	return n
}

func (s *callSession) write(n mcp.JSONRPCNotification) {
	if line, err := marshalLine(n); err == nil {
		s.out.writeIf(line, func() bool { return !s.silent.Load() })
	}
}

func marshalLine(v any) ([]byte, error) {
	var buf bytes.Buffer
	if err := json.NewEncoder(&buf).Encode(v); err != nil {
		return nil, err
	}
	return buf.Bytes()[:buf.Len()-1], nil
}

func progressToken(params json.RawMessage) json.RawMessage {
	var p struct {
		Meta struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	if params == nil || json.Unmarshal(params, &p) != nil || string(p.Meta.ProgressToken) == "null" {
		return nil
	}
	return p.Meta.ProgressToken
}
