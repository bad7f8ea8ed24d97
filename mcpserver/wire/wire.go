// Package wire serves JSON-RPC methods over standard input and output and over HTTP, in both eras of the
// protocol: 2026-07-28, and 2025-11-25 and 2025-06-18 with their initialize handshake.
//
// # What it guarantees
//
// The package itself answers initialize, ping, server/discover and subscriptions/listen, each in the
// revisions that have it, and checks versions, _meta and headers; [Methods] are all others. The types of the
// protocol and the checks of its headers are from mcp-go. Its server is not used: it compiles JSON schemas at
// each start of a process, which takes a third of the start, decodes each message several times, and would
// have to be kept from changing ids, notifications and sessions. A test compares which messages are accepted
// with its server.
//
// Request ids are copied byte for byte. A message is either unambiguous or rejected: a repeated envelope key,
// or one that differs from its name in case only, is answered -32600.
//
// [ServeStdio] and [HTTP] document their guarantees about framing, cancellation, order and shutdown.
//
// # What it leaves to others
//
// It does not authenticate but calls Authenticate, does not know the tools, and opens no connections. It does
// not hide the text of errors that a [Method] chose.
package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"
)

// CodeBusy is the JSON-RPC error code of a request that was refused because too many others were waiting. The
// client may send it again. The protocol has no code for this, and reserves -32768 to -32000.
const CodeBusy = 1429

// Method answers one JSON-RPC method. It runs on its own goroutine and must be safe for concurrent use. ctx
// ends when the client cancels the request or disconnects.
//
// A pointer to a result that embeds mcp.Result or mcp.CacheableResult is decorated for the revision
// 2026-07-28, so it must not be shared between calls. Other results are marshalled unchanged. An error that
// wraps an [*Error] is sent as that error; any other error is sent as -32603 with a generic message, and its
// text is only logged.
type Method func(ctx context.Context, r *Request) (any, error)

// Appender is a result that marshals itself after the start of an answer, so that a large one is not copied.
// It appends JSON without a newline, and grows the line by its own size and AfterResult.
type Appender interface {
	AppendJSON(line []byte) ([]byte, error)
}

// AfterResult is the number of bytes after a result in its line.
const AfterResult = len("}\n")

// Methods maps method names to their implementations. It must not change while it is served.
type Methods map[string]Method

// Versions returns the served revisions, newest first: one without sessions, and the older ones.
func Versions() []string {
	return []string{mcp.ProtocolVersion20260728, mcp.ProtocolVersion20251125, mcp.ProtocolVersion20250618}
}

// Request is one JSON-RPC request that passed the checks of the protocol. It must not be changed.
type Request struct {
	Method string
	// Params is the params value as sent, nil if there was none.
	Params json.RawMessage
	// Header is from the HTTP request; nil if the message came by another transport.
	Header http.Header
	// Modern reports whether the request uses the revision 2026-07-28 or later.
	Modern bool
}

// Error is a JSON-RPC error as sent to the client. All of it is public: Message and Data must not contain
// host paths or inner causes.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

// Error returns the code and the message.
func (e *Error) Error() string { return fmt.Sprintf("json-rpc %d: %s", e.Code, e.Message) }

func internalError() *Error { return &Error{Code: mcp.INTERNAL_ERROR, Message: "internal error"} }

func invalidRequest(text string) *Error { return &Error{Code: mcp.INVALID_REQUEST, Message: text} }
