package tasks

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/wire"
)

// Names of the methods.
const (
	MethodGet    = "tasks/get"
	MethodUpdate = "tasks/update"
	MethodCancel = "tasks/cancel"
)

// view is the JSON form of a task.
type view struct {
	TaskID         string `json:"taskId"`
	Status         string `json:"status"`
	StatusMessage  string `json:"statusMessage,omitempty"`
	CreatedAt      string `json:"createdAt"`
	LastUpdatedAt  string `json:"lastUpdatedAt"`
	TTLMs          int64  `json:"ttlMs"`
	PollIntervalMs int64  `json:"pollIntervalMs"`
}

// state is the result that creates a task, or returns all of it.
type state struct {
	mcp.Result
	view
	InputRequests mcp.InputRequests `json:"inputRequests,omitempty"`
	Output        json.RawMessage   `json:"result,omitempty"`
	Error         json.RawMessage   `json:"error,omitempty"`
}

// ack is an empty result.
type ack struct{ mcp.Result }

// view returns the fields of a task that every result has. The caller holds mu.
func (t *Task) view() view {
	at := func(moment time.Time) string { return moment.UTC().Format("2006-01-02T15:04:05.000Z") }
	return view{TaskID: t.id, Status: t.status, StatusMessage: t.message, CreatedAt: at(t.created),
		LastUpdatedAt: at(t.updated), TTLMs: ttl.Milliseconds(), PollIntervalMs: pollEvery.Milliseconds()}
}

// Missing returns the error for a request that needs the extension and does not declare it.
func Missing() *wire.Error {
	return &wire.Error{
		Code:    mcp.MISSING_REQUIRED_CLIENT_CAPABILITY,
		Message: "this needs the extension " + Extension + ", which the request does not declare",
		Data: map[string]any{"requiredCapabilities": map[string]any{
			"extensions": map[string]any{Extension: struct{}{}},
		}},
	}
}

// Methods are the methods of the extension.
func (s *Store) Methods() wire.Methods {
	return wire.Methods{
		MethodGet: s.method(func(t *Task, _ mcp.InputResponses) (*state, error) {
			shown := &state{view: t.view(), Output: t.result, Error: t.failure}
			shown.InputRequests = make(mcp.InputRequests, len(t.asked))
			for key, question := range t.asked {
				shown.InputRequests[key] = question
			}
			return shown, nil
		}),
		MethodUpdate: s.method(func(t *Task, given mcp.InputResponses) (*state, error) {
			// All answers are checked first, because a request that is refused must change nothing.
			for key, question := range t.asked {
				if response, ok := given[key]; ok && response.DecodeFor(question.Method) != nil {
					return nil, &wire.Error{Code: mcp.INVALID_PARAMS,
						Message: "inputResponses." + key + " is not an answer to its question"}
				}
			}
			for key, response := range given {
				// Ignore other keys: they belong to answered questions, or to none.
				if _, ok := t.asked[key]; ok {
					t.answers[key], t.updated = response, time.Now()
					delete(t.asked, key)
				}
			}
			if t.status == inputRequired && len(t.asked) == 0 {
				t.status, t.message = working, ""
				close(t.answered)
			}
			return nil, nil
		}),
		MethodCancel: s.method(func(t *Task, _ mcp.InputResponses) (*state, error) {
			t.cancel(errCanceled)
			return nil, nil
		}),
	}
}

// method wraps do with the common checks: the request must declare the extension, and the task must belong to
// the client. It calls do with mu held, and answers a nil state with ack.
func (s *Store) method(do func(*Task, mcp.InputResponses) (*state, error)) wire.Method {
	return func(ctx context.Context, r *wire.Request) (any, error) {
		switch {
		case !r.Modern:
			return nil, &wire.Error{Code: mcp.METHOD_NOT_FOUND, Message: "Method " + r.Method + " not found"}
		case !Declares(ctx):
			return nil, Missing()
		}
		var p struct {
			TaskID         string             `json:"taskId"`
			InputResponses mcp.InputResponses `json:"inputResponses"`
			Meta           map[string]any     `json:"_meta"`
		}
		if err := json.Unmarshal(r.Params, &p); err != nil {
			return nil, &wire.Error{Code: mcp.INVALID_PARAMS,
				Message: "params do not have the form this method takes"}
		}
		owner, session := s.opts.Owner(ctx, p.Meta)
		s.mu.Lock()
		defer s.mu.Unlock()
		t := s.tasks[p.TaskID]
		switch {
		case t == nil && s.opts.Holders != nil:
			// The other server is asked without the lock, which the deferred Unlock needs again.
			s.mu.Unlock()
			defer s.mu.Lock()
			return s.elsewhere(ctx, r.Method, owner, p.TaskID)
		case t == nil || !t.handedOver || t.owner != owner || session != "" && session != t.session:
			return nil, unknown()
		}
		shown, err := do(t, p.InputResponses)
		switch {
		case err != nil:
			return nil, err
		case shown == nil:
			return new(ack), nil
		}
		return shown, nil
	}
}

func unknown() *wire.Error {
	return &wire.Error{Code: mcp.INVALID_PARAMS, Message: "unknown task: it never was, it is older than an " +
		"hour, or the server was restarted; the record of its session has its outcome"}
}

// elsewhere forwards a method for a task of another server to that server. If that server is gone, the
// outcome of the task is unknown.
func (s *Store) elsewhere(ctx context.Context, method, owner, id string) (any, error) {
	since, address, err := s.opts.Holders.Find(ctx, holderID(owner, id))
	switch {
	case err != nil:
		s.opts.Logger.WarnContext(ctx, "the server of a task is not found", slog.String("err", err.Error()))
		return nil, &wire.Error{Code: mcp.INTERNAL_ERROR,
			Message: "which server has the task, or had it, is not known at the moment; ask again"}
	case since.IsZero():
		return nil, unknown()
	case address != "":
		wire.Forward(ctx, address)
		return nil, &wire.Error{Code: mcp.INTERNAL_ERROR,
			Message: "another server has the task, and does not answer; ask again"}
	case method != MethodGet:
		return new(ack), nil
	}
	lost := &Task{id: id, created: since, updated: since, status: failed}
	failure, err := json.Marshal(&wire.Error{Code: mcp.INTERNAL_ERROR, Message: "outcome_unknown: the " +
		"server that had the task has ended; nothing is done again, and the record of its session says " +
		"what is known"})
	return &state{view: lost.view(), Error: failure}, err
}
