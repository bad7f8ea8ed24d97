package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// asks sends requests to the client and routes its responses back.
type asks struct {
	out    *lineWriter
	closed <-chan struct{}

	mu      sync.Mutex
	next    int64
	pending map[string]chan *message
}

func newAsks(out *lineWriter, closed <-chan struct{}) *asks {
	return &asks{out: out, closed: closed, pending: make(map[string]chan *message)}
}

// ask sends a request and decodes the result of its answer.
//
// Errors: an error that the client answered with, a result of another form, ctx, [ErrDisconnected].
func (a *asks) ask(ctx context.Context, method mcp.MCPMethod, params, result any) error {
	id, answer := a.register()
	defer a.forget(id)
	line, err := marshalLine(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  mcp.MCPMethod   `json:"method"`
		Params  any             `json:"params,omitempty"`
	}{mcp.JSONRPC_VERSION, id, method, params})
	if err != nil {
		return fmt.Errorf("ask %s: %w", method, err)
	}
	a.out.write(line)
	select {
	case m := <-answer:
		return m.decode(method, result)
	case <-a.closed:
		return fmt.Errorf("ask %s: %w", method, ErrDisconnected)
	case <-ctx.Done():
		// The user would otherwise answer a question that nobody asks any more.
		a.withdraw(id)
		return fmt.Errorf("ask %s: %w", method, ctx.Err())
	}
}

func (a *asks) register() (json.RawMessage, <-chan *message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next++
	id := json.RawMessage(strconv.FormatInt(a.next, 10))
	answer := make(chan *message, 1)
	a.pending[idKey(id)] = answer
	return id, answer
}

func (a *asks) forget(id json.RawMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pending, idKey(id))
}

// withdraw notifies the client that its answer is no longer needed.
func (a *asks) withdraw(id json.RawMessage) {
	const form = `{"jsonrpc":"2.0","method":%q,"params":{"requestId":%s}}`
	a.out.write(fmt.Appendf(nil, form, mcp.MethodNotificationCancelled, id))
}

// route gives a response to the call that waits for it, and drops any other.
func (a *asks) route(m *message) {
	if m.id == nil {
		return
	}
	key := idKey(m.id)
	a.mu.Lock()
	answer := a.pending[key]
	delete(a.pending, key)
	a.mu.Unlock()
	if answer != nil {
		answer <- m
	}
}

func (m *message) decode(method mcp.MCPMethod, result any) error {
	if m.failure != nil {
		failure := new(Error)
		if err := json.Unmarshal(m.failure, failure); err != nil {
			return fmt.Errorf("ask %s: decode error: %w", method, err)
		}
		return fmt.Errorf("ask %s: %w", method, &clientError{failure})
	}
	if err := Unambiguous(m.result, answerNames()...); err != nil {
		return fmt.Errorf("ask %s: result: %w", method, err)
	}
	if err := json.Unmarshal(m.result, result); err != nil {
		return fmt.Errorf("ask %s: decode result: %w", method, err)
	}
	return nil
}

// clientError keeps an error the client sent from being taken for one of ours
// and sent back.
type clientError struct{ failure *Error }

func (e *clientError) Error() string { return "client answered " + e.failure.Error() }
