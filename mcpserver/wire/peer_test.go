package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// modernMeta is the _meta of a request on the revision 2026-07-28.
const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"modern","version":"2"},"io.modelcontextprotocol/clientCapabilities":{}}`

const initialize = `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{"elicitation":{},"roots":{}},"clientInfo":{"name":"old","version":"1"}}}`

func testServer() *server.MCPServer {
	srv := server.NewMCPServer("fixture", "1.0.0", server.WithToolCapabilities(true),
		server.WithPromptCapabilities(true), server.WithResourceCapabilities(false, true), server.WithLogging())
	addTool := func(name string, handler server.ToolHandlerFunc) {
		srv.AddTool(mcp.NewTool(name), handler)
	}
	addTool("echo", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(r.GetString("text", "echo")), nil
	})
	addTool("progress", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range r.GetInt("n", 3) {
			err := server.ServerFromContext(ctx).SendNotificationToClient(ctx, "notifications/progress",
				map[string]any{"progressToken": r.Params.Meta.ProgressToken, "progress": i + 1})
			if err != nil {
				return nil, err
			}
		}
		return mcp.NewToolResultText("done"), nil
	})
	addTool("chosen", func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		SetError(ctx, &Error{Code: -32002, Message: "no such thing", Data: map[string]any{"uri": "skill://x"}})
		return nil, fmt.Errorf("open /home/secret: denied")
	})
	addTool("fail", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, fmt.Errorf("open /home/secret: denied")
	})
	addTool("panic", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		panic("/home/secret")
	})
	addTool("who", func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		c := ClientOf(ctx)
		return mcp.NewToolResultText(fmt.Sprintf("%s %s %s modern=%v elicitation=%v",
			c.SessionID, c.Info.Name, c.Version, c.Modern, c.Capabilities.Elicitation != nil)), nil
	})
	addTool("ask", func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r, err := server.ServerFromContext(ctx).RequestElicitation(ctx, mcp.ElicitationRequest{Params: mcp.ElicitationParams{
			Message: "may I?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}},
		}})
		if err != nil {
			return mcp.NewToolResultError(err.Error()), nil
		}
		return mcp.NewToolResultText(string(r.Action)), nil
	})
	return srv
}

type page struct {
	mcp.CacheableResult
	Items []string `json:"items"`
}

// fixture answers with srv and with some methods that it lacks.
func fixture(srv *server.MCPServer) *Dispatcher {
	return &Dispatcher{
		Server:     srv,
		ServerInfo: mcp.Implementation{Name: "fixture", Version: "1.0.0"},
		CacheTTL:   60_000_000_000,
		Methods: Methods{
			"skills/list": func(context.Context, *Request) (any, error) { return &page{Items: []string{"a"}}, nil },
			"skills/get": func(_ context.Context, r *Request) (any, error) {
				return nil, fmt.Errorf("get: %w", &Error{Code: -32602, Message: "unknown skill", Data: r.Modern})
			},
			"skills/leak": func(context.Context, *Request) (any, error) { return nil, fmt.Errorf("open /home/secret") },
		},
		Overrides: Methods{
			"resources/list": func(ctx context.Context, r *Request) (any, error) {
				return &page{Items: []string{r.Method, string(RequestID(ctx))}}, nil
			},
		},
	}
}

// dispatch answers one message as the transports do.
func (d *Dispatcher) dispatch(ctx context.Context, raw []byte) []byte {
	m, err := parse(raw)
	switch {
	case err != nil:
		return d.refusal(m.id, err)
	case m.kind == response:
		return nil
	}
	s := newCallSession(ctx, ctx, &session{id: "test"}, m, newLineWriter(io.Discard), newAudience())
	ctx = d.Server.WithContext(ctx, s)
	if m.kind == notification {
		d.notify(ctx, m)
		return nil
	}
	return d.answer(ctx, m)
}

// lineLog is the client's end of the output. It notes Writes that are not one whole line.
type lineLog struct {
	mu    sync.Mutex
	lines []string
	bad   []string
}

func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if bytes.Count(p, []byte("\n")) != 1 || p[len(p)-1] != '\n' || !json.Valid(p) {
		l.bad = append(l.bad, string(p))
	}
	l.lines = append(l.lines, strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

func (l *lineLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

// peer is a client inside a synctest bubble.
type peer struct {
	t      *testing.T
	in     *io.PipeWriter
	out    *lineLog
	stop   context.CancelFunc
	result func() error // waits for ServeStdio
}

func startPeer(t *testing.T, d *Dispatcher, opts *StdioOptions) *peer {
	t.Helper()
	r, w := io.Pipe()
	p := &peer{t: t, in: w, out: new(lineLog)}
	opts.In = r
	if opts.Out == nil {
		opts.Out = p.out
	}
	ctx, stop := context.WithCancel(t.Context())
	p.stop = stop
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = ServeStdio(ctx, d, opts)
	}()
	p.result = func() error {
		<-done
		return err
	}
	t.Cleanup(func() {
		stop()
		w.Close()
		<-done
		if len(p.out.bad) > 0 {
			t.Errorf("writes that are not one message: %q", p.out.bad)
		}
	})
	return p
}

// send writes lines and returns what the server wrote until it had nothing left to do.
func (p *peer) send(lines ...string) []string {
	p.t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(p.in, line+"\n"); err != nil {
			p.t.Fatal(err)
		}
	}
	return p.settle()
}

func (p *peer) settle() []string {
	synctest.Wait()
	return p.out.take()
}

// end closes the input and returns ServeStdio's result.
func (p *peer) end() error {
	p.in.Close()
	return p.result()
}

func callLine(id, tool, arguments string) string {
	if arguments == "" {
		arguments = "{}"
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, arguments)
}

func cancelLine(id string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id)
}

func listenLine(id, filter string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"subscriptions/listen","params":{"notifications":%s,%s}}`, id, filter, modernMeta)
}
