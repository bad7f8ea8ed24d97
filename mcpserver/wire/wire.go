// Package wire adds JSON-RPC methods to the ones that mcp-go has, and serves both over standard input and
// output and over HTTP.
//
// # What it guarantees
//
// Every message goes to mcp-go first, and only its answer -32601 (all checks of protocol version, headers and
// _meta have passed, the method is unknown) is replaced by an answer from [Methods]. A method in the override
// table is sent under an alias name, so that it takes the same way. Whatever else mcp-go answers is passed on
// with its code, so validation is the library's by construction. Where mcp-go checks nothing that this
// package has not checked, it is left out: a method of the tables in the older revisions is answered at once,
// and a request in one of their sessions passes by its transport. Tests hold both to what mcp-go says.
//
// Request ids travel byte for byte. A message is either unambiguous or refused:
// a repeated envelope key, or one that differs from its name in case only, is
// answered -32600, so this package and mcp-go cannot read a message differently.
//
// [ServeStdio] and [HTTP] state their own guarantees about framing, cancellation, order and shutdown.
//
// # What it does not
//
// It does not authenticate but asks who a request is from, does not know the tools, and opens no connections.
//
// It does not hide the text of errors that mcp-go itself words (-32600, -32602); only -32603 is replaced by a
// generic text unless the handler chose another one with [SetError].
package wire

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"
)

// CodeBusy is the JSON-RPC error code of a request that was refused because too many others were waiting.
// The client may send it again. The protocol has no code for this, and wants none of -32768 to -32000 for new
// ones.
const CodeBusy = 1429

// Method answers one JSON-RPC method. It runs on its own goroutine and must be safe for concurrent use. ctx
// ends when the client cancels the request or leaves.
//
// A pointer to a result that embeds mcp.Result or mcp.CacheableResult is decorated for the revision
// 2026-07-28, so it must not be shared between calls. Any other result is sent as it marshals. An error that
// wraps an [*Error] is sent as that error, every other one as -32603 with a generic message, and its text
// goes to the log alone.
type Method func(ctx context.Context, r *Request) (any, error)

// Appender is a result that marshals itself behind the beginning of an answer, so that a large one is not
// copied. What it appends is JSON without a newline; it grows the line by its own size and AfterResult.
type Appender interface {
	AppendJSON(line []byte) ([]byte, error)
}

// AfterResult is how many bytes follow a result in its line.
const AfterResult = len("}\n")

// Methods maps method names to their implementations. It must not change while it is being served.
type Methods map[string]Method

// Request is one JSON-RPC request that passed the library's checks. It must not be changed.
type Request struct {
	// Method is the name the client sent, also for an override.
	Method string
	// Params is the params value as it came, nil when there was none.
	Params json.RawMessage
	// Modern reports whether the request uses the revision 2026-07-28 or later.
	Modern bool
}

// Error is a JSON-RPC error as the client gets it. All of it is public: Message and Data must not name host
// paths or inner causes.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

// Error returns the code and the message.
func (e *Error) Error() string { return fmt.Sprintf("json-rpc %d: %s", e.Code, e.Message) }

// SetError chooses the JSON-RPC error that the error a handler of mcp-go is about to return becomes: mcp-go
// makes -32603 of every handler error, and this package replaces that -32603 by e. It has no effect on a
// request that succeeds or fails with another code, nor on a context that does not come from this package.
// The last call wins. It is safe for concurrent use.
func SetError(ctx context.Context, e *Error) {
	if s := callSessionOf(ctx); s != nil {
		s.chosen.Store(e)
	}
}

// SetResult chooses the result that the error a handler of mcp-go is about to return becomes, as [SetError]
// chooses an error: mcp-go takes no other results of a tool but its own. It must be one that a [Method] may
// return, and comes before an error that was chosen.
func SetResult(ctx context.Context, result any) {
	if s := callSessionOf(ctx); s != nil {
		s.instead.Store(&result)
	}
}

func internalError() *Error { return &Error{Code: mcp.INTERNAL_ERROR, Message: "internal error"} }

func invalidRequest(text string) *Error { return &Error{Code: mcp.INVALID_REQUEST, Message: text} }
