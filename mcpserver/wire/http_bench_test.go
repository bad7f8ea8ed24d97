package wire

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/server"
)

// BenchmarkHTTP compares one call without a socket with one of mcp-go's own server.
func BenchmarkHTTP(b *testing.B) {
	own, err := NewHTTP(&testServer().Dispatcher, HTTPOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer own.end()
	library := server.NewStreamableHTTPServer(libraryServer(), server.WithStateLess(true), server.WithStreamableHTTPLogger(slog.New(slog.DiscardHandler)))
	body := modernCall("1", "echo", `"text":"`+strings.Repeat("x", 4000)+`"`)
	for name, handler := range map[string]http.Handler{"own": own, "library": library} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				headers := modernHeaders("tools/call", "echo")
				for i := 0; i < len(headers); i += 2 {
					r.Header.Set(headers[i], headers[i+1])
				}
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				if data, _ := io.ReadAll(w.Body); w.Code != 200 {
					b.Fatalf("%d %s", w.Code, data)
				}
			}
		})
	}
}
