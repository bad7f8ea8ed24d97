package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
)

// session is the session of a connection, or a protocol session over HTTP.
type session struct {
	id   string
	asks asks // ids are unique among all calls of the session

	mu    sync.Mutex
	known known
}

// known is the description of a client.
type known struct {
	info         mcp.Implementation
	capabilities mcp.ClientCapabilities
	version      string
}

// said returns the client's description from initialize.
func (s *session) said() known {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known
}

func (s *session) learn(said known) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = said
}

// callSession is the session as seen by one message: notifications sent through it belong to the message, and
// so does the client's description on 2026-07-28.
type callSession struct {
	*session
	msg      *message
	out      *lineWriter
	audience *audience   // of its transport
	silent   atomic.Bool // the client cancelled the call, or its answer is about to be written
	own      *notifications
	hangUp   context.Context        // ends with the input of the connection
	forward  atomic.Pointer[string] // see Forward

	deaf      bool        // the client reads nothing but the answer, so it cannot be asked
	alone     func() bool // see Alone; nil outside of HTTP
	admission *admission

	declared *known // sent with the message itself, if it is modern; set before its method is called
}

// newCallSession returns the session of m, with an admission without limits.
func newCallSession(
	hangUp context.Context, s *session, m *message, out *lineWriter, a *audience,
) *callSession {
	cs := &callSession{session: s, msg: m, out: out, audience: a, hangUp: hangUp, admission: new(admission)}
	cs.own = newNotifications(cs.emit)
	return cs
}

// said returns the description of the client of the message.
func (s *callSession) said() known {
	if s.declared != nil {
		return *s.declared
	}
	said := s.session.said()
	if has := &said.capabilities; s.deaf {
		has.Elicitation, has.Roots, has.Sampling = nil, nil, nil
	}
	return said
}

// declare records the client's description from the message. Modern clients repeat it in each request, so it
// is not kept for other requests.
func (s *callSession) declare(said *protocol) {
	if !said.modern {
		return
	}
	s.declared = &known{version: said.version, capabilities: *said.capabilities}
	if said.client != nil {
		s.declared.info = *said.client
	}
}

// isModern reports whether the message uses 2026-07-28 or later.
func (s *callSession) isModern() bool { return s.declared != nil }

// subscribe acknowledges a subscription and starts it; end ends it. news reports whether the client should
// get a change; nil means every change.
func (s *callSession) subscribe(to mcp.SubscriptionFilter, news func(method string) bool) (end func()) {
	acknowledged := mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION, Notification: mcp.Notification{
		Method: mcp.MethodNotificationSubscriptionsAcknowledged,
		Params: mcp.NotificationParams{AdditionalFields: map[string]any{"notifications": to}}}}
	if to.IsEmpty() {
		s.write(s.tagged(acknowledged))
		return func() {}
	}
	a, done := newAnnouncer(func(method string) bool {
		asked := method == mcp.MethodNotificationToolsListChanged && to.ToolsListChanged ||
			method == mcp.MethodNotificationPromptsListChanged && to.PromptsListChanged ||
			method == mcp.MethodNotificationResourcesListChanged && to.ResourcesListChanged
		return asked && (news == nil || news(method))
	}), make(chan struct{})
	go a.run(done, s.out, func(n mcp.JSONRPCNotification) { s.write(s.tagged(n)) })
	// The announcer is added before the acknowledgement, so that no later change is lost.
	s.audience.add(a)
	s.write(s.tagged(acknowledged))
	// The acknowledgement must be the first message.
	a.open()
	return func() {
		s.audience.remove(a)
		close(done)
	}
}

// finish delivers the notifications that the call has sent; none may follow.
func (s *callSession) finish() {
	s.own.close()
	s.silent.Store(true)
}

// emit writes one notification of this call. Progress has the client's token, byte for byte.
func (s *callSession) emit(n mcp.JSONRPCNotification) {
	if n.Method == string(mcp.MethodNotificationProgress) {
		token := progressToken(s.msg.params)
		if token == nil {
			return
		}
		fields := map[string]any{}
		maps.Copy(fields, n.Params.AdditionalFields)
		fields["progressToken"], n.Params.AdditionalFields = token, fields
	}
	s.write(n)
}

// tagged marks n as part of the subscription of this call.
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
