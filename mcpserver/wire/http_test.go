package wire

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHTTPBothEras(t *testing.T) {
	p, _ := newHTTPPeer(t, nil)
	session := p.open()
	legacy := []string{"Mcp-Session-Id", session, "Mcp-Protocol-Version", "2025-11-25"}
	for _, tt := range []struct {
		name, body string
		headers    []string
		status     int
		want       string
	}{
		{"library method", `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, legacy, 200, `{"jsonrpc":"2.0","id":9007199254740993,"result":{}}`},
		{"tool", toolCall("1", "echo", ""), legacy, 200, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"echo"}]}}`},
		{"own method", `{"jsonrpc":"2.0","id":"a","method":"skills/list"}`, legacy, 200, `{"jsonrpc":"2.0","id":"a","result":{"items":["a"]}}`},
		{"override", `{"jsonrpc":"2.0","id":7,"method":"resources/list"}`, legacy, 200, `{"jsonrpc":"2.0","id":7,"result":{"items":["resources/list","7"]}}`},
		{"own error", `{"jsonrpc":"2.0","id":7,"method":"skills/get"}`, legacy, 200, `{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"unknown skill","data":false}}`},
		{"unknown method", `{"jsonrpc":"2.0","id":7,"method":"x/y"}`, legacy, 200, `{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"Method x/y not found"}}`},
		{"chosen error", toolCall("1", "chosen", ""), legacy, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"no such thing","data":{"uri":"skill://x"}}}`},
		{"private error", toolCall("1", "fail", ""), legacy, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal error"}}`},
		{"panic", toolCall("1", "panic", ""), legacy, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal error"}}`},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, legacy, 202, ``},
		{"response to nothing", `{"jsonrpc":"2.0","id":1,"result":{}}`, legacy, 202, ``},

		{"modern tool", modernCall("1", "who", ""), modernHeaders("tools/call", "who"), 200, `modern 2026-07-28 modern=true`},
		{"modern own method", `{"jsonrpc":"2.0","id":1,"method":"skills/list","params":{` + modernMeta + `}}`, modernHeaders("skills/list"), 200, `"resultType":"complete"`},
		{"modern override", `{"jsonrpc":"2.0","id":1,"method":"resources/list","params":{` + modernMeta + `}}`, modernHeaders("resources/list"), 200, `"items":["resources/list","1"]`},
		{"modern unknown method", `{"jsonrpc":"2.0","id":1,"method":"x/y","params":{` + modernMeta + `}}`, modernHeaders("x/y"), 404, `"code":-32601`},
		{"modern own error", `{"jsonrpc":"2.0","id":1,"method":"skills/get","params":{` + modernMeta + `}}`, modernHeaders("skills/get"), 400, `"data":true`},
		{"modern private error", modernCall("1", "fail", ""), modernHeaders("tools/call", "fail"), 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal error"}}`},
		{"modern notification", `{"jsonrpc":"2.0","method":"notifications/x","params":{` + modernMeta + `}}`, modernHeaders("notifications/x"), 202, ``},
		{"modern response", `{"jsonrpc":"2.0","id":1,"result":{"a":1}}`, modernHeaders("x"), 400, `"code":-32600`},
		{"modern method header missing", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + modernMeta + `}}`, []string{"Mcp-Protocol-Version", "2026-07-28"}, 400, `-32020`},
		{"modern override, method header missing", `{"jsonrpc":"2.0","id":1,"method":"resources/list","params":{` + modernMeta + `}}`, []string{"Mcp-Protocol-Version", "2026-07-28"}, 400, `-32020`},
		{"modern override, method header wrong", `{"jsonrpc":"2.0","id":1,"method":"resources/list","params":{` + modernMeta + `}}`, modernHeaders("tools/list"), 400, `-32020`},
		{"modern override, name header missing", `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{` + modernMeta + `,"name":"x"}}`, modernHeaders("prompts/get"), 400, `-32020`},
		{"modern override, name header right", `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{` + modernMeta + `,"name":"x"}}`, modernHeaders("prompts/get", "x"), 200, `"items":["p"]`},
		{"modern task, name header missing", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{` + modernMeta + `,"taskId":"x"}}`, modernHeaders("tasks/get"), 400, `-32020`},
		{"modern task, name header wrong", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{` + modernMeta + `,"taskId":"x"}}`, modernHeaders("tasks/get", "y"), 400, `-32020`},
		{"modern task, name header right", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{` + modernMeta + `,"taskId":"x"}}`, modernHeaders("tasks/get", "x"), 200, `"items":["t"]`},
		{"modern task, no such method", `{"jsonrpc":"2.0","id":1,"method":"tasks/x","params":{` + modernMeta + `}}`, modernHeaders("tasks/x"), 404, `-32601`},
		{"modern client that could be asked", strings.Replace(modernCall("1", "ask", ""), `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{}}`, 1), modernHeaders("tools/call", "ask"), 200, ErrNotAsked.Error()},
		{"modern version header missing", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + modernMeta + `}}`, nil, 400, `-32020`},
		{"modern version unknown", strings.ReplaceAll(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{`+modernMeta+`}}`, "2026-07-28", "2031-01-01"), []string{"Mcp-Protocol-Version", "2031-01-01", "Mcp-Method", "ping"}, 400, `-32022`},
		{"modern initialize", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{` + modernMeta + `}}`, modernHeaders("initialize"), 404, `-32601`},
		{"modern resumption", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + modernMeta + `}}`, append(modernHeaders("ping"), "Last-Event-ID", "1"), 400, `-32020`},

		{"large initialize", strings.Replace(initialize, `"name":"old"`, `"name":"`+strings.Repeat("x", maxHello)+`"`, 1), nil, 200, `-32602`},
		{"a client that takes no stream is not asked", toolCall("1", "ask", ""), append(legacy, "Accept", "application/json"), 200, ErrNotAsked.Error()},
		{"no session", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, nil, 400, ``},
		{"unknown session", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, []string{"Mcp-Session-Id", "x"}, 404, ``},
		{"unknown session, notification", `{"jsonrpc":"2.0","method":"notifications/x"}`, []string{"Mcp-Session-Id", "x"}, 404, ``},
		{"unknown session, response", `{"jsonrpc":"2.0","id":1,"result":{"a":1}}`, []string{"Mcp-Session-Id", "x"}, 404, ``},
		{"unknown version", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, []string{"Mcp-Session-Id", session, "Mcp-Protocol-Version", "1999-01-01"}, 400, ``},
		{"batch", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, legacy, 400, `-32600`},
		{"junk", `{`, legacy, 400, `-32700`},
		{"empty", ``, legacy, 400, `-32700`},
		{"key twice", `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, legacy, 400, `-32600`},
		{"other content", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, append([]string{"Content-Type", "text/plain"}, legacy...), 415, ``},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, got := p.post(tt.body, tt.headers...)
			if status != tt.status || !strings.Contains(got, tt.want) || strings.HasPrefix(tt.want, `{"jsonrpc`) && got != tt.want {
				t.Errorf("answer = %d %s, want %d %s", status, got, tt.status, tt.want)
			}
			if strings.Contains(got, "/home/secret") {
				t.Error("an inner error reached the client")
			}
		})
	}
}

// Requests that something before the server may understand otherwise than the server.
func TestHTTPAmbiguous(t *testing.T) {
	p, _ := newHTTPPeer(t, nil)
	session := p.open()
	ping, modern := `{"jsonrpc":"2.0","id":1,"method":"ping"}`, modernCall("1", "echo", "")
	for _, tt := range []struct {
		name, body string
		headers    []string
		status     int
	}{
		{"method", modern, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Name", "echo", "Mcp-Method", "tools/call\ntools/list"}, 400},
		{"name", modern, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Name", "echo\nwho", "Mcp-Method", "tools/call"}, 400},
		{"name, one empty", modern, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Name", "echo\n", "Mcp-Method", "tools/call"}, 400},
		{"version", modern, []string{"Mcp-Protocol-Version", "2026-07-28\n2025-11-25", "Mcp-Name", "echo", "Mcp-Method", "tools/call"}, 400},
		{"session", ping, []string{"Mcp-Session-Id", session + "\nx"}, 400},
		{"type", ping, []string{"Mcp-Session-Id", session, "Content-Type", "application/json\ntext/plain"}, 400},
		{"the same twice", modern, []string{"Mcp-Protocol-Version", "2026-07-28\n2026-07-28", "Mcp-Name", "echo\necho", "Mcp-Method", "tools/call\ntools/call"}, 200},
		{"compressed", ping, []string{"Mcp-Session-Id", session, "Content-Encoding", "gzip"}, 415},
		{"not compressed", ping, []string{"Mcp-Session-Id", session, "Content-Encoding", "Identity"}, 200},
		{"charset", ping, []string{"Mcp-Session-Id", session, "Content-Type", "application/json; charset=utf-16"}, 415},
		{"charset, empty", ping, []string{"Mcp-Session-Id", session, "Content-Type", `application/json; charset=""`}, 415},
		{"UTF-8", ping, []string{"Mcp-Session-Id", session, "Content-Type", `Application/JSON; Charset="UTF-8"`}, 200},
		{"params, modern", strings.Replace(modern, `"name":"echo"`, `"Name":"who","name":"echo"`, 1), modernHeaders("tools/call", "echo"), 400},
		{"params, modern, spelt otherwise", strings.Replace(modern, `"name":"echo"`, `"NAME":"echo"`, 1), modernHeaders("tools/call", "echo"), 400},
	} {
		if status, got := p.post(tt.body, tt.headers...); status != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.name, status, got, tt.status)
		}
	}
	want := `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"params: duplicate key`
	if status, got := p.post(strings.Replace(toolCall("1", "echo", ""), `"name":`, `"Name":"who","name":`, 1), "Mcp-Session-Id", session); status != 200 || !strings.HasPrefix(got, want) {
		t.Errorf("a key twice in params: %d %s", status, got)
	}
	if _, err := p.try(t.Context(), http.MethodDelete, "/mcp", "", "Mcp-Session-Id", session+"\nx"); err != nil {
		t.Error(err)
	}
	if status, got := p.post(ping, "Mcp-Session-Id", session); status != 200 {
		t.Errorf("an ambiguous DELETE ended the session: %d %s", status, got)
	}
	for _, version := range []string{"2025-03-26", "2024-11-05", ""} {
		_, got := p.post(strings.Replace(initialize, "2025-11-25", version, 1))
		if !strings.Contains(got, `"protocolVersion":"2025-11-25"`) {
			t.Errorf("initialize with %q: %s", version, got)
		}
	}
}

// Of every verb and path, what a web page could send is refused before anything else.
func TestHTTPGuard(t *testing.T) {
	p, _ := newHTTPPeer(t, func(o *HTTPOptions) {
		o.Hosts, o.Origins = []string{"skills.example.com", "other.example.com:8443"}, []string{"https://app.example.com"}
	})
	session := p.open()
	for _, tt := range []struct {
		host, origin string
		refused      bool
	}{
		{"", "", false},
		{"localhost:99", "", false},
		{"[::1]:99", "", false},
		{"LOCALHOST", "", false},
		{"skills.example.com", "", false},
		{"Skills.Example.com:443", "", false},
		{"other.example.com:8443", "", false},
		{"other.example.com", "", true},
		{"evil.example.com", "", true},
		{"localhost.evil.example.com", "", true},
		{"127.0.0.1.evil.example.com:80", "", true},
		{"10.0.0.1", "", true},
		{"", "http://localhost:6274", false},
		{"", "http://127.0.0.1:6274", false},
		{"skills.example.com", "http://localhost:6274", true},
		{"", "https://app.example.com", false},
		{"", "https://app.example.com:8443", true},
		{"", "http://app.example.com", true},
		{"", "https://evil.example.com", true},
		{"", "http://localhost.evil.example.com", true},
		{"", "http://localhost@evil.example.com", true},
		{"", "null", true},
		{"", "https://app.example.com\nhttps://evil.example.com", true},
		{"", "", false},
	} {
		headers := []string{"Mcp-Session-Id", session}
		if tt.host != "" {
			headers = append(headers, "Host", tt.host)
		}
		if tt.origin != "" {
			headers = append(headers, "Origin", tt.origin)
		}
		for _, verb := range []string{"POST", "GET", "DELETE", "PUT", "HEAD", "OPTIONS"} {
			for _, path := range []string{"/mcp", "/healthz", "/readyz", "/x"} {
				if path == "/mcp" && (verb == "GET" || verb == "DELETE") && !tt.refused {
					continue // would open a stream, or end the session
				}
				response := p.do(t.Context(), verb, path, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, headers...)
				response.Body.Close()
				if refused := response.StatusCode == http.StatusForbidden; refused != tt.refused {
					t.Errorf("Host %q, Origin %q: %s %s = %s", tt.host, tt.origin, verb, path, response.Status)
				}
			}
		}
	}
	preflight := p.do(t.Context(), "OPTIONS", "/mcp", "", "Origin", "https://app.example.com", "Access-Control-Request-Method", "POST")
	if got := preflight.Header.Get("Access-Control-Allow-Origin"); preflight.StatusCode != 204 || got != "https://app.example.com" {
		t.Errorf("preflight = %s, allowed origin %q", preflight.Status, got)
	}
}

// A refusal is logged with what was refused, on one line, and not with each of many requests.
func TestHTTPGuardLog(t *testing.T) {
	var log strings.Builder
	g, err := newGuard(&HTTPOptions{}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*http.Request{
		{Host: "evil.example.com\nlevel=ERROR"}, {Host: "localhost", Header: http.Header{"Origin": {"https://evil.example.com"}}},
		{Host: strings.Repeat("a", 10_000)},
	} {
		if !g.check(httptest.NewRecorder(), r) {
			t.Errorf("%.100q was let through", r.Host)
		}
	}
	for range 1000 {
		g.check(httptest.NewRecorder(), &http.Request{Host: "x"})
	}
	for _, want := range []string{`host="evil.example.com\\nlevel=ERROR"`, "origin=https://evil.example.com", "--allowed-host", "--allowed-origin"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in %.2000s", want, &log)
		}
	}
	if lines := strings.Count(log.String(), "\n"); lines > 30 || strings.Contains(log.String(), strings.Repeat("a", maxLogged+1)) {
		t.Errorf("%d lines: %.2000s", lines, &log)
	}
}

// A body in chunks whose request may also have a length ends its connection: a proxy in front may have taken
// what follows for another request.
func TestHTTPLengthAndChunks(t *testing.T) {
	p, _ := newHTTPPeer(t, nil)
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const body = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	head := "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Session-Id: " + p.open() + "\r\n"
	plain := fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
	chunks := fmt.Sprintf("%sContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", head, len(body), body)
	if _, err := io.WriteString(conn, plain+chunks+plain); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(conn)
	for _, closes := range []bool{false, true} {
		response, err := http.ReadResponse(answers, nil)
		if err != nil || response.Close != closes {
			t.Fatalf("%+v, %v; want one that closes the connection: %v", response, err, closes)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Fatal(err)
		}
	}
	if response, err := http.ReadResponse(answers, nil); err == nil {
		t.Errorf("what followed the chunks was answered: %+v", response)
	}
}

func TestHTTPGuardOptions(t *testing.T) {
	for _, tt := range []struct{ host, origin string }{
		{"*", ""}, {"", "x"}, {"a/b", ""}, {"h", "https://a/b"}, {"h", "https://a/"}, {"h", "*"}, {"h", "null"}, {"h", "https://u@a"},
	} {
		if _, err := NewHTTP(&testServer().Dispatcher, HTTPOptions{Hosts: []string{tt.host}, Origins: []string{tt.origin}}); err == nil {
			t.Errorf("NewHTTP(%q, %q) has no error", tt.host, tt.origin)
		}
	}
}

func TestHTTPVerbs(t *testing.T) {
	ready := false
	p, _ := newHTTPPeer(t, func(o *HTTPOptions) { o.Ready = func() bool { return ready } })
	get := func(verb, path string, headers ...string) int {
		response := p.do(t.Context(), verb, path, "", headers...)
		response.Body.Close()
		return response.StatusCode
	}
	session := p.open()
	for _, tt := range []struct {
		verb, path string
		headers    []string
		want       int
	}{
		{"GET", "/healthz", nil, 200}, {"GET", "/readyz", nil, 503}, {"POST", "/healthz", nil, 405}, {"GET", "/", nil, 404},
		{"PUT", "/mcp", nil, 405}, {"HEAD", "/mcp", nil, 405}, {"OPTIONS", "/mcp", nil, 405},
		{"GET", "/mcp", nil, 405}, {"DELETE", "/mcp", nil, 400},
		{"GET", "/mcp", []string{"Mcp-Session-Id", "x"}, 404}, {"DELETE", "/mcp", []string{"Mcp-Session-Id", "x"}, 404},
		{"GET", "/mcp", []string{"Mcp-Session-Id", session, "Mcp-Protocol-Version", "2026-07-28"}, 405},
		{"DELETE", "/mcp", []string{"Mcp-Session-Id", session, "Mcp-Protocol-Version", "2026-07-28"}, 405},
		{"GET", "/mcp", []string{"Mcp-Session-Id", session, "Mcp-Protocol-Version", "1999-01-01"}, 400},
		{"GET", "/mcp", []string{"Mcp-Session-Id", session, "Accept", "application/json"}, 406},
		{"DELETE", "/mcp", []string{"Mcp-Session-Id", session}, 204},
		{"DELETE", "/mcp", []string{"Mcp-Session-Id", session}, 404},
	} {
		if got := get(tt.verb, tt.path, tt.headers...); got != tt.want {
			t.Errorf("%s %s %q = %d, want %d", tt.verb, tt.path, tt.headers, got, tt.want)
		}
	}
	if status, _ := p.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id", session); status != 404 {
		t.Errorf("a session that was deleted answers %d", status)
	}
	ready = true
	if got := get("GET", "/readyz"); got != 200 {
		t.Errorf("/readyz = %d when ready", got)
	}
}

// A body of the limit is read, a byte more is not, with and without a length ahead.
func TestHTTPBodyLimit(t *testing.T) {
	const limit = 1000
	p, _ := newHTTPPeer(t, func(o *HTTPOptions) { o.MaxBody = limit })
	session := p.open()
	text := toolCall("1", "echo", `"text":""`)
	for _, tt := range []struct {
		size, status int
		want         string
	}{
		{limit, 200, `"result"`}, {limit + 1, 413, "-32600"}, {8 * limit, 413, "-32600"}, {limit, 200, `"result"`},
	} {
		for name, body := range map[string]func(io.Reader) io.Reader{
			"with a length": func(r io.Reader) io.Reader { return r },
			"chunked":       func(r io.Reader) io.Reader { return struct{ io.Reader }{r} },
		} {
			long := strings.Replace(text, `"text":"`, `"text":"`+strings.Repeat("x", tt.size-len(text)), 1)
			r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+p.addr+"/mcp", body(strings.NewReader(long)))
			if err != nil {
				t.Fatal(err)
			}
			r.Header = http.Header{"Content-Type": {"application/json"}, "Mcp-Session-Id": {session}}
			response, err := p.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil || response.StatusCode != tt.status || !strings.Contains(string(answer), tt.want) {
				t.Errorf("%d bytes %s = %d %.200s %v", tt.size, name, response.StatusCode, answer, err)
			}
		}
	}
}

// Every notification of a call comes, in order, before its answer; the client's own tokens and ids
// come back as they were.
func TestHTTPProgress(t *testing.T) {
	p, _ := newHTTPPeer(t, nil)
	session := p.open()
	const n = 500
	for _, tt := range []struct {
		name    string
		headers []string
		meta    string
	}{
		{"legacy", []string{"Mcp-Session-Id", session}, `"_meta":{"progressToken":9007199254740993}`},
		{"modern", modernHeaders("tools/call", "progress"), strings.TrimSuffix(modernMeta, "}") + `,"progressToken":9007199254740993}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{%s,"name":"progress","arguments":{"n":%d}}}`, tt.meta, n)
			stream := p.events(p.do(t.Context(), "POST", "/mcp", body, tt.headers...))
			for i := range n {
				got := stream.next()
				if !strings.Contains(got, fmt.Sprintf(`"progress":%d,`, i+1)) || !strings.Contains(got, `"progressToken":9007199254740993`) {
					t.Fatalf("message %d = %s", i, got)
				}
			}
			if got := stream.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":9007199254740993,"result":`) {
				t.Errorf("answer = %s", got)
			}
			if got := stream.next(); got != "" {
				t.Errorf("after the answer: %s", got)
			}
		})
	}
}

// A client that reads no event streams gets the answer alone.
func TestHTTPWithoutEvents(t *testing.T) {
	p, _ := newHTTPPeer(t, nil)
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":1},"name":"progress","arguments":{}}}`
	response := p.do(t.Context(), "POST", "/mcp", body, "Mcp-Session-Id", p.open(), "Accept", "application/json")
	data, _ := io.ReadAll(response.Body)
	if response.Header.Get("Content-Type") != "application/json" || !strings.HasPrefix(string(data), `{"jsonrpc":"2.0","id":1,"result":`) {
		t.Errorf("answer = %q %s", response.Header.Get("Content-Type"), data)
	}
}
