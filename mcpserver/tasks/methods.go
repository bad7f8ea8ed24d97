package tasks

import (
	"context"
	"encoding/json"
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

// view is a task on the wire.
type view struct {
	TaskID         string `json:"taskId"`
	Status         string `json:"status"`
	StatusMessage  string `json:"statusMessage,omitempty"`
	CreatedAt      string `json:"createdAt"`
	LastUpdatedAt  string `json:"lastUpdatedAt"`
	TTLMs          int64  `json:"ttlMs"`
	PollIntervalMs int64  `json:"pollIntervalMs"`
}

// state is the answer that creates a task, or shows it with all that it has.
type state struct {
	mcp.Result
	view
	InputRequests mcp.InputRequests `json:"inputRequests,omitempty"`
	Output        json.RawMessage   `json:"result,omitempty"`
	Error         json.RawMessage   `json:"error,omitempty"`
}

// ack is the answer that something was done.
type ack struct{ mcp.Result }

// view returns what every answer has of a task. The caller holds mu.
func (t *Task) view() view {
	at := func(moment time.Time) string { return moment.UTC().Format("2006-01-02T15:04:05.000Z") }
	return view{TaskID: t.id, Status: t.status, StatusMessage: t.message, CreatedAt: at(t.created),
		LastUpdatedAt: at(t.updated), TTLMs: TTL.Milliseconds(), PollIntervalMs: pollEvery.Milliseconds()}
}

// Declares reports whether the request of ctx declares the extension, so that its call may become a task.
func Declares(ctx context.Context) bool {
	client := wire.ClientOf(ctx)
	_, ok := client.Capabilities.Extensions[Extension]
	return ok && client.Modern
}

// Missing returns the error of a request that needs the extension and does not declare it.
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
			for key, question := range t.asked {
				if response, ok := given[key]; ok && response.DecodeFor(question.Method) != nil {
					return nil, &wire.Error{Code: mcp.INVALID_PARAMS,
						Message: "inputResponses." + key + " is not an answer to its question"}
				}
			}
			for key, response := range given {
				// Other keys are of questions that are answered, or of none.
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

// method puts around do what all methods have: the extension must be declared, and the task be the client's.
// It calls do with mu held, and answers a nil state with nothing but that it was done.
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
		if t == nil || !t.handedOver || t.owner != owner || session != "" && session != t.session {
			return nil, &wire.Error{Code: mcp.INVALID_PARAMS, Message: "unknown task: it never was, it is " +
				"older than an hour, or the server was restarted; the record of its session has its outcome"}
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
