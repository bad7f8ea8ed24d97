// Package wire serves JSON-RPC methods over standard input and output and over HTTP, in both eras of the
// protocol: 2026-07-28, and 2025-11-25 and 2025-06-18 with their initialize handshake.
//
// # What it guarantees
//
// The package answers what belongs to the protocol alone: initialize, ping, server/discover and
// subscriptions/listen, each in the revisions that have it, and checks versions, _meta and headers; [Methods]
// are the rest. The types of the protocol are those of mcp-go, and so are the checks of its headers. Its
// server is not used: it compiles JSON schemas at each start of a process, which takes a third of the start,
// decodes each message several times, and had to be kept from what it does with ids, notifications and
// sessions. A test holds what is accepted and refused to what it says.
//
// Request ids travel byte for byte. A message is either unambiguous or refused: a repeated envelope key, or
// one that differs from its name in case only, is answered -32600.
//
// [ServeStdio] and [HTTP] state their own guarantees about framing, cancellation, order and shutdown.
//
// # What it does not
//
// It does not authenticate but asks who a request is from, does not know the tools, and opens no connections.
// It does not hide the text of errors that a [Method] chose.
package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

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

// Versions are the revisions that are served, the newest first: one without sessions, and the older ones.
func Versions() []string {
	return []string{mcp.ProtocolVersion20260728, mcp.ProtocolVersion20251125, mcp.ProtocolVersion20250618}
}

// Request is one JSON-RPC request that passed the checks of the protocol. It must not be changed.
type Request struct {
	Method string
	// Params is the params value as it came, nil when there was none.
	Params json.RawMessage
	// Header is of the HTTP request that brought it, nil if it came in another way.
	Header http.Header
	// Modern reports whether the request uses the revision 2026-07-28 or later.
	Modern bool
}

// Decode reads params, or a part of them; none leaves what is there.
//
// Errors: an [*Error] for the client, with the decoder's own words behind it.
func Decode(raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%w: %w", invalidParams(errParams), err)
	}
	return nil
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

func internalError() *Error { return &Error{Code: mcp.INTERNAL_ERROR, Message: "internal error"} }

func invalidRequest(text string) *Error { return &Error{Code: mcp.INVALID_REQUEST, Message: text} }
