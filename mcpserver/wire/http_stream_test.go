package wire

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/e2e/nightly"
)

// Sessions hear of list changes on their GET stream, also of those from before it was open, and
// subscriptions of those they asked for.
func TestHTTPListChanged(t *testing.T) {
	p, _ := newHTTPPeer(t, func(o *HTTPOptions) { o.Drain = 4 * patience })
	session := p.open()
	change := func(method string) { p.server.Announce(method) }
	change(mcp.MethodNotificationToolsListChanged)
	first := p.events(p.do(t.Context(), "GET", "/mcp", "", "Mcp-Session-Id", session))
	if got, want := first.message(), `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`; got != want {
		t.Errorf("first = %s, want %s", got, want)
	}
	// A second stream takes the place of the first, which a client may have lost.
	second := p.events(p.do(t.Context(), "GET", "/mcp", "", "Mcp-Session-Id", session))
	if got := first.message(); got != "" {
		t.Errorf("the stream that was replaced goes on: %s", got)
	}
	listen := `{"jsonrpc":"2.0","id":9007199254740993,"method":"subscriptions/listen","params":{` + modernMeta +
		`,"notifications":{"resourcesListChanged":true}}}`
	headers := modernHeaders("subscriptions/listen")
	if status, text := p.post(listen, append(headers, "Accept", "application/json")...); status != http.StatusNotAcceptable {
		t.Errorf("a subscription that its client cannot read = %d %s", status, text)
	}
	modern := p.events(p.do(t.Context(), "POST", "/mcp", listen, headers...))
	if got := modern.message(); !strings.Contains(got, "acknowledged") || !strings.Contains(got, `"io.modelcontextprotocol/subscriptionId":9007199254740993`) {
		t.Fatalf("acknowledgement = %s", got)
	}
	change(mcp.MethodNotificationToolsListChanged)
	change(mcp.MethodNotificationResourcesListChanged)
	for _, want := range []string{"tools", "resources"} {
		if got := second.message(); !strings.Contains(got, "notifications/"+want+"/list_changed") {
			t.Errorf("session hears %s, want %s", got, want)
		}
	}
	if got := modern.message(); !strings.Contains(got, "notifications/resources/list_changed") || !strings.Contains(got, `subscriptionId":9007199254740993`) {
		t.Errorf("subscription hears %s", got)
	}
	p.end()
	if got := second.message(); got != "" {
		t.Errorf("at the end the session hears %s", got)
	}
	if got := modern.message(); !strings.Contains(got, `"notifications/cancelled"`) || !strings.Contains(got, `"requestId":9007199254740993`) {
		t.Errorf("the end of the subscription is announced with %s", got)
	}
	if got := modern.message(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":9007199254740993,"result":`) {
		t.Errorf("at the end the subscription gets %s", got)
	}
}

func TestHTTPKeepAlive(t *testing.T) {
	p, b := newHTTPPeer(t, func(o *HTTPOptions) { o.KeepAlive = time.Millisecond })
	session := p.open()
	for name, response := range map[string]*http.Response{
		"GET":  p.do(t.Context(), "GET", "/mcp", "", "Mcp-Session-Id", session),
		"call": p.do(t.Context(), "POST", "/mcp", toolCall("1", "block", ""), "Mcp-Session-Id", session),
	} {
		stream := p.events(response)
		for range 5 {
			if got := stream.next(); !strings.HasPrefix(got, ":") {
				t.Fatalf("%s carries %q, want a comment", name, got)
			}
		}
	}
	p.post(cancelOf("1"), "Mcp-Session-Id", session)
	await(t, b.cause)
}

// Many sessions that nobody ends take the places of the oldest, and of no other principal's.
func TestHTTPSessionsBounded(t *testing.T) {
	var mu sync.Mutex
	ended := map[string]bool{}
	p, _ := newHTTPPeer(t, func(o *HTTPOptions) {
		o.MaxSessions, o.Shared = 64, true
		o.SessionEnded = func(id string) {
			mu.Lock()
			defer mu.Unlock()
			ended[id] = true
		}
		o.Authenticate = func(_ http.ResponseWriter, r *http.Request) (context.Context, string, bool) {
			return r.Context(), r.Header.Get("X-Test-Principal"), true
		}
	})
	other := p.open("X-Test-Principal", "b")
	busy := p.open("X-Test-Principal", "a")
	stream := p.events(p.do(t.Context(), "GET", "/mcp", "", "Mcp-Session-Id", busy, "X-Test-Principal", "a"))
	stream.next()
	var last string
	const n = 1000
	for range n {
		last = p.open("X-Test-Principal", "a")
	}
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for name, session := range map[string]string{"a": last, "b": other} {
		if status, _ := p.post(ping, "Mcp-Session-Id", session, "X-Test-Principal", name); status != 200 {
			t.Errorf("the session of %s = %d", name, status)
		}
	}
	if status, _ := p.post(ping, "Mcp-Session-Id", busy, "X-Test-Principal", "a"); status != 200 {
		t.Errorf("a session in use made room: %d", status)
	}
	if got, want := len(p.h.sessions.byID), 32+1; got != want {
		t.Errorf("%d sessions are kept, want %d", got, want)
	}
	p.h.audience.mu.Lock()
	announced := len(p.h.audience.all)
	p.h.audience.mu.Unlock()
	if announced != 32+1 {
		t.Errorf("%d are told of changes", announced)
	}
	mu.Lock()
	defer mu.Unlock()
	if got, want := len(ended), n+2-32-1; got != want {
		t.Errorf("%d sessions ended, want %d", got, want)
	}
}

// Principals who fill the table do not keep others out, and give up no more than their share.
func TestHTTPSessionsOfOthers(t *testing.T) {
	p, _ := newHTTPPeer(t, nil)
	table := newSessionTable(newQuota(8, 2), func(*httpSession) {})
	open := func(principal string) bool {
		s := p.h.newSession(t.Context(), principal, 1)
		s.id = rand.Text()
		return table.add(s)
	}
	for range 4 {
		for _, principal := range []string{"a", "b"} {
			if !open(principal) {
				t.Fatalf("%s has no session", principal)
			}
		}
	}
	for range 9 {
		if !open("c") {
			t.Fatal("c is locked out")
		}
	}
	a, b, c := table.room.Held("a"), table.room.Held("b"), table.room.Held("c")
	if a+b+c != 8 || min(a, b) < c {
		t.Errorf("a, b and c have %d, %d and %d sessions", a, b, c)
	}
}

func TestHTTPIdleSessions(t *testing.T) {
	p, _ := newHTTPPeer(t, nil)
	table := newSessionTable(newQuota(10, 1), func(*httpSession) {})
	used, idle, busy := p.h.newSession(t.Context(), "", 1), p.h.newSession(t.Context(), "", 1), p.h.newSession(t.Context(), "", 1)
	for _, s := range []*httpSession{used, idle, busy} {
		s.id = rand.Text()
		table.add(s)
	}
	table.enter(busy.id, "")
	before := time.Now()
	table.leave(table.enter(used.id, ""))
	table.end(func(s *httpSession) bool { return s.unused(before) })
	for _, tt := range []struct {
		name string
		s    *httpSession
		want bool
	}{{"used", used, true}, {"idle", idle, false}, {"busy", busy, true}} {
		if got := table.enter(tt.s.id, "") != nil; got != tt.want {
			t.Errorf("the %s session is there = %v", tt.name, got)
		}
	}
}

// At the end, what must not outlive the clients ends at once, other calls when they are done.
func TestHTTPShutdown(t *testing.T) {
	p, b := newHTTPPeer(t, func(o *HTTPOptions) { o.Drain = 4 * patience })
	stream := p.events(p.do(t.Context(), "GET", "/mcp", "", "Mcp-Session-Id", p.open()))
	ctx, leave := context.WithCancel(t.Context())
	go p.try(ctx, "POST", "/mcp", modernCall("1", "block", ""), modernHeaders("tools/call", "block")...)
	await(t, b.begun)
	answer := make(chan string, 1)
	go func() {
		_, text := p.post(modernCall("2", "block", `"kill":"yes"`), modernHeaders("tools/call", "block")...)
		answer <- text
	}()
	await(t, b.begun)
	p.stop()
	if cause := await(t, b.cause); !errors.Is(cause, ErrDisconnected) {
		t.Errorf("cause = %v", cause)
	}
	if text := await(t, answer); !strings.Contains(text, "too late") {
		t.Errorf("the call that noticed the end is answered %s", text)
	}
	for stream.next() != "" {
	}
	select {
	case cause := <-b.cause:
		t.Errorf("the other call did not get its time: %v", cause)
	default:
	}
	leave()
	await(t, b.cause)
	p.end()
}

// A call that another server has forwarded gets the same time; what is not answered is no success.
func TestHTTPShutdownForwarded(t *testing.T) {
	for name, inTime := range map[string]bool{"in time": true, "too late": false} {
		t.Run(name, func(t *testing.T) {
			p, _ := newHTTPPeer(t, func(o *HTTPOptions) {
				o.Drain = 4 * patience
				if !inTime {
					o.Drain = 100 * time.Millisecond
				}
			})
			begun, finish := make(chan struct{}, 1), make(chan struct{})
			p.server.AddTool(mcp.NewTool("slow"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				begun <- struct{}{}
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-finish:
					return mcp.NewToolResultText("finished"), nil
				}
			})
			others := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.h.ServeForwarded(w, r, "alice") }))
			defer others.Close()
			other := &httpPeer{t: t, addr: others.Listener.Addr().String(), client: others.Client()}
			type answer struct {
				response *http.Response
				err      error
			}
			answered := make(chan answer, 1)
			send := func() {
				response, err := other.try(t.Context(), "POST", "/mcp", modernCall("1", "slow", ""), modernHeaders("tools/call", "slow")...)
				answered <- answer{response, err}
			}
			go send()
			await(t, begun)
			p.stop()
			if !inTime {
				if a := await(t, answered); a.err == nil {
					t.Errorf("a call that was ended is answered with status %d", a.response.StatusCode)
				}
				return
			}
			for { // until the server lets nobody in
				conn, err := net.Dial("tcp", p.addr)
				if err != nil {
					break
				}
				conn.Close()
			}
			go send()
			if a := await(t, answered); a.err != nil || a.response.StatusCode != http.StatusMisdirectedRequest {
				t.Errorf("a call after the end was asked for = %+v, %v", a.response, a.err)
			}
			close(finish)
			a := await(t, answered)
			if a.err != nil {
				t.Fatal(a.err)
			}
			defer a.response.Body.Close()
			if text, err := io.ReadAll(a.response.Body); err != nil || !strings.Contains(string(text), "finished") {
				t.Errorf("answer = %s, %v", text, err)
			}
			p.end()
		})
	}
}

// A call that does not end in time is ended.
func TestHTTPShutdownAborts(t *testing.T) {
	p, b := newHTTPPeer(t, func(o *HTTPOptions) { o.Drain = 100 * time.Millisecond })
	failed := make(chan error, 1)
	go func() {
		_, err := p.try(context.Background(), "POST", "/mcp", modernCall("1", "block", ""), modernHeaders("tools/call", "block")...)
		failed <- err
	}()
	await(t, b.begun)
	p.end()
	if await(t, failed) == nil {
		t.Error("the client takes the call for answered")
	}
	if cause := await(t, b.cause); !errors.Is(cause, ErrDisconnected) {
		t.Errorf("cause = %v", cause)
	}
}

// Connections that send rubbish, stop in the middle or never begin leave the server whole.
func TestHTTPBrokenConnections(t *testing.T) {
	p, _ := newHTTPPeer(t, nil)
	session := p.open()
	head := "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Session-Id: " + session + "\r\n"
	body := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for name, sent := range map[string]string{
		"nothing":            "",
		"garbage":            "\x00\xff\x16\x03\x01 rubbish\r\n\r\n",
		"half a header":      "POST /mcp HTTP/1.1\r\nHost: loc",
		"half a body":        head + "Content-Length: 100\r\n\r\n" + body[:10],
		"chunk that lies":    head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{",
		"two lengths":        head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
		"both framings":      head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"header too long":    head + "X-Long: " + strings.Repeat("x", 100_000) + "\r\n\r\n",
		"body then closed":   head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body),
		"two hosts":          strings.Replace(head, "Host:", "Host: evil\r\nHost:", 1) + "Content-Length: 0\r\n\r\n",
		"no host":            "POST /mcp HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
		"old version":        "POST /mcp HTTP/1.0\r\nContent-Length: 0\r\n\r\n",
		"absolute, evil":     "POST http://evil.example.com/mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
		"path that climbs":   "GET /x/../mcp HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"connection upgrade": head + "Connection: upgrade, Mcp-Session-Id\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", p.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(patience))
			io.WriteString(conn, sent)
			conn.(*net.TCPConn).CloseWrite()
			answer, _ := io.ReadAll(conn)
			if strings.Contains(string(answer), `"result"`) && name != "body then closed" {
				t.Errorf("answered %s", answer)
			}
			if status, _ := p.post(body, "Mcp-Session-Id", session); status != 200 {
				t.Errorf("afterwards the server answers %d", status)
			}
		})
	}
}

// Many clients at once are all answered, and leave nothing behind.
func TestHTTPManyClients(t *testing.T) {
	p, _ := newHTTPPeer(t, nil)
	before := runtime.NumGoroutine()
	many, calls := nightly.Size(24, 64), nightly.Size(8, 20)
	var clients sync.WaitGroup
	for i := range many {
		clients.Go(func() {
			session := p.open()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream := p.events(p.do(ctx, "GET", "/mcp", "", "Mcp-Session-Id", session))
			stream.next()
			for n := range calls {
				id := fmt.Sprint(n)
				if _, text := p.post(toolCall(id, "echo", fmt.Sprintf(`"text":"%d-%d"`, i, n)), "Mcp-Session-Id", session); !strings.Contains(text, fmt.Sprintf(`"%d-%d"`, i, n)) {
					t.Errorf("client %d got %s", i, text)
				}
				if _, text := p.post(modernCall(id, "echo", fmt.Sprintf(`"text":"%d-%d"`, i, n)), modernHeaders("tools/call", "echo")...); !strings.Contains(text, fmt.Sprintf(`"%d-%d"`, i, n)) {
					t.Errorf("modern client %d got %s", i, text)
				}
			}
			if i%2 == 0 {
				p.do(ctx, "DELETE", "/mcp", "", "Mcp-Session-Id", session).Body.Close()
			}
		})
	}
	clients.Wait()
	p.client.CloseIdleConnections()
	eventually(t, "goroutines end", func() bool {
		p.client.CloseIdleConnections()
		return runtime.NumGoroutine() <= before+5
	})
	if got := len(p.h.sessions.byID); got != many/2 {
		t.Errorf("%d sessions are left, want %d", got, many/2)
	}
}

// A client that does not read what it is sent is given up, and its call with it.
func TestHTTPStalledReader(t *testing.T) {
	p, _ := newHTTPPeer(t, func(o *HTTPOptions) { o.WriteTimeout = 100 * time.Millisecond })
	begun := make(chan struct{}, 1)
	p.server.AddTool(mcp.NewTool("endless"), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		begun <- struct{}{}
		for {
			if err := Notify(ctx, "notifications/progress", map[string]any{"progress": 1}); err != nil {
				return nil, err
			}
		}
	})
	session := p.open()
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetReadBuffer(1)
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"` + strings.Repeat("x", 1000) + `"},"name":"endless"}}`
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", session, len(body), body)
	await(t, begun)
	eventually(t, "the call is given up", func() bool { return p.taken() == 0 })
}

// A change that is no news to a client is kept from it, in both eras.
func TestHTTPChangesKeptFromClient(t *testing.T) {
	p, _ := newHTTPPeer(t, nil)
	p.server.Changes = func(context.Context) func(string) bool {
		return func(method string) bool { return method == mcp.MethodNotificationPromptsListChanged }
	}
	old := p.events(p.do(t.Context(), http.MethodGet, "/mcp", "", "Mcp-Session-Id", p.open(), "Accept", "text/event-stream"))
	if got := old.next(); got != ": open" {
		t.Fatalf("stream = %s", got)
	}
	listen := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{` + modernMeta + `,"notifications":{"toolsListChanged":true,"promptsListChanged":true}}}`
	modern := p.events(p.do(t.Context(), http.MethodPost, "/mcp", listen, modernHeaders("subscriptions/listen")...))
	if got := modern.message(); !strings.Contains(got, "acknowledged") {
		t.Fatalf("subscription = %s", got)
	}
	p.server.Announce(mcp.MethodNotificationToolsListChanged)
	p.server.Announce(mcp.MethodNotificationPromptsListChanged)
	for era, stream := range map[string]*events{"legacy": old, "modern": modern} {
		if got := stream.message(); !strings.Contains(got, mcp.MethodNotificationPromptsListChanged) {
			t.Errorf("%s: the first notification is %s", era, got)
		}
	}
}
