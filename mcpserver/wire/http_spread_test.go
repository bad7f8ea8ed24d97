package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/admit"
)

// twoPeers starts two servers that have a key in common. What the first gives to the second is sent to it if
// spreads is set; the channel gets the status that it was answered with.
func twoPeers(t *testing.T, spreads bool) (a, b *httpPeer, of *blocked, said <-chan int) {
	t.Helper()
	statuses := make(chan int, 10)
	var others *httptest.Server
	pass := func(r *http.Request, body []byte) (*http.Response, error) {
		out, err := http.NewRequestWithContext(r.Context(), r.Method, others.URL+"/mcp", bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		out.Header = r.Header.Clone()
		return others.Client().Do(out)
	}
	key := []byte("a key that both have")
	a, _ = newHTTPPeer(t, func(o *HTTPOptions) {
		o.SessionKey = key
		o.Spread = func(r *http.Request, body []byte) error {
			if !spreads {
				return errors.New("the others cannot be asked")
			}
			response, err := pass(r.WithContext(context.WithoutCancel(r.Context())), body)
			if err != nil {
				t.Error(err)
				return err
			}
			response.Body.Close()
			statuses <- response.StatusCode
			return nil
		}
		o.Forward = func(w http.ResponseWriter, r *http.Request, body []byte, _ string) error {
			response, err := pass(r, body)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
			w.WriteHeader(response.StatusCode)
			_, err = io.Copy(w, response.Body)
			if err != nil {
				panic(http.ErrAbortHandler) // as a proxy does
			}
			return nil
		}
	})
	b, of = newHTTPPeer(t, func(o *HTTPOptions) {
		o.SessionKey = key
		o.Spread = func(*http.Request, []byte) error {
			t.Error("what was given to a server is given on")
			return nil
		}
	})
	others = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.h.ServeForwarded(w, r, "") }))
	t.Cleanup(others.Close)
	return a, b, of, statuses
}

const answerTo = `{"jsonrpc":"2.0","id":%s,"result":{"action":"accept"}}`

// What a client sends to a server that has not the call it is for reaches the one that has.
func TestHTTPSpread(t *testing.T) {
	a, b, of, said := twoPeers(t, true)
	session := a.open()
	sent := func(message string, want int) {
		t.Helper()
		if status, text := a.post(message, "Mcp-Session-Id", session); status != http.StatusAccepted {
			t.Errorf("%s = %d %s", message, status, text)
		}
		if got := await(t, said); got != want {
			t.Errorf("the other server answers %s with %d, want %d", message, got, want)
		}
	}
	sent(fmt.Sprintf(answerTo, "1"), http.StatusNotFound) // it does not open the session for that
	if n := len(b.h.sessions.byID); n != 0 {
		t.Errorf("%d sessions are open", n)
	}
	stream := b.events(b.do(t.Context(), "POST", "/mcp", toolCall("7", "ask", ""), "Mcp-Session-Id", session))
	var question struct{ ID json.Number }
	if err := json.Unmarshal([]byte(stream.message()), &question); err != nil {
		t.Fatal(err)
	}
	sent(fmt.Sprintf(answerTo, question.ID), http.StatusAccepted)
	if text := stream.message(); !strings.Contains(text, `"accept"`) {
		t.Errorf("answered with %s", text)
	}
	sent(fmt.Sprintf(answerTo, question.ID), http.StatusMisdirectedRequest)
	stream = b.events(b.do(t.Context(), "POST", "/mcp", toolCall("8", "ask", ""), "Mcp-Session-Id", session))
	if text := stream.message(); strings.Contains(text, `"id":1,`) || strings.Contains(text, `"id":2,`) {
		t.Errorf("another server could ask by the same id: %s", text)
	}
	sent(cancelOf("8"), http.StatusAccepted)

	ended := make(chan string, 1)
	go func() {
		_, text := b.post(toolCall("9", "block", ""), "Mcp-Session-Id", session)
		ended <- text
	}()
	await(t, of.begun)
	sent(cancelOf("10"), http.StatusMisdirectedRequest)
	sent(cancelOf("9"), http.StatusAccepted)
	if cause := await(t, of.cause); !errors.Is(cause, ErrCanceled) {
		t.Errorf("cause = %v", cause)
	}
	if text := await(t, ended); strings.Contains(text, `"id"`) {
		t.Errorf("a cancelled call is answered with %s", text)
	}

	all := a.h.spreads.Take("", maxSpreads)
	for verb, message := range map[string]string{"POST": cancelOf("9"), "DELETE": ""} {
		response := a.do(t.Context(), verb, "/mcp", message, "Mcp-Session-Id", session)
		if response.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("too many: %s = %s", verb, response.Status)
		}
	}
	all.Release()

	b.h.forget(session+"x", "")
	b.h.forget(session, "another")
	if status, _ := b.post(toolCall("1", "echo", ""), "Mcp-Session-Id", session); status != http.StatusOK {
		t.Errorf("a session ends for a stranger: %d", status)
	}
	if response := a.do(t.Context(), "DELETE", "/mcp", "", "Mcp-Session-Id", session); response.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE = %s", response.Status)
	}
	if got := await(t, said); got != http.StatusNoContent {
		t.Errorf("the other server answers the end of the session with %d", got)
	}
	for _, p := range []*httpPeer{a, b} {
		if status, _ := p.post(toolCall("1", "echo", ""), "Mcp-Session-Id", session); status != http.StatusNotFound {
			t.Errorf("a session that ended answers %d", status)
		}
	}
}

// What was forwarded is not forwarded again, and no other methods are.
func TestForwardedOnce(t *testing.T) {
	p, _ := newHTTPPeer(t, func(o *HTTPOptions) {
		o.Forward = func(http.ResponseWriter, *http.Request, []byte, string) error {
			t.Error("it is forwarded again")
			return nil
		}
		o.Spread = func(*http.Request, []byte) error { return nil }
	})
	p.server.AddTool(mcp.NewTool("elsewhere"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		Forward(ctx, "the other")
		return nil, errors.New("it is elsewhere")
	})
	session := p.open()
	for _, method := range []string{"POST", "GET", "PUT"} {
		r := httptest.NewRequest(method, "/mcp", strings.NewReader(toolCall("1", "elsewhere", "")))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Mcp-Session-Id", session)
		w := httptest.NewRecorder()
		p.h.ServeForwarded(w, r, "")
		if w.Code != http.StatusMisdirectedRequest {
			t.Errorf("%s = %d %s", method, w.Code, w.Body)
		}
	}
}

// An answer that may be for a call at a server that is not reached is to be sent again; one for a call that is
// here is taken.
func TestHTTPSpreadUnreached(t *testing.T) {
	a, _, _, _ := twoPeers(t, false)
	session := a.open()
	stream := a.events(a.do(t.Context(), "POST", "/mcp", toolCall("7", "ask", ""), "Mcp-Session-Id", session))
	var question struct{ ID json.Number }
	if err := json.Unmarshal([]byte(stream.message()), &question); err != nil {
		t.Fatal(err)
	}
	response := a.do(t.Context(), "POST", "/mcp", fmt.Sprintf(answerTo, "1"), "Mcp-Session-Id", session)
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
		t.Errorf("an answer that may be lost = %s, Retry-After %q", response.Status, response.Header.Get("Retry-After"))
	}
	for message, want := range map[string]int{
		fmt.Sprintf(answerTo, question.ID): http.StatusAccepted,
		cancelOf("8"):                      http.StatusAccepted,
	} {
		if status, text := a.post(message, "Mcp-Session-Id", session); status != want {
			t.Errorf("%s = %d %s", message, status, text)
		}
	}
	if text := stream.message(); !strings.Contains(text, `"accept"`) {
		t.Errorf("answered with %s", text)
	}
}

// Nobody waits until the other servers know that a session has ended: not whoever ended it, nor whose request
// a proxy sends on the same connection.
func TestHTTPSpreadEnd(t *testing.T) {
	spreading, answered := make(chan bool), make(chan bool)
	p, _ := newHTTPPeer(t, func(o *HTTPOptions) {
		o.Forward = func(http.ResponseWriter, *http.Request, []byte, string) error { return nil }
		o.Spread = func(*http.Request, []byte) error {
			close(spreading)
			<-answered
			return nil
		}
	})
	defer close(answered)
	session := p.open()
	response := p.do(t.Context(), "DELETE", "/mcp", "", "Mcp-Session-Id", session)
	response.Body.Close()
	await(t, spreading)
	p.open()
}

// What waits for other servers is counted, in one place or the other.
func TestHTTPSpreadMemory(t *testing.T) {
	var p *httpPeer
	var decoding, waiting int
	p, _ = newHTTPPeer(t, func(o *HTTPOptions) {
		o.Spread = func(*http.Request, []byte) error {
			decoding, waiting = p.h.decoding.Held(""), p.h.waiting.Held("")
			return nil
		}
	})
	session, message := p.open(), fmt.Sprintf(answerTo, "1")
	for _, full := range []bool{false, true} {
		var others *admit.Claim
		before := 0
		if full {
			before = maxWaiting / 2
			others = p.h.waiting.Take("", before)
		}
		p.post(message, "Mcp-Session-Id", session)
		if waits := waiting - before; waits+decoding != len(message) || (decoding > 0) != full {
			t.Errorf("full: %v, decoding %d, waiting %d", full, decoding, waits)
		}
		others.Release()
	}
}

// A call that was forwarded ends with its cancellation, by the one that the other server gets or without it.
func TestHTTPSpreadForwarded(t *testing.T) {
	for cause, spreads := range map[error]bool{ErrCanceled: true, ErrDisconnected: false} {
		t.Run(cause.Error(), func(t *testing.T) {
			a, _, of, _ := twoPeers(t, spreads)
			a.server.AddTool(mcp.NewTool("block"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				Forward(ctx, "the other")
				return nil, errors.New("it is elsewhere")
			})
			session := a.open()
			ended := make(chan string, 1)
			go func() {
				_, text := a.post(toolCall("9", "block", ""), "Mcp-Session-Id", session)
				ended <- text
			}()
			await(t, of.begun)
			if status, _ := a.post(cancelOf("9"), "Mcp-Session-Id", session); status != http.StatusAccepted {
				t.Errorf("cancellation = %d", status)
			}
			if got := await(t, of.cause); !errors.Is(got, cause) {
				t.Errorf("cause = %v, want %v", got, cause)
			}
			if text := await(t, ended); strings.Contains(text, `"id"`) {
				t.Errorf("a cancelled call is answered with %s", text)
			}
		})
	}
}

// What a cancelled call is answered with, whose client takes no events, says so to the server that has
// forwarded it.
func TestForwardedCanceled(t *testing.T) {
	a, b, of, _ := twoPeers(t, true)
	session := a.open()
	for _, forwarded := range []bool{true, false} {
		ended := make(chan int, 1)
		go func() {
			r := httptest.NewRequest("POST", "/mcp", strings.NewReader(toolCall("9", "block", "")))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json")
			r.Header.Set("Mcp-Session-Id", session)
			r.Host = b.addr
			w := httptest.NewRecorder()
			if forwarded {
				b.h.ServeForwarded(w, r, "")
			} else {
				b.h.ServeHTTP(w, r)
			}
			ended <- w.Code
		}()
		await(t, of.begun)
		if status, _ := b.post(cancelOf("9"), "Mcp-Session-Id", session); status != http.StatusAccepted {
			t.Errorf("cancellation = %d", status)
		}
		await(t, of.cause)
		want := http.StatusAccepted
		if forwarded {
			want = http.StatusNoContent
		}
		if got := await(t, ended); got != want {
			t.Errorf("forwarded: %v, the call = %d, want %d", forwarded, got, want)
		}
	}
}

// A call that was under way when its client ended the session may have opened what ends with it.
func TestSessionEndedBehindCall(t *testing.T) {
	for _, cluster := range []bool{false, true} {
		var left atomic.Bool
		ended := make(chan bool, 10)
		p, _ := newHTTPPeer(t, func(o *HTTPOptions) {
			o.SessionEnded = func(string) { ended <- left.Load() }
			if cluster {
				o.Spread = func(*http.Request, []byte) error { return nil }
			}
		})
		begun, open := make(chan bool, 1), make(chan bool)
		p.server.AddTool(mcp.NewTool("late"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			begun <- true
			<-open
			left.Store(true)
			return mcp.NewToolResultText("opened"), nil
		})
		session := p.open()
		done := make(chan bool)
		go func() {
			defer close(done)
			if response, err := p.try(t.Context(), "POST", "/mcp", toolCall("9", "late", ""), "Mcp-Session-Id", session); err == nil {
				response.Body.Close()
			}
		}()
		await(t, begun)
		p.do(t.Context(), "DELETE", "/mcp", "", "Mcp-Session-Id", session).Body.Close()
		if await(t, ended) {
			t.Error("the end waits for the call")
		}
		close(open)
		if !await(t, ended) {
			t.Error("the session did not end behind the call")
		}
		await(t, done)
	}
}

// A client with a long description of itself can still be asked where its session is opened again.
func TestIdentityLong(t *testing.T) {
	ids := newIdentities(nil)
	client := known{version: "2025-11-25"}
	client.info.Name = "long"
	client.capabilities.Elicitation = new(mcp.ElicitationCapability)
	client.capabilities.Experimental = map[string]any{"text": strings.Repeat("x", 2*maxIdentity)}
	again, ok := ids.read(ids.give("alice", client), "alice")
	if !ok || again.info.Name != "long" || again.version != "2025-11-25" || again.capabilities.Elicitation == nil {
		t.Errorf("the id says %+v, %v", again, ok)
	}
}
