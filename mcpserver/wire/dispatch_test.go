package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
)

func testDispatcher(log io.Writer) *Dispatcher {
	d := fixture(testServer())
	d.Methods["skills/unmarshalable"] = func(context.Context, *Request) (any, error) { return make(chan int), nil }
	d.Methods["skills/plain"] = func(context.Context, *Request) (any, error) { return map[string]int{"a": 1}, nil }
	d.Methods["skills/panic"] = func(context.Context, *Request) (any, error) { panic("/home/secret") }
	d.Methods["skills/appended"] = func(_ context.Context, r *Request) (any, error) { return appended(r.Params), nil }
	d.Methods["skills/badData"] = func(context.Context, *Request) (any, error) {
		return nil, &Error{Code: 1, Message: "m", Data: func() {}}
	}
	d.CacheTTL, d.Logger = 0, slog.New(slog.NewTextHandler(log, nil))
	return d
}

// appended is a result that appends itself, or fails if it is empty.
type appended []byte

func (a appended) AppendJSON(line []byte) ([]byte, error) {
	if len(a) == 0 {
		return nil, errors.New("nothing to append")
	}
	return append(line, a...), nil
}

func (a appended) MarshalJSON() ([]byte, error) { return a.AppendJSON(nil) }

func TestDispatch(t *testing.T) {
	tests := []struct{ name, in, want, log string }{
		{"library method", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, ""},
		{"own method", `{"jsonrpc":"2.0","id":1,"method":"skills/list"}`, `{"jsonrpc":"2.0","id":1,"result":{"items":["a"]}}`, ""},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/x"}`, "", ""},
		{"response", `{"jsonrpc":"2.0","id":1,"result":{}}`, "", ""},
		{"junk", `x`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}`, ""},
		{"not an object that embeds mcp.Result", `{"jsonrpc":"2.0","id":1,"method":"skills/plain","params":{` + modernMeta + `}}`, `{"jsonrpc":"2.0","id":1,"result":{"a":1}}`, ""},
		{"result that does not marshal", `{"jsonrpc":"2.0","id":1,"method":"skills/unmarshalable"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal error"}}`, "unsupported type"},
		{"error data that does not marshal", `{"jsonrpc":"2.0","id":1,"method":"skills/badData"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal error"}}`, "unsupported type"},
		{"private error", `{"jsonrpc":"2.0","id":1,"method":"skills/leak"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal error"}}`, "/home/secret"},
		{"panic", `{"jsonrpc":"2.0","id":1,"method":"skills/panic"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal error"}}`, "/home/secret"},
		{"result that appends itself", `{"jsonrpc":"2.0","id":"a","method":"skills/appended","params":{"b":1}}`, `{"jsonrpc":"2.0","id":"a","result":{"b":1}}`, ""},
		{"result that does not append itself", `{"jsonrpc":"2.0","id":1,"method":"skills/appended"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal error"}}`, "nothing to append"},
		{"long method", `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 300) + `"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found"}}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			if got := string(testDispatcher(&log).dispatch(t.Context(), []byte(tt.in))); got != tt.want {
				t.Errorf("Dispatch() = %s, want %s", got, tt.want)
			}
			if got := log.String(); (tt.log == "") != (got == "") || !strings.Contains(got, tt.log) {
				t.Errorf("logged %q, want %q", got, tt.log)
			}
		})
	}
}

// What the library says of its own types when params do not decode is for the log alone.
func TestDecoderErrors(t *testing.T) {
	var log bytes.Buffer
	d := testDispatcher(io.Discard)
	d.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, in := range []string{
		`"ping","params":5`, `"initialize","params":{"protocolVersion":5}`, `"initialize","params":{"capabilities":5}`, `"tools/call","params":{"name":{}}`,
		`"tools/call","params":{"name":"echo","_meta":5}`, `"subscriptions/listen","params":{"notifications":5,` + modernMeta + `}`,
	} {
		got := string(d.dispatch(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":`+in+`}`)))
		if !strings.Contains(got, `"message":"`+errParams+`"`) {
			t.Errorf("%s = %s", in, got)
		}
	}
	if !strings.Contains(log.String(), "level=DEBUG") || !strings.Contains(log.String(), "cannot unmarshal") {
		t.Errorf("the log lacks the cause: %s", log.String())
	}
	for in, want := range map[string]string{
		`"tools/call","params":{"name":"x"}`:                                                 "tool 'x' not found",
		`"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01"}}`: "",
	} {
		got := string(d.dispatch(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":`+in+`}`)))
		if !strings.Contains(got, want) || strings.Contains(got, errParams) {
			t.Errorf("%s = %s, want %s", in, got, want)
		}
	}
}

func TestDecorate(t *testing.T) {
	d := testDispatcher(io.Discard)
	got := &page{CacheableResult: mcp.CacheableResult{Result: mcp.Result{Meta: mcp.NewMetaFromMap(map[string]any{"k": "v"})}}}
	d.decorate(got)
	if got.ResultType != mcp.ResultTypeComplete || got.TTLMs == nil || got.CacheScope != mcp.CacheScopePrivate ||
		got.Meta.ServerInfo() == nil || got.Meta.GetMetaField("k") != "v" {
		t.Errorf("decorate() = %+v", got)
	}
	chosen := new(page)
	chosen.SetCacheHints(5, mcp.CacheScopePublic)
	chosen.SetResultType(mcp.ResultTypeInputRequired)
	d.decorate(chosen)
	if *chosen.TTLMs != 5 || chosen.CacheScope != mcp.CacheScopePublic || chosen.ResultType != mcp.ResultTypeInputRequired {
		t.Errorf("decorate() overrides what the method chose: %+v", chosen)
	}
	d.decorate(nil)
}

func TestOutsideOfARequest(t *testing.T) {
	if got := ClientOf(t.Context()); got.SessionID != "" || got.Modern {
		t.Errorf("ClientOf(no session) = %+v", got)
	}
	if err := Ask(t.Context(), mcp.MethodElicitationCreate, nil, nil); err != ErrNotAsked {
		t.Errorf("Ask(no session) = %v", err)
	}
	if err := Notify(t.Context(), "notifications/progress", nil); err != nil {
		t.Errorf("Notify(no session) = %v", err)
	}
}

func TestErrorText(t *testing.T) {
	err := error(&Error{Code: -32602, Message: "unknown skill"})
	if got := err.Error(); got != "json-rpc -32602: unknown skill" {
		t.Errorf("Error() = %q", got)
	}
}
