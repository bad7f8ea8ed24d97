// Package tasks is the Tasks extension of 2026-07-28 (SEP-2663): a long tool call is answered with the id of
// a task, and the client polls for its status and result.
//
// # What it guarantees
//
// A call becomes a task only if the request itself declares the extension, and only once it has lasted for
// [Options.Patience]: short calls are answered as without the extension, and so are refusals and questions,
// and calls for which there is no room among the tasks.
//
// A task belongs to its owner. For others, for a request that names another session, and after its life, its
// id is unknown. Ids have 130 random bits.
//
// The work is the unchanged handler of the tool: its checks, its records and the removal of secrets are done
// before a result is kept. Cancelling a task ends the context of the handler; the task is cancelled once the
// handler has returned. The end of the server does the same, and [Store.Close] waits for it.
//
// # What it does not do
//
// Tasks are kept in memory: after a restart their ids are unknown or, if other servers know the task, its
// outcome is. It sends no notifications.
package tasks

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/admit"
	"github.com/skillsd/skillsd/mcpserver/wire"
)

// Extension is the name of the extension in the capabilities of clients and servers.
const Extension = "io.modelcontextprotocol/tasks"

// ttl is the life of a task from its creation: then a running task is cancelled, and a result is deleted.
const ttl = time.Hour

const (
	pollEvery   = time.Second // recommended poll interval
	askPatience = 10 * time.Minute
	// The maximum of running tasks, and of known tasks, per owner and in total.
	maxLive, maxLiveAll   = 8, 64
	maxKnown, maxKnownAll = 64, 512
	// No task starts while the results of an owner, or all results, take more bytes.
	maxBytes, maxBytesAll = 16 << 20, 64 << 20
	// A longer request does not become a task, because the task would keep it in memory.
	maxRequest = 256 << 10
)

const (
	working       = "working"
	inputRequired = "input_required"
	completed     = "completed"
	failed        = "failed"
	cancelled     = "cancelled"
)

// errCanceled is the cause of the context of a task that its client cancelled, or whose life ended.
var errCanceled = errors.New("task canceled")

// Options configure a Store. Owner is required.
type Options struct {
	// Patience is how long a call lasts before it becomes a task.
	Patience time.Duration
	// Owner returns the principal of a request, and the session that it names, or "".
	Owner func(ctx context.Context, meta map[string]any) (owner, session string)
	// Holders locates tasks among several servers; nil without other servers.
	Holders Holders
	// Withhold redacts the JSON of an error before it is sent; nil sends it unchanged.
	Withhold func(json.RawMessage) json.RawMessage
	// Logger gets panics and the private text of errors; nil discards them.
	Logger *slog.Logger
}

// Holders locates things among several servers.
type Holders interface {
	// Put registers this server as the one with id, for the duration life.
	Put(ctx context.Context, id string, life time.Duration) error
	// Find returns the time since when a server has id, zero if none ever had, and the address of that
	// server, which is empty if it is this server or is gone.
	Find(ctx context.Context, id string) (since time.Time, address string, err error)
}

// Store holds the tasks of a server. All methods are safe for concurrent use.
type Store struct {
	opts    Options
	running sync.WaitGroup

	live    *admit.Quota // running tasks
	known   *admit.Quota // tasks
	results *admit.Quota // bytes of their results

	mu     sync.Mutex
	tasks  map[string]*Task
	closed bool
}

// New returns an empty store.
func New(o Options) *Store {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Store{opts: o, tasks: make(map[string]*Task), live: admit.NewQuota(maxLiveAll, maxLive),
		known: admit.NewQuota(maxKnownAll, maxKnown), results: admit.NewQuota(maxBytesAll, maxBytes)}
}

// Task is one call that may outlive its request. Fields that change are guarded by mu of its store.
type Task struct {
	store              *Store
	id, owner, session string
	created            time.Time
	request            context.Context // of the call; ends when the call is answered
	cancel             context.CancelCauseFunc
	ended              chan struct{} // closed when the work has ended, or asked before it was handed over

	// The outcome of a call that did not become a task.
	direct *mcp.CallToolResult
	err    error

	here       bool // see Here
	handedOver bool
	status     string
	message    string
	updated    time.Time
	result     json.RawMessage   // set when completed
	failure    json.RawMessage   // set when failed
	asked      mcp.InputRequests // without an answer yet
	answers    mcp.InputResponses
	answered   chan struct{} // closed when no question is open

	live, known, results *admit.Claim // of the quotas of the store
}

type taskKey struct{}

// FromContext returns the task that the work of ctx may become; nil if it cannot become one.
func FromContext(ctx context.Context) *Task {
	t, _ := ctx.Value(taskKey{}).(*Task)
	return t
}

// Request returns the context of the request of the call, which ends when the call is answered, even with a
// task.
func (t *Task) Request() context.Context { return t.request }

// Here records that this server does the work, and none of the other servers in Holders. Until then the call
// does not become a task.
func (t *Task) Here() {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	t.here = true
}

// Progress returns a function that sets the message of the task and passes it to next, which may be nil.
func (t *Task) Progress(next func(message string)) func(message string) {
	return func(message string) {
		t.store.mu.Lock()
		t.message, t.updated = message, time.Now()
		t.store.mu.Unlock()
		if next != nil {
			next(message)
		}
	}
}

// Handler answers a tool call.
type Handler = func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error)

// Call calls a handler. If the call takes long and may become a task, the result is the task, else the result
// of the handler.
func (s *Store) Call(ctx context.Context, request mcp.CallToolRequest, handle Handler) (any, error) {
	var t *Task
	if Declares(ctx) && wire.Length(ctx) <= maxRequest {
		t = s.begin(ctx, request.Params.Meta)
	}
	if t == nil {
		return handle(ctx, request)
	}
	work, cancel := context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), taskKey{}, t))
	t.cancel = cancel
	// Until it becomes a task, the work ends with its request.
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	go func() {
		defer s.running.Done()
		defer cancel(nil)
		t.run(work, handle, request)
	}()
	ticker := time.NewTicker(s.opts.Patience)
	defer ticker.Stop()
	select {
	case <-t.ended:
	case <-ticker.C:
		// If stop returns false, the request has ended and the work is being cancelled.
		if s.register(ctx, t, ticker.C) && stop() {
			if answer := s.handOver(ctx, t); answer != nil {
				return answer, nil
			}
		}
		<-t.ended
	}
	stop()
	s.forget(t)
	return t.direct, t.err
}

// begin returns a possible task, or nil if there is no room for it.
func (s *Store) begin(ctx context.Context, meta *mcp.Meta) *Task {
	var fields map[string]any
	if meta != nil {
		fields = meta.AdditionalFields
	}
	now := time.Now()
	t := &Task{store: s, id: rand.Text(), created: now, updated: now, request: ctx, status: working,
		ended: make(chan struct{})}
	t.owner, t.session = s.opts.Owner(ctx, fields)
	s.mu.Lock()
	defer s.mu.Unlock()
	t.live, t.known = s.live.Take(t.owner, 1), s.known.Take(t.owner, 1)
	if s.closed || t.live == nil || t.known == nil || s.results.Exceeded(t.owner) {
		t.release()
		return nil
	}
	s.tasks[t.id] = t
	s.running.Add(1)
	return t
}

// register waits until the work is on this server, and registers the task for other servers. It returns
// false if the call is done, or the registration failed.
func (s *Store) register(ctx context.Context, t *Task, again <-chan time.Time) bool {
	for {
		s.mu.Lock()
		here := t.here
		s.mu.Unlock()
		switch {
		case s.opts.Holders == nil:
			return true
		case here:
			return s.opts.Holders.Put(ctx, holderID(t.owner, t.id), time.Until(t.created.Add(ttl))) == nil
		}
		select {
		case <-again:
		case <-t.ended:
			return false
		}
	}
}

// holderID returns the id of an owner's task in Holders.
func holderID(owner, id string) string { return fmt.Sprintf("task %d %s%s", len(owner), owner, id) }

// handOver turns a call into a task and returns its state, which is the answer; nil if the call is done.
func (s *Store) handOver(ctx context.Context, t *Task) *state {
	// The slot belongs to the request, so it is released before the request ends.
	wire.YieldSlot(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-t.ended:
		return nil
	default:
	}
	t.handedOver = true
	time.AfterFunc(time.Until(t.created.Add(ttl)), func() {
		// It is forgotten first, so that end does not charge its result.
		s.forget(t)
		s.mu.Lock()
		defer s.mu.Unlock()
		t.cancel(errCanceled)
	})
	answer := &state{view: t.view()}
	answer.ResultType = "task"
	return answer
}

func (s *Store) forget(t *Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tasks, t.id)
	t.release()
}

// release returns what the task holds of the quotas. The store's mu is held.
func (t *Task) release() {
	t.live.Release()
	t.known.Release()
	t.results.Release()
}

// run does the work, including rounds with answers to its questions, until it has a result.
func (t *Task) run(ctx context.Context, handle Handler, request mcp.CallToolRequest) {
	for round := 1; ; round++ {
		result, err := t.call(ctx, handle, request)
		if err != nil || result.ResultType != mcp.ResultTypeInputRequired {
			t.end(ctx, result, err)
			return
		}
		t.store.mu.Lock()
		if !t.handedOver {
			// The answer is the question, and the client calls again.
			t.direct = result
			close(t.ended)
			t.store.mu.Unlock()
			return
		}
		// A key must name one question in the whole life of a task.
		suffix := ""
		if round > 1 {
			suffix = fmt.Sprintf("-%d", round)
		}
		t.asked, t.answers, t.answered = mcp.InputRequests{}, mcp.InputResponses{}, make(chan struct{})
		for key, question := range result.InputRequests {
			t.asked[key+suffix] = question
		}
		t.status, t.message, t.updated = inputRequired, "waits for an answer", time.Now()
		answered := t.answered
		t.store.mu.Unlock()

		timer := time.NewTimer(askPatience)
		select {
		case <-answered:
		case <-timer.C:
			t.cancel(errCanceled)
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			t.end(ctx, nil, ctx.Err())
			return
		}
		responses := mcp.InputResponses{}
		for key := range result.InputRequests {
			// Answered questions do not change any more, so this needs no lock.
			responses[key] = t.answers[key+suffix]
		}
		request.Params.InputResponses, request.Params.RequestState = responses, result.RequestState
	}
}

// call calls the handler and recovers a panic, which nothing above it would.
func (t *Task) call(
	ctx context.Context, handle Handler, request mcp.CallToolRequest,
) (result *mcp.CallToolResult, err error) {
	defer func() {
		if r := recover(); r != nil {
			t.store.opts.Logger.ErrorContext(ctx, "handler panicked", slog.String("err", fmt.Sprint(r)),
				slog.String("stack", string(debug.Stack())))
			result, err = nil, &wire.Error{Code: mcp.INTERNAL_ERROR, Message: "internal error"}
		}
	}()
	return handle(ctx, request)
}

// end records the outcome of the work.
func (t *Task) end(ctx context.Context, result *mcp.CallToolResult, err error) {
	t.store.mu.Lock()
	if !t.handedOver {
		defer t.store.mu.Unlock()
		t.direct, t.err = result, err
		close(t.ended)
		return
	}
	t.store.mu.Unlock()
	status, made, failure := completed, json.RawMessage(nil), json.RawMessage(nil)
	if err == nil {
		if result.ResultType == "" {
			result.ResultType = mcp.ResultTypeComplete
		}
		made, err = json.Marshal(result)
	}
	switch {
	case errors.Is(context.Cause(ctx), errCanceled):
		status, made = cancelled, nil
	case err != nil:
		status, made, failure = failed, nil, t.store.public(ctx, err)
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	t.status, t.message, t.result, t.failure, t.updated = status, "", made, failure, time.Now()
	t.asked, t.answers = nil, nil
	t.live.Release()
	// Otherwise the life of the task is over, and nothing would release the claim.
	if t.store.tasks[t.id] == t {
		t.results = t.store.results.Charge(t.owner, len(made)+len(failure))
	}
	// Keep only the result, not the request.
	t.request, t.cancel = nil, func(error) {}
	close(t.ended)
}

// public returns an error as sent to the client.
func (s *Store) public(ctx context.Context, err error) json.RawMessage {
	shown, ok := errors.AsType[*wire.Error](err)
	if !ok {
		s.opts.Logger.ErrorContext(ctx, "task failed", slog.String("err", err.Error()))
		shown = &wire.Error{Code: mcp.INTERNAL_ERROR, Message: "internal error"}
	}
	raw, err := json.Marshal(shown)
	if err != nil {
		raw = json.RawMessage(`{"code":-32603,"message":"internal error"}`)
	}
	if s.opts.Withhold != nil {
		raw = s.opts.Withhold(raw)
	}
	return raw
}

// Empty reports whether there is no task, running or ended within its life.
func (s *Store) Empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tasks) == 0
}

// Close cancels all tasks, rejects new ones, and waits until their work has ended.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	for _, t := range s.tasks {
		// A call that is not a task yet ends with its request.
		if t.handedOver {
			t.cancel(wire.ErrDisconnected)
		}
	}
	s.mu.Unlock()
	s.running.Wait()
}

// Declares reports whether the request of ctx declares the extension, so that its call may become a task.
func Declares(ctx context.Context) bool {
	client := wire.ClientOf(ctx)
	_, ok := client.Capabilities.Extensions[Extension]
	return ok && client.Modern
}
