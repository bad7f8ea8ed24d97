package wire

import (
	"bytes"
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
	_ server.SessionWithRoots              = (*callSession)(nil)
	_ server.SessionWithSampling           = (*callSession)(nil)
	_ server.SessionWithSubscriptionFilter = (*callSession)(nil)
)

// session is the session of a connection, or of the protocol over HTTP. The one that is registered with
// mcp-go gets every broadcast; the announcer decides who hears of it.
type session struct {
	id        string
	broadcast *notifications

	mu      sync.Mutex
	client  Client // what the initialize request said
	version string
	level   mcp.LoggingLevel
}

func (s *session) SessionID() string { return s.id }

// Initialize does nothing: what a connection may be sent does not depend on one
// flag, as clients of both revisions may share it.
func (s *session) Initialize() {}

// Initialized is always true, see Initialize.
func (s *session) Initialized() bool { return true }

func (s *session) NotificationChannel() chan<- mcp.JSONRPCNotification { return s.broadcast.room() }

// said returns what the initialize request said of the client.
func (s *session) said() Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}

func (s *session) GetClientInfo() mcp.Implementation { return s.said().Info }

func (s *session) GetClientCapabilities() mcp.ClientCapabilities { return s.said().Capabilities }

func (s *session) SetClientInfo(info mcp.Implementation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client.Info = info
}

func (s *session) SetClientCapabilities(capabilities mcp.ClientCapabilities) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client.Capabilities = capabilities
}

func (s *session) ProtocolVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// SetProtocolVersion is called by mcp-go when it has negotiated a version.
func (s *session) SetProtocolVersion(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
}

func (s *session) GetLogLevel() mcp.LoggingLevel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
}

func (s *session) SetLogLevel(level mcp.LoggingLevel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.level = level
}

// callSession is the session as one message sees it: notifications sent through it
// belong to the message, and on 2026-07-28 so does what the client says of itself.
type callSession struct {
	*session
	msg       *message
	out       *lineWriter
	announcer *announcer
	asks      *asks       // nil if the client cannot be asked during the call
	silent    atomic.Bool // the client cancelled the call, or it is about to be answered
	own       *notifications

	yield func() bool // gives back the slot among the calls that run; nil if the call has none

	mu           sync.Mutex
	modern       bool
	declared     Client // by the message itself; only if it is modern
	filter       mcp.SubscriptionFilter
	pending      changes // guarded by announcer.mu
	acknowledged bool    // guarded by announcer.mu
}

func newCallSession(
	ctx context.Context, s *session, m *message, out *lineWriter, a *announcer, asks *asks,
) *callSession {
	cs := &callSession{session: s, msg: m, out: out, announcer: a, asks: asks}
	cs.own = newNotifications(ctx, cs.emit)
	return cs
}

func (s *callSession) NotificationChannel() chan<- mcp.JSONRPCNotification { return s.own.room() }

// declare changes what the message says of its client.
func (s *callSession) declare(change func(*Client)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.modern = true
	change(&s.declared)
}

// said returns what is known of the client of the message.
func (s *callSession) said() Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.modern {
		return s.declared
	}
	return s.session.said()
}

func (s *callSession) SetClientInfo(info mcp.Implementation) {
	// Only the handshake speaks for the session; modern clients repeat themselves in each request.
	if s.msg.method == string(mcp.MethodInitialize) {
		s.session.SetClientInfo(info)
		return
	}
	s.declare(func(c *Client) { c.Info = info })
}

func (s *callSession) SetClientCapabilities(capabilities mcp.ClientCapabilities) {
	if s.msg.method == string(mcp.MethodInitialize) {
		s.session.SetClientCapabilities(capabilities)
		return
	}
	s.declare(func(c *Client) { c.Capabilities = capabilities })
}

func (s *callSession) GetClientInfo() mcp.Implementation { return s.said().Info }

func (s *callSession) GetClientCapabilities() mcp.ClientCapabilities { return s.said().Capabilities }

// RequestElicitation asks a client that declared the mode. mcp-go itself asks clients that declared
// nothing.
func (s *callSession) RequestElicitation(
	ctx context.Context, r mcp.ElicitationRequest,
) (*mcp.ElicitationResult, error) {
	has := s.said().Capabilities.Elicitation
	if s.asks == nil || has == nil || r.Params.Mode == mcp.ElicitationModeURL && has.URL == nil {
		return nil, server.ErrElicitationNotSupported
	}
	var result mcp.ElicitationResult
	if err := s.asks.ask(ctx, mcp.MethodElicitationCreate, r.Params, &result); err != nil {
		return nil, err
	}
	return &result, nil
}

func (s *callSession) ListRoots(ctx context.Context, _ mcp.ListRootsRequest) (*mcp.ListRootsResult, error) {
	if s.asks == nil || s.said().Capabilities.Roots == nil {
		return nil, server.ErrRootsNotSupported
	}
	var result mcp.ListRootsResult
	if err := s.asks.ask(ctx, mcp.MethodListRoots, nil, &result); err != nil {
		return nil, err
	}
	return &result, nil
}

var errNoSampling = errors.New("the client does not support sampling")

func (s *callSession) RequestSampling(
	ctx context.Context, r mcp.CreateMessageRequest,
) (*mcp.CreateMessageResult, error) {
	if s.asks == nil || s.said().Capabilities.Sampling == nil {
		return nil, errNoSampling
	}
	var result mcp.CreateMessageResult
	if err := s.asks.ask(ctx, mcp.MethodSamplingCreateMessage, r.CreateMessageParams, &result); err != nil {
		return nil, err
	}
	if fields, ok := result.Content.(map[string]any); ok {
		content, err := mcp.ParseContent(fields)
		if err != nil {
			return nil, fmt.Errorf("ask %s: %w", mcp.MethodSamplingCreateMessage, err)
		}
		result.Content = content
	}
	return &result, nil
}

// SetSubscriptionFilter is called by mcp-go when a subscription opens, and with
// the zero filter when it ends.
func (s *callSession) SetSubscriptionFilter(filter mcp.SubscriptionFilter) {
	s.mu.Lock()
	s.filter = filter
	s.mu.Unlock()
	if filter.IsEmpty() {
		s.announcer.remove(s)
	} else {
		s.announcer.add(s)
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

// emit writes one notification of this call, in the client's own words where
// mcp-go has put a request id or progress token through a float64.
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
		s.announcer.acknowledge(s)
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
	line, err := marshalLine(n)
	if err != nil {
		return
	}
	s.out.writeIf(line, func() bool { return !s.silent.Load() })
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
