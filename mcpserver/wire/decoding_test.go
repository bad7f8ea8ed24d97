package wire

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
)

// A message of many values or levels is refused before anything is made of it, wherever they are. A response is
// not answered: it becomes an error for whoever waits for it.
func TestTooManyValues(t *testing.T) {
	values := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(`"",`, n), ",") + "]" }
	levels := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, tt := range []struct{ name, message, id string }{
		{"arguments", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"x":%s}}}`, "7"},
		{"nested", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"x":{"y":[%s]}}}}`, "7"},
		{"answer", `{"jsonrpc":"2.0","id":7,"result":{"x":%s}}`, "7"},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/x","params":{"x":%s}}`, ""},
		{"other members", `{"jsonrpc":"2.0","id":7,"method":"ping","x":%s}`, "7"},
	} {
		if _, failure := parse(fmt.Appendf(nil, tt.message, values(maxValues-20))); failure != nil {
			t.Errorf("%s: %v", tt.name, failure)
		}
		if tt.name == "answer" {
			for _, large := range []string{values(maxValues), levels(maxLevels)} {
				m, failure := parse(fmt.Appendf(nil, tt.message, large))
				if failure != nil || m.kind != response || m.result != nil || !strings.Contains(string(m.failure), "-32600") {
					t.Errorf("%s: %+v, %v", tt.name, m, failure)
				}
			}
			continue
		}
		m, failure := parse(fmt.Appendf(nil, tt.message, values(maxValues)))
		if failure == nil || failure.Code != mcp.INVALID_REQUEST || string(m.id) != tt.id {
			t.Errorf("%s with too many values: id %s, %v", tt.name, m.id, failure)
		}
		if _, failure := parse(fmt.Appendf(nil, tt.message, levels(maxLevels-5))); failure != nil {
			t.Errorf("%s: %v", tt.name, failure)
		}
		m, failure = parse(fmt.Appendf(nil, tt.message, levels(maxLevels)))
		if failure == nil || failure.Code != mcp.INVALID_REQUEST || string(m.id) != tt.id {
			t.Errorf("%s with too many levels: id %s, %v", tt.name, m.id, failure)
		}
	}
}

// Long messages of one principal are decoded one after the other, without keeping short ones or those of
// another principal waiting; a handler that has decoded its arguments lets the next one in.
func TestLongMessagesInTurn(t *testing.T) {
	p, _ := newHTTPPeer(t, func(o *HTTPOptions) {
		o.MaxBody = 64 << 10
		o.Authenticate = func(_ http.ResponseWriter, r *http.Request) (context.Context, string, bool) {
			return r.Context(), r.Header.Get("X-Principal"), true
		}
	})
	begun, next := make(chan string, 100), make(chan struct{})
	p.server.AddTool(mcp.NewTool("hold"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		begun <- string(RequestID(ctx))
		<-next
		Decoded(ctx)
		<-ctx.Done()
		return mcp.NewToolResultText("done"), nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	send := func(principal, id, arguments string) {
		go p.try(ctx, "POST", "/mcp", modernCall(id, "hold", arguments), append(modernHeaders("tools/call", "hold"), "X-Principal", principal)...)
	}
	long := `"x":"` + strings.Repeat("x", 60<<10) + `"`
	send("alice", "1", long)
	await(t, begun)
	send("alice", "2", long)
	eventually(t, "the second message waits", func() bool { return p.h.decoding.State().Waiting > 0 })
	send("bob", "3", long)
	if got := await(t, begun); got != "3" {
		t.Fatalf("call %s began, want the one of bob", got)
	}
	send("alice", "4", "")
	if got := await(t, begun); got != "4" {
		t.Fatalf("call %s began, want the short one", got)
	}
	close(next)
	if got := await(t, begun); got != "2" {
		t.Fatalf("call %s began, want the second", got)
	}
	cancel()
	eventually(t, "all room is given back", func() bool { return p.h.decoding.State().Principals == 0 })
}
