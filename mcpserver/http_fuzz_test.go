package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/mcpserver/httpauth"
)

// edge is a whole server on a socket, at which foreign requests arrive.
type edge struct {
	addr    string
	private string // begins the paths of its directories
	token   string // lets in; empty: nobody is asked
	session string // the id of an open protocol session; empty: there is none
}

const edgeToken = "a-token-that-nobody-guesses"

func newEdge(f *testing.F, token string) *edge {
	f.Helper()
	p := newProbe(f, sampleFiles(), probeOptions{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	var o HTTPOptions
	if token != "" {
		file := filepath.Join(f.TempDir(), "tokens")
		line := fmt.Sprintf("alice: %x\n", sha256.Sum256([]byte(token)))
		if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
			f.Fatal(err)
		}
		o.Auth, err = httpauth.New(httpauth.Config{TokenFile: file})
		if err != nil {
			f.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.server.ServeHTTP(ctx, listener, o) }()
	f.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			f.Error(err)
		}
	})
	return &edge{addr: listener.Addr().String(), private: filepath.Dir(p.root), token: token}
}

// edgeRequest is a request but for its Host, its length and its content type. $SESSION and $TOKEN in its headers
// are those that the server accepts.
type edgeRequest struct{ verb, body, version, method, name, accept, session, authorization string }

const bothForms = "application/json, text/event-stream"

func (r edgeRequest) String() string {
	return fmt.Sprintf("%q %.2000q version %q method %q name %q accept %q session %q authorization %q",
		r.verb, r.body, r.version, r.method, r.name, r.accept, r.session, r.authorization)
}

// in puts an id and a token in the place of their names, and takes the ends of lines out.
func (r edgeRequest) in(e *edge) edgeRequest {
	clean := strings.NewReplacer("\r", "", "\n", "", "$SESSION", e.session, "$TOKEN", e.token)
	for _, value := range []*string{&r.verb, &r.version, &r.method, &r.name, &r.accept, &r.session, &r.authorization} {
		*value = clean.Replace(*value)
	}
	return r
}

// send sends a request and returns the response with as much of its body as there is before a stream waits.
func (e *edge) send(t *testing.T, r edgeRequest) (*http.Response, []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", e.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	var raw bytes.Buffer
	fmt.Fprintf(&raw, "%s /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n", r.verb)
	for _, header := range [][2]string{{"MCP-Protocol-Version", r.version}, {"Mcp-Method", r.method}, {"Mcp-Name", r.name},
		{"Accept", r.accept}, {"Mcp-Session-Id", r.session}, {"Authorization", r.authorization}} {
		if header[1] != "" {
			fmt.Fprintf(&raw, "%s: %s\r\n", header[0], header[1])
		}
	}
	fmt.Fprintf(&raw, "Content-Length: %d\r\n\r\n%s", len(r.body), r.body)
	// A connection on which the server has not read all breaks, at times before the answer is read.
	broken := func(err error) bool {
		network, ok := errors.AsType[*net.OpError](err)
		return ok && !network.Timeout()
	}
	if _, err := conn.Write(raw.Bytes()); err != nil && !broken(err) {
		t.Fatalf("%v: %v", r, err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: r.verb})
	if err != nil {
		if !broken(err) {
			t.Fatalf("%v: no response: %v", r, err)
		}
		return nil, nil
	}
	// The body is not closed: that would read a stream to its end.
	if response.Header.Get("Content-Type") != "text/event-stream" {
		body, err := io.ReadAll(response.Body)
		if err != nil {
			if !broken(err) {
				t.Errorf("%v: %s, %.2000q, then %v", r, response.Status, body, err)
			}
			return nil, nil
		}
		return response, body
	}
	asked := messageOf([]byte(r.body))
	var method string
	json.Unmarshal(asked["method"], &method)
	var events []byte
	for lines := bufio.NewReader(response.Body); ; {
		line, err := lines.ReadBytes('\n')
		events = append(events, line...)
		if err == io.EOF {
			return response, events
		}
		if err != nil {
			t.Fatalf("%v: %s, %.2000q, then %v", r, response.Status, events, err)
		}
		if r.verb == http.MethodGet || method == "subscriptions/listen" && bytes.HasPrefix(line, []byte("data:")) {
			return response, events // the stream goes on until somebody ends it
		}
	}
}

// messageOf returns the members of a JSON object, nil if the text is something else.
func messageOf(text []byte) (members map[string]json.RawMessage) {
	if json.Unmarshal(text, &members) != nil {
		return nil
	}
	return members
}

// same reports whether two JSON texts have the same value; false if one is none.
func same(a, b json.RawMessage) bool {
	var values [2]any
	for i, text := range [][]byte{a, b} {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if d.Decode(&values[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// open opens a protocol session if there is none.
func (e *edge) open(t *testing.T) {
	t.Helper()
	if e.session != "" {
		return
	}
	r := edgeRequest{verb: "POST", body: edgeInitialize, accept: bothForms, authorization: "Bearer $TOKEN"}.in(e)
	response, body := e.send(t, r)
	if response == nil || response.Header.Get("Mcp-Session-Id") == "" {
		t.Fatalf("initialize: %v %s", response, body)
	}
	e.session = response.Header.Get("Mcp-Session-Id")
}

// check sends a request and says what is wrong with its answer.
func (e *edge) check(t *testing.T, r edgeRequest) {
	t.Helper()
	if strings.Contains(r.session, "$SESSION") {
		e.open(t)
	}
	r = r.in(e)
	response, body := e.send(t, r)
	if response == nil {
		return
	}
	if r.verb == http.MethodDelete && response.StatusCode < 300 {
		e.session = ""
	}
	wrong := func(what string) { t.Errorf("%v: %s: %s %v %.2000q", r, what, response.Status, response.Header, body) }
	status, form := response.StatusCode, response.Header.Get("Content-Type")
	if status >= 500 && (status != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "") {
		wrong("the server failed")
	}
	if e.token != "" && status < 300 && !strings.Contains(r.authorization, e.token) {
		wrong("a stranger was let in")
	}
	shown := fmt.Sprintf("%v %s", response.Header, body)
	for _, secret := range []string{e.private, edgeToken, "goroutine ", ".go:", "runtime error", "panic"} {
		if strings.Contains(shown, secret) && !strings.Contains(fmt.Sprint(r), secret) {
			wrong("shows " + secret)
		}
	}
	asked := messageOf([]byte(r.body))
	if response.Header.Get("Mcp-Session-Id") != "" && (!same(asked["method"], []byte(`"initialize"`)) || r.version >= "2026-07-28") {
		wrong("a session was opened")
	}
	answers := 0
	for text := range strings.Lines(string(body)) {
		switch form {
		case "application/json":
			text = string(body)
		case "text/event-stream":
			var data bool
			text, data = strings.CutPrefix(text, "data:")
			if !data {
				continue
			}
		default:
			if status < 400 || !strings.HasPrefix(form, "text/plain") {
				wrong("an answer of another form")
			}
			return
		}
		m := messageOf([]byte(text))
		switch id := m["id"]; {
		case !same(m["jsonrpc"], []byte(`"2.0"`)):
			wrong("not a message of JSON-RPC")
		case m["method"] != nil:
		case (m["result"] == nil) == (m["error"] == nil):
			wrong("neither a result nor an error, or both")
		case same(id, asked["id"]):
			answers++
		case m["result"] != nil || id != nil && string(id) != "null":
			wrong("another id")
		}
		if form == "application/json" {
			break
		}
	}
	if answers > 1 {
		wrong("answered twice")
	}
}

const (
	edgeInitialize = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"probe","version":"1"}}}`
	edgeLoad       = `"name":"load_skill","arguments":{"name":"pdf"}`
)

// Whatever arrives at the endpoint, the answer is a refusal or one message with the id of the request. Nothing of
// the machine is in it, nobody is let in without a token, and no request of 2026-07-28 opens a session.
func FuzzHTTP(f *testing.F) {
	post := func(r edgeRequest) {
		for _, authorization := range []string{"Bearer $TOKEN", "bearer x"} {
			f.Add(r.verb, r.body, r.version, r.method, r.name, r.accept, r.session, authorization)
		}
	}
	message := func(method, params string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s}}`, method, params)
	}
	post(edgeRequest{verb: "POST", body: edgeInitialize, accept: bothForms})
	post(edgeRequest{verb: "POST", body: edgeInitialize, accept: bothForms, version: "2026-07-28"})
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":7,"result":{}}`, `[]`, `{"id":1,"id":2}`,
		message("tools/call", edgeLoad), message("tools/list", `"cursor":"x"`), message("resources/read", `"uri":"skill://pdf/../shy/SKILL.md"`),
		message("completion/complete", `"ref":{"type":"ref/resource","uri":"skill://x"},"argument":{"name":"path","value":""}`),
		message("prompts/get", `"name":"shy"`), message("skills/list", ``), message("resources/directory/read", `"uri":"skill://pdf"`),
		strings.Repeat("[", 10_000),
	} {
		post(edgeRequest{verb: "POST", body: body, version: "2025-11-25", accept: bothForms, session: "$SESSION"})
	}
	for method, params := range map[string]string{
		"tools/call": edgeLoad + ",", "resources/read": `"uri":"skill://pdf/references/forms.md",`, "server/discover": "", "ping": "",
		"subscriptions/listen": `"notifications":{"toolsListChanged":true},`, "tools/list": "", "tasks/get": `"taskId":"x",`,
	} {
		name := map[string]string{"tools/call": "load_skill", "resources/read": "skill://pdf/references/forms.md", "tasks/get": "=?base64?eA==?="}[method]
		post(edgeRequest{verb: "POST", body: message(method, params+modern), version: "2026-07-28", method: method, name: name, accept: bothForms})
	}
	post(edgeRequest{verb: "POST", body: message("subscriptions/listen", `"notifications":{},`+modern), version: "2026-07-28",
		method: "subscriptions/listen", accept: "application/json"})
	post(edgeRequest{verb: "GET", version: "2025-11-25", accept: "text/event-stream", session: "$SESSION"})
	post(edgeRequest{verb: "DELETE", version: "2025-11-25", session: "$SESSION"})
	post(edgeRequest{verb: "PATCH", body: "\x00", version: "2099-01-01", accept: "*/*;q=0", session: "\xff"})
	edges := []*edge{newEdge(f, ""), newEdge(f, edgeToken)}
	f.Fuzz(func(t *testing.T, verb, body, version, method, name, accept, session, authorization string) {
		for _, e := range edges {
			e.check(t, edgeRequest{verb, body, version, method, name, accept, session, authorization})
		}
	})
}
