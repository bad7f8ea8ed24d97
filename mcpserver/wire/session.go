package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

var (
	_ server.SessionWithClientInfo         = (*session)(nil)
	_ server.SessionWithLogging            = (*session)(nil)
	_ server.SessionWithElicitation        = (*session)(nil)
	_ server.SessionWithRoots              = (*session)(nil)
	_ server.SessionWithProtocolVersion    = (*session)(nil)
	_ server.SessionWithSubscriptionFilter = (*callSession)(nil)
)

// session is the one session of a connection. It is registered with mcp-go, which
// sends it every broadcast; the announcer decides who is told.
type session struct {
	id        string
	asks      *asks
	broadcast *notifications

	mu           sync.Mutex
	info         mcp.Implementation
	capabilities mcp.ClientCapabilities
	version      string
	level        mcp.LoggingLevel
}

func (s *session) SessionID() string { return s.id }

// Initialize does nothing: what a connection may be sent does not hang on one
// flag, as clients of both revisions may share it.
func (s *session) Initialize() {}

// Initialized is always true, see Initialize.
func (s *session) Initialized() bool { return true }

func (s *session) NotificationChannel() chan<- mcp.JSONRPCNotification { return s.broadcast.room() }

func (s *session) GetClientInfo() mcp.Implementation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info
}

func (s *session) SetClientInfo(info mcp.Implementation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info = info
}

func (s *session) GetClientCapabilities() mcp.ClientCapabilities {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.capabilities
}

func (s *session) SetClientCapabilities(capabilities mcp.ClientCapabilities) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.capabilities = capabilities
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

func (s *session) RequestElicitation(ctx context.Context, r mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	return s.asks.elicit(ctx, s.GetClientCapabilities(), r)
}

func (s *session) ListRoots(ctx context.Context, _ mcp.ListRootsRequest) (*mcp.ListRootsResult, error) {
	return s.asks.roots(ctx, s.GetClientCapabilities())
}

// callSession is the session as one call sees it: notifications sent through it
// belong to the call, and on 2026-07-28 so does what the client says of itself.
type callSession struct {
	*session
	msg       *message
	out       *lineWriter
	announcer *announcer
	silent    atomic.Bool // the client cancelled the call, or it is about to be answered
	own       *notifications
	place     func()      // gives back the place among the calls that run; nil when it takes none
	room      func() bool // takes room among the calls that stand aside; nil when they need none

	asideOnce sync.Once
	noRoom    bool // read after asideOnce

	mu           sync.Mutex
	modern       bool
	info         mcp.Implementation
	capabilities mcp.ClientCapabilities
	filter       mcp.SubscriptionFilter
	pending      changes // guarded by announcer.mu
	acknowledged bool    // guarded by announcer.mu
}

func newCallSession(ctx context.Context, s *session, m *message, out *lineWriter, a *announcer) *callSession {
	cs := &callSession{session: s, msg: m, out: out, announcer: a}
	cs.own = newNotifications(ctx, cs.emit)
	return cs
}

func (s *callSession) NotificationChannel() chan<- mcp.JSONRPCNotification { return s.own.room() }

// standAside gives the call's place back, once, and reports whether it did.
func (s *callSession) standAside() bool {
	s.asideOnce.Do(func() {
		s.noRoom = s.room != nil && !s.room()
		if !s.noRoom && s.place != nil {
			s.place()
		}
	})
	return !s.noRoom
}

func (s *callSession) SetClientInfo(info mcp.Implementation) {
	if s.msg.method == string(mcp.MethodInitialize) {
		s.session.SetClientInfo(info)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.modern, s.info = true, info
}

func (s *callSession) GetClientInfo() mcp.Implementation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.modern {
		return s.info
	}
	return s.session.GetClientInfo()
}

func (s *callSession) SetClientCapabilities(capabilities mcp.ClientCapabilities) {
	if s.msg.method == string(mcp.MethodInitialize) {
		s.session.SetClientCapabilities(capabilities)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.modern, s.capabilities = true, capabilities
}

func (s *callSession) GetClientCapabilities() mcp.ClientCapabilities {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.modern {
		return s.capabilities
	}
	return s.session.GetClientCapabilities()
}

func (s *callSession) RequestElicitation(ctx context.Context, r mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	return s.asks.elicit(ctx, s.GetClientCapabilities(), r)
}

func (s *callSession) ListRoots(ctx context.Context, _ mcp.ListRootsRequest) (*mcp.ListRootsResult, error) {
	return s.asks.roots(ctx, s.GetClientCapabilities())
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
