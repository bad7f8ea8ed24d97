package wire

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/admit"
)

// addYielding adds a tool that yields its slot, twice, and then waits for its end.
func addYielding(srv *toolServer, begun chan<- struct{}) {
	srv.AddTool(mcp.NewTool("yield"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		YieldSlot(ctx)
		YieldSlot(ctx)
		begun <- struct{}{}
		<-ctx.Done()
		return mcp.NewToolResultText("too late"), nil
	})
}

// Calls that yielded their slot keep no other call waiting, can be cancelled, and give back no more than
// they had.
func TestYieldSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testServer()
		addYielding(srv, make(chan struct{}, 100))
		peak := addSlow(srv)
		opts := &StdioOptions{}
		opts.MaxInFlight = 1
		p := startPeer(t, fixture(srv), opts)
		for i := range 5 {
			p.send(callLine(fmt.Sprint(i), "yield", ""))
		}
		if got := p.send(callLine("5", "echo", "")); len(got) != 1 {
			t.Fatalf("a call next to those that yielded their slot is answered %q", got)
		}
		for i := range 5 {
			if got := p.send(cancelLine(fmt.Sprint(i))); len(got) != 0 {
				t.Errorf("a cancelled call is answered %q", got)
			}
		}
		for i := range 3 {
			p.send(callLine(fmt.Sprint(i), "slow", ""))
		}
		time.Sleep(4 * time.Second)
		if got := len(p.settle()); got != 3 || peak.Load() != 1 {
			t.Errorf("%d answers, %d ran at once, want 3 and 1", got, peak.Load())
		}
		if err := p.end(); err != nil {
			t.Errorf("ServeStdio() = %v", err)
		}
	})
}

// A call that yielded its slot takes none over HTTP either, in both protocol eras.
func TestHTTPYieldSlot(t *testing.T) {
	p, b := newHTTPPeer(t, func(o *HTTPOptions) { o.MaxInFlight, o.Patience = 1, time.Nanosecond })
	begun := make(chan struct{}, 100)
	addYielding(p.server, begun)
	session := p.open()
	for _, lane := range []struct {
		name      string
		call      func(id, tool, arguments string) string
		headersOf func(tool string) []string
		yielding  int
	}{
		{"legacy", toolCall, func(string) []string { return []string{"Mcp-Session-Id", session} }, 100},
		{"modern", modernCall, func(tool string) []string { return modernHeaders("tools/call", tool) }, 3},
	} {
		t.Run(lane.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for i := range lane.yielding {
				go p.try(ctx, "POST", "/mcp", lane.call(fmt.Sprint(i), "yield", ""), lane.headersOf("yield")...)
				await(t, begun)
			}
			if status, text := p.post(lane.call("1000", "echo", ""), lane.headersOf("echo")...); status != 200 || !strings.Contains(text, `"echo"`) {
				t.Errorf("a call next to those that yielded their slot = %d %s", status, text)
			}
			blocked, release := context.WithCancel(t.Context())
			go p.try(blocked, "POST", "/mcp", lane.call("1001", "block", ""), lane.headersOf("block")...)
			await(t, b.begun)
			if status, text := p.post(lane.call("1002", "echo", ""), lane.headersOf("echo")...); status != 503 {
				t.Errorf("a call when the place is taken = %d %s", status, text)
			}
			release()
			await(t, b.cause)
			eventually(t, "the slot is given back", func() bool { return p.taken() == 0 })
		})
	}
}

// A ping needs no place: it says whether the server lives.
func TestHTTPPingNeedsNoPlace(t *testing.T) {
	p, b := newHTTPPeer(t, func(o *HTTPOptions) { o.MaxInFlight, o.Patience = 1, time.Nanosecond })
	session := p.open()
	ctx, cancel := context.WithCancel(t.Context())
	go p.try(ctx, "POST", "/mcp", toolCall("1", "block", ""), "Mcp-Session-Id", session)
	await(t, b.begun)
	if status, text := p.post(`{"jsonrpc":"2.0","id":2,"method":"ping"}`, "Mcp-Session-Id", session); status != 200 || !strings.Contains(text, `"result":{}`) {
		t.Errorf("ping = %d %s", status, text)
	}
	if status, _ := p.post(toolCall("3", "echo", ""), "Mcp-Session-Id", session); status != 503 {
		t.Errorf("a call when the place is taken = %d", status)
	}
	cancel()
	await(t, b.cause)
}

// Calls that yielded their slot over HTTP hold no more memory than there is for them, and one that finds
// none left learns of it.
func TestHTTPYieldingIsBounded(t *testing.T) {
	p, _ := newHTTPPeer(t, nil)
	begun := make(chan bool, 100)
	p.server.AddTool(mcp.NewTool("wait"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		room := YieldSlot(ctx)
		begun <- room && YieldSlot(ctx)
		if room {
			<-ctx.Done()
		}
		return mcp.NewToolResultText("done"), nil
	})
	if all, each := p.h.waiting.Most(); all != maxWaiting || each != maxWaiting/2 {
		t.Errorf("room for %d bytes, and %d of one principal", all, each)
	}
	large := `"x":"` + strings.Repeat("x", 10<<10) + `"`
	p.h.waiting = admit.NewQuota(maxWaiting, 4*(len(large)+1000)) // for four calls of one principal
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 4 {
		go p.try(ctx, "POST", "/mcp", modernCall(fmt.Sprint(i), "wait", large), modernHeaders("tools/call", "wait")...)
		if !await(t, begun) {
			t.Fatalf("call %d finds no room", i)
		}
	}
	if status, _ := p.post(modernCall("1000", "wait", large), modernHeaders("tools/call", "wait")...); status != 200 || await(t, begun) {
		t.Errorf("one more call = %d, or has room", status)
	}
	cancel()
	eventually(t, "all room is given back", func() bool { return p.h.waiting.State().Principals == 0 })
}

// addHolding adds a tool that holds a file of 50 MiB and answers after so many seconds.
func addHolding(srv *toolServer) (peak *atomic.Int64) {
	var running atomic.Int64
	peak = new(atomic.Int64)
	srv.AddTool(mcp.NewTool("hold"), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if !Hold(ctx, 50<<20) {
			return mcp.NewToolResultText("no room"), nil
		}
		peak.Store(max(peak.Load(), running.Add(1)))
		defer running.Add(-1)
		time.Sleep(time.Duration(r.GetInt("seconds", 1)) * time.Second)
		return mcp.NewToolResultText("done"), nil
	})
	return peak
}

// Long files wait for each other until they are answered, and not for ever.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testServer()
		peak := addHolding(srv)
		p := startPeer(t, fixture(srv), &StdioOptions{})
		for i := range 5 {
			p.send(callLine(fmt.Sprint(i), "hold", ""))
		}
		if got := p.send(callLine("5", "echo", "")); len(got) != 1 {
			t.Fatalf("a call without a file is answered %q", got)
		}
		time.Sleep(6 * time.Second)
		if got := p.settle(); strings.Count(strings.Join(got, ""), "done") != 5 || peak.Load() != 1 {
			t.Errorf("answers %q, %d at once", got, peak.Load())
		}
		p.send(callLine("6", "hold", `{"seconds":60}`))
		p.send(callLine("7", "hold", ""))
		time.Sleep(holdingPatience + time.Second)
		if got := strings.Join(p.settle(), ""); strings.Count(got, "no room") != 1 || strings.Contains(got, "done") {
			t.Errorf("a call without room is answered %q", got)
		}
		time.Sleep(time.Minute)
		if err := p.end(); err != nil {
			t.Errorf("ServeStdio() = %v", err)
		}
	})
}

// Principals have room of their own.
func TestHTTPHold(t *testing.T) {
	p, _ := newHTTPPeer(t, func(o *HTTPOptions) {
		o.Shared = true
		o.Authenticate = func(_ http.ResponseWriter, r *http.Request) (context.Context, string, bool) {
			return r.Context(), r.Header.Get("X-Test-Principal"), true
		}
	})
	begun, end := make(chan bool, 10), make(chan struct{})
	p.server.AddTool(mcp.NewTool("hold"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		begun <- Hold(ctx, 50<<20)
		<-end
		return mcp.NewToolResultText("done"), nil
	})
	for i, principal := range []string{"a", "a", "b"} {
		headers := append(modernHeaders("tools/call", "hold"), "X-Test-Principal", principal)
		go p.try(t.Context(), "POST", "/mcp", modernCall(fmt.Sprint(i), "hold", ""), headers...)
	}
	for range 2 {
		if !await(t, begun) {
			t.Error("there is no room for the first file of a principal")
		}
	}
	if p.h.memory.Held("a") != 50<<20*fileCost || p.h.memory.Held("b") != 50<<20*fileCost {
		t.Errorf("a has %d bytes, b %d", p.h.memory.Held("a"), p.h.memory.Held("b"))
	}
	close(end)
	if !await(t, begun) {
		t.Error("there is no room after an answer")
	}
	eventually(t, "all room is given back", func() bool {
		return p.h.memory.Held("a") == 0 && p.h.memory.Held("b") == 0
	})
}

// One ledger has the files, pictures and answers of a principal; in a small process there is less room, and what
// is more than anybody's share waits until it is alone.
func TestMemory(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing waits
	whole, small, least := newMemory(0), newMemory(384<<20), newMemory(1)
	for q, want := range map[*admit.Quota][2]int{whole: {960 << 20, 400 << 20}, small: {256 << 20, 256 << 20 / 12 * 5},
		least: {leastMemory, leastMemory / 12 * 5}} {
		if all, each := q.Most(); all != want[0] || each != want[1] {
			t.Errorf("room of %d bytes, %d of one principal, want %v", all, each, want)
		}
	}
	a := &admit.Ledger{Memory: small, Principal: "a", Patience: holdingPatience}
	b := &admit.Ledger{Memory: small, Principal: "b", Patience: holdingPatience}
	giveBack, ok := a.Borrow(ctx, 200<<20)
	if !ok || b.Hold(ctx, 100<<20) || !b.Hold(ctx, 50<<20) || a.Hold(ctx, 1) {
		t.Error("a picture that needs more than one principal's share leaves no room for more of theirs, and some for others")
	}
	giveBack()
	giveBack()
	if !a.Hold(ctx, 80<<20) || !a.Raise(ctx, 70<<20) || !a.Raise(ctx, 100<<20) || a.Raise(ctx, 150<<20) ||
		small.Held("a") != 100<<20 {
		t.Errorf("an answer takes as much as is not held yet: %d", small.Held("a"))
	}
	a.Close()
	b.Close()
	if left := small.State(); left.Free != 256<<20 || left.Principals != 0 {
		t.Errorf("left: %+v", left)
	}
	c := &admit.Ledger{Memory: small, Principal: "c", Patience: holdingPatience}
	if ok := c.Hold(ctx, 1<<30); !ok || small.Held("c") != 256<<20 {
		t.Errorf("what is larger than all room is let in alone: %v, %d", ok, small.Held("c"))
	}
}

// An answer that nobody reads takes room of its principal, and the next one waits for it.
func TestHTTPAnswerRoom(t *testing.T) {
	p, _ := newHTTPPeer(t, func(o *HTTPOptions) { o.Memory = 1 })
	p.server.AddTool(mcp.NewTool("long"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(strings.Repeat("x", leastMemory/2)), nil
	})
	request := modernCall("1", "long", "")
	head := "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " + fmt.Sprint(len(request)) + "\r\n"
	for i, pairs := 0, modernHeaders("tools/call", "long"); i < len(pairs); i += 2 {
		head += pairs[i] + ": " + pairs[i+1] + "\r\n"
	}
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, head+"\r\n"+request); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an answer that is not read takes room", func() bool { return p.h.memory.Held("") > leastMemory/2 })
	conn.Close()
	eventually(t, "all room is given back", func() bool { return p.h.memory.Held("") == 0 })
	response := p.do(t.Context(), "POST", "/mcp", request, modernHeaders("tools/call", "long")...)
	defer response.Body.Close()
	if got, err := io.ReadAll(response.Body); err != nil || len(got) < leastMemory/2 {
		t.Errorf("then an answer of %d bytes, %v", len(got), err)
	}
}
