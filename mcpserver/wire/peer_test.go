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
)

// modernMeta is the _meta of a request on the revision 2026-07-28.
const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"modern","version":"2"},"io.modelcontextprotocol/clientCapabilities":{}}`

const initialize = `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{"elicitation":{},"roots":{}},"clientInfo":{"name":"old","version":"1"}}}`

// toolServer is a dispatcher with tools.
type toolServer struct {
	Dispatcher
	tools map[string]toolHandler
}

type toolHandler func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error)

func (s *toolServer) AddTool(tool mcp.Tool, handler toolHandler) { s.tools[tool.Name] = handler }

func (s *toolServer) call(ctx context.Context, r *Request) (any, error) {
	var request mcp.CallToolRequest
	if err := Decode(r.Params, &request.Params); err != nil {
		return nil, err
	}
	handler := s.tools[request.Params.Name]
	if handler == nil {
		return nil, invalidParams(fmt.Sprintf("tool '%s' not found", request.Params.Name))
	}
	return handler(ctx, request)
}

func testServer() *toolServer {
	srv := &toolServer{tools: map[string]toolHandler{}}
	srv.Methods = Methods{"tools/call": srv.call}
	srv.Capabilities = func(bool) (has mcp.ServerCapabilities) {
		changes := struct {
			ListChanged bool `json:"listChanged,omitempty"`
		}{true}
		has.Tools, has.Prompts = &changes, &changes
		has.Resources = &struct {
			Subscribe   bool `json:"subscribe,omitempty"`
			ListChanged bool `json:"listChanged,omitempty"`
		}{ListChanged: true}
		return has
	}
	srv.ServerInfo = mcp.Implementation{Name: "fixture", Version: "1.0.0"}
	addTool := func(name string, handler toolHandler) {
		srv.AddTool(mcp.NewTool(name), handler)
	}
	addTool("echo", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(r.GetString("text", "echo")), nil
	})
	addTool("progress", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range r.GetInt("n", 3) {
			if err := Notify(ctx, "notifications/progress", map[string]any{"progress": i + 1}); err != nil {
				return nil, err
			}
		}
		return mcp.NewToolResultText("done"), nil
	})
	addTool("chosen", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, fmt.Errorf("open /home/secret: %w",
			&Error{Code: -32002, Message: "no such thing", Data: map[string]any{"uri": "skill://x"}})
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
		var r mcp.ElicitationResult
		err := Ask(ctx, mcp.MethodElicitationCreate, mcp.ElicitationParams{
			Message: "may I?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}},
		}, &r)
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
func fixture(srv *toolServer) *Dispatcher {
	d := &srv.Dispatcher
	d.CacheTTL = 60_000_000_000
	d.Methods["skills/list"] = func(context.Context, *Request) (any, error) { return &page{Items: []string{"a"}}, nil }
	d.Methods["skills/get"] = func(_ context.Context, r *Request) (any, error) {
		return nil, fmt.Errorf("get: %w", &Error{Code: -32602, Message: "unknown skill", Data: r.Modern})
	}
	d.Methods["skills/leak"] = func(context.Context, *Request) (any, error) { return nil, fmt.Errorf("open /home/secret") }
	d.Methods["resources/list"] = func(ctx context.Context, r *Request) (any, error) {
		return &page{Items: []string{r.Method, string(RequestID(ctx))}}, nil
	}
	return d
}

// dispatch answers one message as the transports do.
func (d *Dispatcher) dispatch(ctx context.Context, raw []byte) []byte {
	m, err := parse(raw)
	switch {
	case err != nil:
		return d.refusal(m.id, err)
	case m.kind != request:
		return nil
	}
	c := newCall(ctx, &session{id: "test"}, m, new(admission))
	defer c.cancel(nil)
	c.out, c.audience, c.hangUp = newLineWriter(io.Discard), newAudience(), ctx
	result, failure := d.respond(c.ctx, c, nil)
	return d.encode(c.ctx, m, result, failure)
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
