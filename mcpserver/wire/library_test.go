package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func libraryServer() *server.MCPServer {
	srv := server.NewMCPServer("fixture", "1.0.0", server.WithToolCapabilities(true))
	srv.AddTool(mcp.NewTool("echo"), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(r.GetString("text", "echo")), nil
	})
	return srv
}

// What mcp-go's server accepts of 2026-07-28 is accepted, and what it refuses is refused with the same code and
// status.
func TestHTTPAsLibrary(t *testing.T) {
	own, err := NewHTTP(&testServer().Dispatcher, HTTPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer own.end()
	library := server.NewStreamableHTTPServer(libraryServer(), server.WithStateLess(true),
		server.WithStreamableHTTPLogger(slog.New(slog.DiscardHandler)))
	verdict := func(handler http.Handler, body string, headers []string) string {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		var answer struct {
			Result json.RawMessage
			Error  struct{ Code int }
		}
		_, data, streamed := strings.Cut(w.Body.String(), "data: {\"jsonrpc\":\"2.0\",\"id\"")
		data = `{"jsonrpc":"2.0","id"` + data
		if !streamed {
			data = w.Body.String()
		}
		if w.Body.Len() > 0 && json.Unmarshal([]byte(data), &answer) != nil {
			t.Fatalf("%s %q: %s", body, headers, data)
		}
		return fmt.Sprintf("%d, code %d, result %v", w.Code, answer.Error.Code, answer.Result != nil)
	}
	meta := func(version, capabilities string) string {
		return `"_meta":{"io.modelcontextprotocol/protocolVersion":` + version + `,"io.modelcontextprotocol/clientCapabilities":` + capabilities + `}`
	}
	for _, message := range []struct{ method, name, params string }{
		{"server/discover", "", ""}, {"initialize", "", ""}, {"ping", "", ""}, {"x/y", "", ""}, {"tools/call", "echo", `,"name":"echo"`},
		{"tools/call", "none", `,"name":"none"`}, {"subscriptions/listen", "", `,"notifications":{}`}, {"notifications/x", "", ""},
	} {
		for _, m := range []string{
			modernMeta, meta(`"2026-07-28"`, `{}`), meta(`"2026-07-28"`, `5`), meta(`"2026-07-28"`, `null`), meta(`"2031-01-01"`, `{}`),
			`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`, `"_meta":{}`, meta(`5`, `{}`), meta(`"2025-11-25"`, `{}`),
		} {
			id := `"id":1,`
			if message.method == "notifications/x" {
				id = ""
			}
			body := fmt.Sprintf(`{"jsonrpc":"2.0",%s"method":%q,"params":{%s%s}}`, id, message.method, m, message.params)
			for _, headers := range [][]string{
				modernHeaders(message.method, message.name), modernHeaders(message.method), modernHeaders("a/b", message.name),
				modernHeaders(message.method, "b"), {"Mcp-Protocol-Version", "2026-07-28"}, {"Mcp-Method", message.method},
				append(modernHeaders(message.method, message.name), "Last-Event-ID", "1"),
				{"Mcp-Protocol-Version", "2031-01-01", "Mcp-Method", message.method, "Mcp-Name", message.name},
			} {
				parsed, failure := parse([]byte(body))
				header := http.Header{"Mcp-Protocol-Version": headers[1:2]}
				if failure != nil || !isModern(header, parsed) && headers[0] == "Mcp-Protocol-Version" {
					continue
				}
				if headers[0] == "Mcp-Method" && !isModern(nil, parsed) {
					continue // of the older revisions
				}
				if got, want := verdict(own, body, headers), verdict(library, body, headers); got != want {
					t.Errorf("%s\n%q: %s; mcp-go: %s", body, headers, got, want)
				}
			}
		}
	}
}
