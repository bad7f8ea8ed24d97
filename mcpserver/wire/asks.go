package wire

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// asks are the server's open requests to one client. The zero value is ready for use.
type asks struct {
	mu      sync.Mutex
	next    int64
	pending map[string]chan *message
}

// ask sends a request on out and decodes the result of its answer.
//
// Errors: ErrFailed, a result of another form, the cause of ctx.
func (a *asks) ask(
	ctx context.Context, out *lineWriter, method mcp.MCPMethod, params, result any,
) error {
	answer := make(chan *message, 1)
	a.mu.Lock()
	a.next++
	id := json.RawMessage(strconv.FormatInt(a.next, 10))
	if a.pending == nil {
		a.pending = make(map[string]chan *message)
	}
	// The answer may arrive before write has returned.
	key, _ := idKey(id)
	a.pending[key] = answer
	a.mu.Unlock()
	defer a.take(key)
	line, err := marshalLine(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  mcp.MCPMethod   `json:"method"`
		Params  any             `json:"params,omitempty"`
	}{mcp.JSONRPC_VERSION, id, method, params})
	if err != nil {
		return fmt.Errorf("ask %s: %w", method, err)
	}
	out.write(line)
	select {
	case m := <-answer:
		if m.failure != nil {
			var failure Error
			err = json.Unmarshal(m.failure, &failure)
			// The error has only the text: an *Error in the chain would be sent back to the client.
			return fmt.Errorf("ask %s: %w %v", method, ErrFailed, cmp.Or(err, error(&failure)))
		}
		// Another program may read the user's answer by exact keys, so it must have only one meaning.
		err = Unambiguous(m.result, "action", "content")
		if err != nil {
			return fmt.Errorf("ask %s: %w", method, err)
		}
		err = json.Unmarshal(m.result, result)
		if err != nil {
			return fmt.Errorf("ask %s: %w", method, err)
		}
		return nil
	case <-ctx.Done():
		// Cancel the question, or the user might still answer it.
		const form = `{"jsonrpc":"2.0","method":%q,"params":{"requestId":%s}}`
		out.write(fmt.Appendf(nil, form, mcp.MethodNotificationCancelled, id))
		return fmt.Errorf("ask %s: %w", method, context.Cause(ctx))
	}
}

// take removes the open request with the key of an id and returns its channel, or nil.
func (a *asks) take(key string) chan *message {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := a.pending[key]
	delete(a.pending, key)
	return answer
}

// route passes a response to the call that waits for it. It returns false if no call does.
func (a *asks) route(m *message) bool {
	if m.id == nil {
		// An error response without an id belongs to no call.
		return true
	}
	answer := a.take(m.key)
	if answer != nil {
		answer <- m
	}
	return answer != nil
}
