package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/admit"
)

// session is the session of a connection, or a protocol session over HTTP.
type session struct {
	id    string
	asks  asks                  // ids are unique among all calls of the session
	known atomic.Pointer[known] // from initialize; nil before
}

// known is the description of a client.
type known struct {
	info         mcp.Implementation
	capabilities mcp.ClientCapabilities
	version      string
}

// call is one request, from the parse of its message until its answer. Notifications sent through it belong
// to it, and so does the client's description on 2026-07-28.
type call struct {
	*session
	msg       *message
	ctx       context.Context // has the call as a value, see callOf
	cancel    context.CancelCauseFunc
	admission *admission
	listen    bool            // a subscription
	ping      bool            // pings do not wait for a slot
	wait      <-chan struct{} // an earlier initialize request to wait for, or nil
	release   chan struct{}   // closed when this initialize request is answered, or nil

	out      *lineWriter
	sent     notifications
	silent   atomic.Bool            // the client cancelled the call, or its answer is about to be written
	audience *audience              // of its transport
	hangUp   context.Context        // ends with the input of the connection
	forward  atomic.Pointer[string] // see Forward

	deaf  bool        // the client reads nothing but the answer, so it cannot be asked
	alone func() bool // see Alone; nil outside of HTTP

	// declared is sent with the message itself, if it is modern; set before its method is called. Modern
	// clients repeat it in each request, so it is not kept for other requests.
	declared *known

	canceled bool // guarded by callTable.mu
	away     bool // handled by another server; guarded by callTable.mu
}

// newCall returns the call of a request without its output yet. Its context ends with ctx.
func newCall(ctx context.Context, s *session, m *message, a *admission) *call {
	c := &call{session: s, msg: m, admission: a,
		listen: m.method == string(mcp.MethodSubscriptionsListen), ping: m.method == string(mcp.MethodPing)}
	ctx, c.cancel = context.WithCancelCause(ctx)
	c.ctx = context.WithValue(ctx, sessionKey{}, c)
	return c
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

// add registers c before the next message is read, so that a cancellation finds it, until its admission is
// released. It returns false without an error if the connection is closing.
func (t *callTable) add(c *call) (bool, *Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closing:
		return false, nil
	case t.byKey[c.msg.key] != nil:
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
	t.byKey[c.msg.key] = c
	t.bytes += len(c.msg.raw)
	if c.listen {
		t.listens++
	} else {
		t.calls++
	}
	c.admission.calls, c.admission.call = t, c
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
	key := canceledKey(m.params)
	if key == "" {
		// It names no call.
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// The protocol forbids cancelling initialize, and later requests wait for it.
	c := t.byKey[key]
	if c != nil && c.release == nil {
		c.canceled = true
		c.silent.Store(true)
		c.cancel(ErrCanceled)
	}
	return c != nil && !c.away
}

// canceledKey returns the key of the request that a cancellation names, or "" if it names none or is
// ambiguous.
func canceledKey(params json.RawMessage) string {
	id := member(params, "requestId")
	if id == nil {
		return ""
	}
	key, _ := idKey(id)
	return key
}

// settle removes c from the table just before its answer is written, and reports whether to write one.
func (t *callTable) settle(c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byKey, c.msg.key)
	return !c.canceled
}

// leave releases the limits held by c after its answer was written or dropped.
func (t *callTable) leave(c *call) {
	c.cancel(nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	// After settle the client may have reused the id.
	if t.byKey[c.msg.key] == c {
		delete(t.byKey, c.msg.key)
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
	size      int          // of the message in bytes
	messages  *admit.Quota // for the messages of decoded requests; nil without a limit
	memory    admit.Ledger // of files, pictures and the answer
	listen    *admit.Claim // of a subscription
	spread    *admit.Claim // of a message being sent to other servers
	calls     *callTable   // the table with call; nil without one
	call      *call

	mu       sync.Mutex
	decoding *admit.Claim
	slot     *admit.Claim // nil for a request that needs none
	message  *admit.Claim
	settled  bool // decoded was called
	fits     bool // its result
}

// decoded replaces the memory for decoding by memory for the message. It returns false, and changes nothing,
// if there is no room for the message: the request then keeps its slot. Further calls return the same.
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

// notificationRoom is the maximum of notifications of a call that wait to be written.
const notificationRoom = 64

// notifications is the queue of the notifications of a call, which one goroutine writes in order.
type notifications struct {
	mu      sync.Mutex
	ch      chan mcp.JSONRPCNotification // nil until used
	sending sync.WaitGroup
	closed  bool
	stopped chan struct{}
}

var errAnswered = errors.New("the request is answered")

// send queues a notification. It waits for room until ctx ends.
func (c *call) send(ctx context.Context, n mcp.JSONRPCNotification) error {
	q := &c.sent
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
				c.emit(n)
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

// finish waits until all notifications of the call are written; none may follow.
func (c *call) finish() {
	q := &c.sent
	q.mu.Lock()
	running := q.ch != nil && !q.closed
	q.closed = true
	q.mu.Unlock()
	if running {
		q.sending.Wait()
		close(q.ch)
		<-q.stopped
	}
	c.silent.Store(true)
}

// emit writes one notification of this call. Progress has the client's token, byte for byte.
func (c *call) emit(n mcp.JSONRPCNotification) {
	if n.Method == string(mcp.MethodNotificationProgress) {
		token := progressToken(c.msg.params)
		if token == nil {
			return
		}
		fields := map[string]any{}
		maps.Copy(fields, n.Params.AdditionalFields)
		fields["progressToken"], n.Params.AdditionalFields = token, fields
	}
	c.write(n)
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

func (c *call) write(n mcp.JSONRPCNotification) {
	if line, err := marshalLine(n); err == nil {
		c.out.writeIf(line, func() bool { return !c.silent.Load() })
	}
}

func marshalLine(v any) ([]byte, error) {
	var buf bytes.Buffer
	if err := json.NewEncoder(&buf).Encode(v); err != nil {
		return nil, err
	}
	return buf.Bytes()[:buf.Len()-1], nil
}

// subscribe acknowledges a subscription and starts it; end ends it. news reports whether the client should
// get a change; nil means every change.
func (c *call) subscribe(to mcp.SubscriptionFilter, news func(method string) bool) (end func()) {
	acknowledged := mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION, Notification: mcp.Notification{
		Method: mcp.MethodNotificationSubscriptionsAcknowledged,
		Params: mcp.NotificationParams{AdditionalFields: map[string]any{"notifications": to}}}}
	if to.IsEmpty() {
		c.write(c.tagged(acknowledged))
		return func() {}
	}
	a, done := newAnnouncer(func(method string) bool {
		asked := method == mcp.MethodNotificationToolsListChanged && to.ToolsListChanged ||
			method == mcp.MethodNotificationPromptsListChanged && to.PromptsListChanged ||
			method == mcp.MethodNotificationResourcesListChanged && to.ResourcesListChanged
		return asked && (news == nil || news(method))
	}), make(chan struct{})
	go a.run(done, c.out, func(n mcp.JSONRPCNotification) { c.write(c.tagged(n)) })
	// The announcer is added before the acknowledgement, so that no later change is lost.
	c.audience.add(a)
	c.write(c.tagged(acknowledged))
	// The acknowledgement must be the first message.
	a.open()
	return func() {
		c.audience.remove(a)
		close(done)
	}
}

// tagged marks n as part of the subscription of this call.
func (c *call) tagged(n mcp.JSONRPCNotification) mcp.JSONRPCNotification {
	n.Params.Meta = map[string]any{mcp.MetaKeySubscriptionID: c.msg.id}
	return n
}

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
	return member(member(c.msg.params, "_meta"), name)
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
