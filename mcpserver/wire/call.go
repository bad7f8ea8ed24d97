package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/admit"
)

// call is one request from the parse of its message until its answer.
type call struct {
	msg     *message
	key     string
	ctx     context.Context
	cancel  context.CancelCauseFunc
	session *callSession
	listen  bool            // a subscription
	ping    bool            // pings do not wait for a slot
	wait    <-chan struct{} // an earlier initialize request to wait for, or nil
	release chan struct{}   // closed when this initialize request is answered, or nil

	canceled bool // guarded by callTable.mu
	away     bool // handled by another server; guarded by callTable.mu
}

// newCall returns the call of a request, without a context and a session yet.
func newCall(m *message) *call {
	return &call{msg: m, key: idKey(m.id), listen: m.method == string(mcp.MethodSubscriptionsListen),
		ping: m.method == string(mcp.MethodPing)}
}

// callTable holds the calls that wait or run. Safe for concurrent use.
type callTable struct {
	maxCalls, maxListens, maxBytes int

	mu      sync.Mutex
	byKey   map[string]*call
	calls   int // until the answer is written; subscriptions are excluded
	listens int
	bytes   int
	closing bool
	running sync.WaitGroup
}

func newCallTable(maxCalls, maxListens, maxBytes int) *callTable {
	return &callTable{
		maxCalls: maxCalls, maxListens: maxListens, maxBytes: maxBytes,
		byKey: make(map[string]*call),
	}
}

// add registers c before the next message is read, so that a cancellation finds it. It returns false without
// an error if the connection is closing.
func (t *callTable) add(c *call) (bool, *Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closing:
		return false, nil
	case t.byKey[c.key] != nil:
		return false, invalidRequest("id is in use by another request")
	case c.listen && t.listens >= t.maxListens:
		return false, &Error{Code: CodeBusy, Message: "too many open subscriptions"}
	case c.ping:
		// A ping is accepted on a busy server, because it tests whether the server is alive. The first
		// message is accepted at any length that the transport accepts.
	case !c.listen && t.calls >= t.maxCalls, t.bytes > 0 && t.bytes+len(c.msg.raw) > t.maxBytes:
		return false, &Error{Code: CodeBusy, Message: "too many requests in flight"}
	}
	t.running.Add(1)
	t.byKey[c.key] = c
	t.bytes += len(c.msg.raw)
	if c.listen {
		t.listens++
	} else {
		t.calls++
	}
	return true, nil
}

// sendAway marks a call as handled by another server. It returns false if the call was cancelled.
func (t *callTable) sendAway(c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.away = true
	return !c.canceled
}

// cancel ends the call that a cancellation names. It returns false if another server handles the call.
func (t *callTable) cancel(m *message) bool {
	id := canceledID(m.params)
	if id == nil {
		// It names no call.
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// The protocol forbids cancelling initialize, and later requests wait for it.
	c := t.byKey[idKey(id)]
	if c != nil && c.release == nil {
		c.canceled = true
		c.session.silent.Store(true)
		c.cancel(ErrCanceled)
	}
	return c != nil && !c.away
}

// canceledID returns the id of the request that a cancellation names, or nil if it names none or is
// ambiguous.
func canceledID(params json.RawMessage) json.RawMessage {
	members, err := Members(params)
	at := slices.IndexFunc(members, func(m Member) bool { return m.Key == "requestId" && validID(m.Value) })
	if err != nil || at < 0 {
		return nil
	}
	return members[at].Value
}

// settle removes c from the table just before its answer is written, and reports whether to write one.
func (t *callTable) settle(c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byKey, c.key)
	return !c.canceled
}

// leave releases the limits held by c after its answer was written or dropped.
func (t *callTable) leave(c *call) {
	c.cancel(nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	// After settle the client may have reused the id.
	if t.byKey[c.key] == c {
		delete(t.byKey, c.key)
	}
	t.bytes -= len(c.msg.raw)
	if c.listen {
		t.listens--
	} else {
		t.calls--
	}
	t.running.Done()
}

// close rejects new calls, ends the open subscriptions and returns a channel that is closed when no call is
// left.
func (t *callTable) close() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closing = true
	// Subscriptions do not end by themselves and would delay the shutdown until its limit.
	for _, c := range t.byKey {
		if c.listen {
			c.cancel(ErrDisconnected)
		}
	}
	idle := make(chan struct{})
	go func() {
		t.running.Wait()
		close(idle)
	}()
	return idle
}

// abort cancels all calls.
func (t *callTable) abort() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.byKey {
		c.cancel(ErrDisconnected)
	}
}

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

// admission is what one request has acquired of the limits of its transport. release returns all of it. Until
// then a request is in these states, with these claims:
//
//	decoding | bytes for reading and decoding its message
//	running  | the same, and a slot
//	decoded  | bytes of its message in place of those for decoding, and the slot
//	yielded  | bytes of its message
//
// Safe for concurrent use: the work of a task may outlive its request.
type admission struct {
	principal string
	size      int           // of the message in bytes
	messages  *admit.Quota  // for the messages of decoded requests; nil without a limit
	memory    *admit.Ledger // of files, pictures and the answer; nil without a limit
	listen    *admit.Claim  // of a subscription
	spread    *admit.Claim  // of a message being sent to other servers
	calls     *callTable    // the table with call; nil without one
	call      *call

	mu       sync.Mutex
	decoding *admit.Claim
	slot     *admit.Claim // nil for a request that needs none
	message  *admit.Claim
	settled  bool // decoded was called
	fits     bool // its result
}

// decoded replaces the memory for decoding by memory for the message. It returns false, and changes nothing,
// if there is no room for the message. Further calls return the same.
func (a *admission) decoded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled {
		return a.fits
	}
	a.settled = true
	if a.messages != nil {
		a.message = a.messages.Take(a.principal, a.size)
	}
	a.fits = a.messages == nil || a.message != nil
	if a.fits {
		a.decoding.Release()
	}
	return a.fits
}

// yield releases the slot. It returns false, and changes nothing, if there is no room for the message.
func (a *admission) yield() bool {
	if !a.decoded() {
		return false
	}
	a.slot.Release()
	return true
}

// join registers a call in a table until release; see callTable.add.
func (a *admission) join(calls *callTable, c *call) (bool, *Error) {
	ok, failure := calls.add(c)
	if ok {
		a.calls, a.call = calls, c
	}
	return ok, failure
}

// release returns everything that the request has acquired. Only the first call has an effect, and decoded
// acquires nothing any more.
func (a *admission) release() {
	a.slot.Release()
	if a.calls != nil {
		a.calls.leave(a.call)
		a.calls = nil
	}
	a.memory.Close()
	a.listen.Release()
	a.spread.Release()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fits = a.fits || !a.settled
	a.settled = true
	a.message.Release()
	a.decoding.Release()
}

const (
	// holdingPatience is how long a request waits for the memory of other requests with large answers.
	holdingPatience = 10 * time.Second

	// The memory that the process needs besides the memory quota, and the minimum of the quota.
	otherMemory = 128 << 20
	leastMemory = 64 << 20

	// fileCost is the memory in bytes for each byte of a file in an answer: for the file, its base64 or JSON,
	// and the message.
	fileCost = 5
)

// newDecoding returns the quota for bytes of messages being read and decoded: in total four times the longest
// message, per principal the longest message and a quarter. Decoding takes several times the memory of the
// text, and a processor.
func newDecoding(longest int) *admit.Quota { return admit.NewQuota(4*longest, longest+longest/4) }

// newMemory returns the quota for the memory of files, decoded pictures and answers until they are written. A
// principal may use the memory for a file of the longest kind, 64 MiB, and some short ones, so that two
// principals with long files leave room for others. In a process limited to most bytes (0 means unlimited)
// the quota is smaller accordingly.
func newMemory(most int64) *admit.Quota {
	all := int64(192 << 20 * fileCost)
	if most > 0 {
		all = min(all, max(most-otherMemory, leastMemory))
	}
	return admit.NewQuota(int(all), int(all/12*5))
}

// newQuota returns a quota of most units; one principal may hold the part 1/share.
func newQuota(most, share int) *admit.Quota { return admit.NewQuota(most, max(most/share, 1)) }

const notificationRoom = 64

// notifications is a queue: deliver is called with each notification in order, on one goroutine.
type notifications struct {
	deliver func(mcp.JSONRPCNotification)

	mu      sync.Mutex
	ch      chan mcp.JSONRPCNotification // nil until used
	sending sync.WaitGroup
	closed  bool
	stopped chan struct{}
}

func newNotifications(deliver func(mcp.JSONRPCNotification)) *notifications {
	return &notifications{deliver: deliver}
}

var errAnswered = errors.New("the request is answered")

// send waits for room until ctx ends.
func (q *notifications) send(ctx context.Context, n mcp.JSONRPCNotification) error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return errAnswered
	}
	if q.ch == nil {
		q.ch, q.stopped = make(chan mcp.JSONRPCNotification, notificationRoom), make(chan struct{})
		go func() {
			defer close(q.stopped)
			for n := range q.ch {
				q.deliver(n)
			}
		}()
	}
	q.sending.Add(1)
	q.mu.Unlock()
	defer q.sending.Done()
	select {
	case q.ch <- n:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close waits until all sent notifications are delivered.
func (q *notifications) close() {
	q.mu.Lock()
	running := q.ch != nil && !q.closed
	q.closed = true
	q.mu.Unlock()
	if running {
		q.sending.Wait()
		close(q.ch)
		<-q.stopped
	}
}
