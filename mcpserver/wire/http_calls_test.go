package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

func cancelOf(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
}

// A call that its session cancels gets no answer, however soon the cancellation follows.
func TestHTTPCancel(t *testing.T) {
	p, b := newHTTPPeer(t, nil)
	session := p.open()
	for i := range 200 {
		// The float nearest to the id is that of its neighbour.
		id := fmt.Sprint(9007199254740993 + 2*i)
		answer := make(chan string, 1)
		go func() {
			_, text := p.post(toolCall(id, "block", ""), "Mcp-Session-Id", session)
			answer <- text
		}()
		if got := await(t, b.begun); got != id {
			t.Fatalf("call %s began, want %s", got, id)
		}
		if i == 0 {
			if status, _ := p.post(cancelOf(fmt.Sprint(9007199254740992)), "Mcp-Session-Id", session); status != 202 {
				t.Fatalf("cancellation = %d", status)
			}
			if status, _ := p.post(cancelOf(id), "Mcp-Session-Id", p.open()); status != 202 {
				t.Fatalf("cancellation = %d", status)
			}
			select {
			case cause := <-b.cause:
				t.Fatalf("another id, or another session, cancelled the call: %v", cause)
			default:
			}
		}
		p.post(cancelOf(id), "Mcp-Session-Id", session)
		if cause := await(t, b.cause); !errors.Is(cause, ErrCanceled) {
			t.Fatalf("cause = %v, want ErrCanceled", cause)
		}
		if text := await(t, answer); strings.Contains(text, "jsonrpc") {
			t.Fatalf("a cancelled call was answered: %s", text)
		}
	}
}

// In both eras a call ends when its client closes the connection.
func TestHTTPDisconnect(t *testing.T) {
	p, b := newHTTPPeer(t, nil)
	session := p.open()
	for _, tt := range []struct {
		name, body string
		headers    []string
	}{
		{"legacy", toolCall("1", "block", ""), []string{"Mcp-Session-Id", session}},
		{"modern", modernCall("1", "block", ""), modernHeaders("tools/call", "block")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				p.try(ctx, "POST", "/mcp", tt.body, tt.headers...)
				close(ended)
			}()
			await(t, b.begun)
			cancel()
			if cause := await(t, b.cause); !errors.Is(cause, ErrDisconnected) {
				t.Errorf("cause = %v, want ErrDisconnected", cause)
			}
			await(t, ended)
		})
	}
}

// To net/http a client that closed its side after the request has left. It is answered in full or not
// at all, and never told 200 without an answer.
func TestHTTPHalfClosed(t *testing.T) {
	p, b := newHTTPPeer(t, nil)
	session := "Mcp-Session-Id: " + p.open() + "\r\n"
	modern := "Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: "
	for _, tt := range []struct{ name, header, body string }{
		{"legacy, quick", session, toolCall("1", "echo", "")},
		{"legacy, blocked", session, toolCall("2", "block", "")},
		{"legacy, no events", "Accept: application/json\r\n" + session, toolCall("3", "block", "")},
		{"modern, quick", modern + "echo\r\n", modernCall("1", "echo", "")},
		{"modern, blocked", modern + "block\r\n", modernCall("2", "block", "")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 200 {
				text := p.halfClosed(tt.header, tt.body)
				if strings.Contains(tt.name, "blocked") {
					await(t, b.begun)
					await(t, b.cause)
				}
				if text != "" && !strings.Contains(text, `"jsonrpc"`) {
					t.Fatalf("a response without an answer: %q", text)
				}
			}
		})
	}
}

// halfClosed posts a body, closes the sending side and returns what comes back.
func (p *httpPeer) halfClosed(header, body string) string {
	p.t.Helper()
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", header, len(body), body)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		p.t.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// On 2026-07-28 ids of different clients have nothing to do with each other.
func TestHTTPModernCancel(t *testing.T) {
	p, b := newHTTPPeer(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	go p.try(ctx, "POST", "/mcp", modernCall("1", "block", ""), modernHeaders("tools/call", "block")...)
	await(t, b.begun)
	body := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{` + modernMeta + `,"requestId":1}}`
	if status, text := p.post(body, modernHeaders("notifications/cancelled")...); status != 202 {
		t.Fatalf("cancellation = %d %s", status, text)
	}
	if status, _ := p.post(modernCall("1", "echo", ""), modernHeaders("tools/call", "echo")...); status != 200 {
		t.Errorf("a second call of that id = %d", status)
	}
	select {
	case cause := <-b.cause:
		t.Fatalf("cancelled by someone else: %v", cause)
	default:
	}
	cancel()
	await(t, b.cause)
}

func TestHTTPIDInUse(t *testing.T) {
	p, b := newHTTPPeer(t, nil)
	session := p.open()
	ctx, cancel := context.WithCancel(t.Context())
	go p.try(ctx, "POST", "/mcp", toolCall("1", "block", ""), "Mcp-Session-Id", session)
	await(t, b.begun)
	if _, text := p.post(toolCall("1", "echo", ""), "Mcp-Session-Id", session); !strings.Contains(text, "-32600") {
		t.Errorf("the same id again = %s", text)
	}
	if _, text := p.post(toolCall("1", "echo", ""), "Mcp-Session-Id", p.open()); !strings.Contains(text, `"echo"`) {
		t.Errorf("the same id in another session = %s", text)
	}
	cancel()
	await(t, b.cause)
}

// Requests of the server go out on the stream of the call, and the answer finds its way back.
func TestHTTPElicitation(t *testing.T) {
	p, _ := newHTTPPeer(t, nil)
	session := p.open()
	var streams []*events
	var questions []*message
	for i := range 10 {
		stream := p.events(p.do(t.Context(), "POST", "/mcp", toolCall(fmt.Sprint(i), "ask", ""), "Mcp-Session-Id", session))
		m, err := parse([]byte(stream.message()))
		if err != nil || m.method != "elicitation/create" {
			t.Fatalf("question = %s", m.raw)
		}
		streams, questions = append(streams, stream), append(questions, m)
	}
	actions := []string{"accept", "decline", "cancel"}
	other := p.open()
	for i, m := range questions {
		answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":%q,"content":{}}}`, m.id, actions[i%3])
		// From another session it is nobody's.
		p.post(strings.Replace(answer, actions[i%3], actions[(i+1)%3], 1), "Mcp-Session-Id", other)
		p.post(answer, "Mcp-Session-Id", session)
	}
	for i, stream := range streams {
		if got := stream.message(); !strings.Contains(got, fmt.Sprintf(`"text":%q`, actions[i%3])) {
			t.Errorf("answer %d = %s, want %s", i, got, actions[i%3])
		}
	}
	if _, text := p.post(modernCall("1", "ask", ""), modernHeaders("tools/call", "ask")...); !strings.Contains(text, "isError") {
		t.Errorf("elicitation on 2026-07-28 = %s", text)
	}
}

// An answer that can be read as another is none.
func TestHTTPElicitationAmbiguous(t *testing.T) {
	p, _ := newHTTPPeer(t, nil)
	session := p.open()
	for i, result := range []string{`{"action":"decline","Action":"accept"}`, `{"Action":"accept"}`, `{"action":"accept","action":"decline"}`,
		`{"action":"accept","content":{"a":1,"A":2}}`} {
		stream := p.events(p.do(t.Context(), "POST", "/mcp", toolCall(fmt.Sprint(i), "ask", ""), "Mcp-Session-Id", session))
		m, err := parse([]byte(stream.message()))
		if err != nil {
			t.Fatal(err)
		}
		p.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.id, result), "Mcp-Session-Id", session)
		if got := stream.message(); strings.Contains(got, `"text":"accept"`) || strings.Contains(got, `"text":"decline"`) {
			t.Errorf("%s is taken for an answer: %s", result, got)
		}
	}
}

func TestHTTPSampling(t *testing.T) {
	p, _ := newHTTPPeer(t, nil)
	if _, text := p.post(toolCall("1", "sample", ""), "Mcp-Session-Id", p.open()); !strings.Contains(text, "isError") {
		t.Errorf("a client without sampling was asked: %s", text)
	}
	response := p.do(t.Context(), "POST", "/mcp", strings.Replace(initialize, `"roots":{}`, `"sampling":{}`, 1))
	session := response.Header.Get("Mcp-Session-Id")
	stream := p.events(p.do(t.Context(), "POST", "/mcp", toolCall("1", "sample", ""), "Mcp-Session-Id", session))
	m, err := parse([]byte(stream.message()))
	if err != nil || m.method != "sampling/createMessage" {
		t.Fatalf("question = %s", m.raw)
	}
	p.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"role":"assistant","model":"m","content":{"type":"text","text":"hi"}}}`, m.id), "Mcp-Session-Id", session)
	if got := stream.message(); !strings.Contains(got, `"text":"hi"`) {
		t.Errorf("answer = %s", got)
	}
}

func TestHTTPLimits(t *testing.T) {
	p, b := newHTTPPeer(t, func(o *HTTPOptions) {
		o.MaxInFlight, o.Shared, o.Patience = 4, true, time.Nanosecond
		o.Authenticate = func(_ http.ResponseWriter, r *http.Request) (context.Context, string, bool) {
			return r.Context(), r.Header.Get("X-Test-Principal"), true
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	block := func(principal string) {
		go p.try(ctx, "POST", "/mcp", modernCall("1", "block", ""), append(modernHeaders("tools/call", "block"), "X-Test-Principal", principal)...)
		await(t, b.begun)
	}
	ask := func(principal string) *http.Response {
		response := p.do(t.Context(), "POST", "/mcp", modernCall("1", "echo", ""), append(modernHeaders("tools/call", "echo"), "X-Test-Principal", principal)...)
		response.Body.Close()
		return response
	}
	block("a")
	block("a")
	if response := ask("a"); response.StatusCode != 503 || response.Header.Get("Retry-After") == "" {
		t.Errorf("beyond its share a gets %s, Retry-After %q", response.Status, response.Header.Get("Retry-After"))
	}
	if response := ask("b"); response.StatusCode != 200 {
		t.Errorf("b gets %s while a has its share", response.Status)
	}
	block("b")
	block("b")
	if response := ask("c"); response.StatusCode != 503 {
		t.Errorf("c gets %s when all places are taken", response.Status)
	}
	cancel()
	for range 4 {
		await(t, b.cause)
	}
	eventually(t, "places are given back", func() bool { return ask("c").StatusCode == 200 })
}

func TestHTTPRate(t *testing.T) {
	p, _ := newHTTPPeer(t, func(o *HTTPOptions) {
		o.Rate, o.Burst = 1.0/3600, 3
		o.Authenticate = func(_ http.ResponseWriter, r *http.Request) (context.Context, string, bool) {
			return r.Context(), r.Header.Get("X-Test-Principal"), true
		}
	})
	for i := range 5 {
		response := p.do(t.Context(), "POST", "/mcp", modernCall("1", "echo", ""), append(modernHeaders("tools/call", "echo"), "X-Test-Principal", "a")...)
		response.Body.Close()
		if want := i < 3; (response.StatusCode == 200) != want {
			t.Errorf("request %d = %s", i, response.Status)
		}
		// Some seconds may have passed since the first.
		if wait, err := strconv.Atoi(response.Header.Get("Retry-After")); response.StatusCode == 429 && (err != nil || wait < 3500 || wait > 3600) {
			t.Errorf("Retry-After = %q", response.Header.Get("Retry-After"))
		}
	}
	if status, _ := p.post(modernCall("1", "echo", ""), append(modernHeaders("tools/call", "echo"), "X-Test-Principal", "b")...); status != 200 {
		t.Errorf("another principal gets %d", status)
	}
}

// Whoever is not let in learns nothing and uses nothing.
func TestHTTPAuthenticate(t *testing.T) {
	p, _ := newHTTPPeer(t, func(o *HTTPOptions) {
		o.Shared = true
		o.Authenticate = func(w http.ResponseWriter, r *http.Request) (context.Context, string, bool) {
			name := r.Header.Get("X-Test-Principal")
			if name == "" {
				http.Error(w, "who?", http.StatusUnauthorized)
			}
			return r.Context(), name, name != ""
		}
	})
	session := p.open("X-Test-Principal", "a")
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for _, tt := range []struct {
		verb, principal string
		want            int
	}{
		{"POST", "", 401}, {"GET", "", 401}, {"DELETE", "", 401},
		{"POST", "b", 404}, {"GET", "b", 404}, {"DELETE", "b", 404},
		{"POST", "a", 200}, {"DELETE", "a", 204},
	} {
		response := p.do(t.Context(), tt.verb, "/mcp", ping, "Mcp-Session-Id", session, "X-Test-Principal", tt.principal)
		response.Body.Close()
		if response.StatusCode != tt.want {
			t.Errorf("%s as %q = %s, want %d", tt.verb, tt.principal, response.Status, tt.want)
		}
	}
	if response := p.do(t.Context(), "GET", "/healthz", ""); response.StatusCode != 200 {
		t.Errorf("/healthz = %s", response.Status)
	}
}

// A call beyond the bound waits until another has ended, those that wait longest first. One that its client
// cancels meanwhile is never begun.
func TestHTTPCallsWait(t *testing.T) {
	p, b := newHTTPPeer(t, func(o *HTTPOptions) { o.MaxInFlight = 1 })
	begin := func(id string) (answer chan int, cancel context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		answer = make(chan int, 1)
		go func() {
			response, err := p.try(ctx, "POST", "/mcp", modernCall(id, "block", ""), modernHeaders("tools/call", "block")...)
			if err == nil {
				answer <- response.StatusCode
			}
		}()
		return answer, cancel
	}
	waiting := func(n int) {
		t.Helper()
		eventually(t, "a call waits", func() bool { return p.h.calls.State().Waiting == n })
	}
	_, end := begin("1")
	if got := await(t, b.begun); got != "1" {
		t.Fatalf("call %s began", got)
	}
	_, leave := begin("2")
	waiting(1)
	_, end3 := begin("3")
	waiting(2)
	leave()
	waiting(1)
	end()
	if got := await(t, b.begun); got != "3" {
		t.Errorf("call %s began, want the one that still waits", got)
	}
	end3()
	eventually(t, "all room is given back", func() bool { return p.h.calls.Held("") == 0 })
}

// A subscription that its client leaves releases its stream, and no longer stands for a client of its principal.
func TestHTTPListenIsReleased(t *testing.T) {
	p, _ := newHTTPPeer(t, nil)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	listen := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{` + modernMeta +
		`,"notifications":{"toolsListChanged":true}}}`
	stream := p.events(p.do(ctx, http.MethodPost, "/mcp", listen, modernHeaders("subscriptions/listen")...))
	if got := stream.message(); !strings.Contains(got, "acknowledged") {
		t.Fatalf("subscription = %s", got)
	}
	if streams, listens := p.h.streams.Held(""), p.h.listens.Held(""); streams != 1 || listens != 1 {
		t.Fatalf("held: %d streams, %d subscriptions", streams, listens)
	}
	leave()
	eventually(t, "both are released", func() bool {
		return p.h.streams.Held("") == 0 && p.h.listens.Held("") == 0
	})
}
