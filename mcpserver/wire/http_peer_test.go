package wire

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// patience bounds every wait for the other side.
const patience = time.Minute

// httpPeer is a client of an HTTP server on a socket of its own.
type httpPeer struct {
	t      *testing.T
	server *toolServer
	h      *HTTP
	addr   string
	client *http.Client
	stop   context.CancelFunc
	ended  chan error
}

// blocked is told when the tool "block" starts, and why its context ended.
type blocked struct {
	begun chan string
	cause chan error
}

func newHTTPPeer(t *testing.T, adjust func(*HTTPOptions)) (*httpPeer, *blocked) {
	t.Helper()
	b := &blocked{begun: make(chan string, 1000), cause: make(chan error, 1000)}
	srv := testServer()
	srv.AddTool(mcp.NewTool("block"), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if r.GetString("kill", "") != "" {
			killable, release := KillAtEOF(ctx)
			defer release()
			ctx = killable
		}
		b.begun <- string(RequestID(ctx))
		<-ctx.Done()
		b.cause <- context.Cause(ctx)
		return mcp.NewToolResultText("too late"), nil
	})
	srv.AddTool(mcp.NewTool("sample"), func(
		ctx context.Context, _ mcp.CallToolRequest,
	) (*mcp.CallToolResult, error) {
		var r struct{ Content struct{ Text string } }
		if err := Ask(ctx, mcp.MethodSamplingCreateMessage, mcp.CreateMessageParams{}, &r); err != nil {
			return mcp.NewToolResultError(err.Error()), nil
		}
		return mcp.NewToolResultText(r.Content.Text), nil
	})
	d := fixture(srv)
	opts := HTTPOptions{Drain: time.Second}
	d.Methods["tasks/get"] = func(context.Context, *Request) (any, error) { return &page{Items: []string{"t"}}, nil }
	d.Methods["prompts/get"] = func(context.Context, *Request) (any, error) { return &page{Items: []string{"p"}}, nil }
	if adjust != nil {
		adjust(&opts)
	}
	h, err := NewHTTP(d, opts)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &httpPeer{t: t, server: srv, h: h, addr: listener.Addr().String(), stop: stop, ended: make(chan error, 1)}
	p.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Timeout: 2 * patience}
	go func() { p.ended <- h.Serve(ctx, listener) }()
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		p.end()
	})
	return p, b
}

// end stops the server and waits for it.
func (p *httpPeer) end() {
	p.t.Helper()
	p.stop()
	select {
	case err := <-p.ended:
		if err != nil {
			p.t.Errorf("Serve = %v", err)
		}
		p.ended <- nil
	case <-time.After(patience):
		p.t.Error("Serve does not end")
	}
}

// try sends one request. Headers come in pairs; Host is the request's own. What is left of the
// response is given up at the end of the test.
func (p *httpPeer) try(ctx context.Context, method, path, body string, headers ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+p.addr+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header[http.CanonicalHeaderKey(headers[i])] = strings.Split(headers[i+1], "\n")
	}
	response, err := p.client.Do(r)
	if err != nil {
		return nil, err
	}
	p.t.Cleanup(func() { response.Body.Close() })
	return response, nil
}

// do is try where nothing goes wrong.
func (p *httpPeer) do(ctx context.Context, method, path, body string, headers ...string) *http.Response {
	p.t.Helper()
	response, err := p.try(ctx, method, path, body, headers...)
	if err != nil {
		p.t.Fatal(err)
	}
	return response
}

// post sends a message and returns status, content type and body of the answer.
func (p *httpPeer) post(body string, headers ...string) (status int, text string) {
	p.t.Helper()
	response, err := p.try(p.t.Context(), http.MethodPost, "/mcp", body, headers...)
	if err != nil {
		p.t.Error(err)
		return 0, ""
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Error(err)
	}
	return response.StatusCode, strings.TrimSuffix(string(data), "\n")
}

// open makes a session of the older revisions.
func (p *httpPeer) open(headers ...string) (session string) {
	p.t.Helper()
	response := p.do(p.t.Context(), http.MethodPost, "/mcp", initialize, headers...)
	defer response.Body.Close()
	io.Copy(io.Discard, response.Body)
	session = response.Header.Get("Mcp-Session-Id")
	if response.StatusCode != 200 || session == "" {
		p.t.Fatalf("initialize: %s, session %q", response.Status, session)
	}
	return session
}

// modernHeaders are the headers of a request on 2026-07-28.
func modernHeaders(method string, name ...string) []string {
	headers := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method}
	if len(name) > 0 {
		headers = append(headers, "Mcp-Name", name[0])
	}
	return headers
}

func modernCall(id, tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{%s,"name":%q,"arguments":{%s}}}`, id, modernMeta, tool, arguments)
}

func toolCall(id, tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":{%s}}}`, id, tool, arguments)
}

// events reads an event stream.
type events struct {
	t    *testing.T
	scan *bufio.Scanner
}

func (p *httpPeer) events(response *http.Response) *events {
	p.t.Helper()
	if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
		body, _ := io.ReadAll(response.Body)
		p.t.Fatalf("Content-Type = %q, want an event stream: %s", got, body)
	}
	if response.Header.Get("X-Accel-Buffering") != "no" {
		p.t.Error("a proxy may buffer the stream")
	}
	return &events{t: p.t, scan: bufio.NewScanner(response.Body)}
}

// next returns the next message or, with its colon, comment; "" at the end.
func (e *events) next() string {
	for e.scan.Scan() {
		line := e.scan.Text()
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			return data
		}
		if strings.HasPrefix(line, ":") {
			return line
		}
	}
	return ""
}

// message returns the next message, over comments.
func (e *events) message() string {
	for {
		if text := e.next(); !strings.HasPrefix(text, ":") {
			return text
		}
	}
}

// taken is how many calls hold a place.
func (p *httpPeer) taken() int { return p.h.opts.MaxInFlight - p.h.calls.State().Free }

func await[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing happens")
		panic("unreachable")
	}
}

// eventually waits for a state that other goroutines bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
