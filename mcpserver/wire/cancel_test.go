package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// blocker is a tool that runs until its context ends.
type blocker struct {
	started, canceled, disconnected, running, peak atomic.Int64
}

func (b *blocker) handle(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	b.started.Add(1)
	b.peak.Store(max(b.peak.Load(), b.running.Add(1)))
	defer b.running.Add(-1)
	<-ctx.Done()
	switch {
	case errors.Is(context.Cause(ctx), ErrCanceled):
		b.canceled.Add(1)
	case errors.Is(context.Cause(ctx), ErrDisconnected):
		b.disconnected.Add(1)
	}
	return mcp.NewToolResultText("ended"), nil
}

func blockingServer() (*toolServer, *blocker) {
	srv, b := testServer(), new(blocker)
	srv.AddTool(mcp.NewTool("block"), b.handle)
	return srv, b
}

func TestQuickCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, b := blockingServer()
		p := startPeer(t, fixture(srv), &StdioOptions{})
		for i := range 200 {
			id := fmt.Sprint(i)
			if i%2 == 0 {
				id = fmt.Sprintf("%q", id)
			}
			// One Write: the reader sees the cancellation at once.
			if got := p.send(callLine(id, "block", "") + "\n" + cancelLine(id)); len(got) > 0 {
				t.Fatalf("answers to a cancelled request: %q", got)
			}
		}
		if got := b.canceled.Load(); got != 200 {
			t.Errorf("%d of 200 handlers saw the cancellation", got)
		}
		if err := p.end(); err != nil {
			t.Errorf("ServeStdio() = %v", err)
		}
	})
}

func TestQuickCancelsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, b := blockingServer()
		p := startPeer(t, fixture(srv), &StdioOptions{})
		var lines []string
		for i := range 200 {
			lines = append(lines, callLine(fmt.Sprint(i), "block", ""), cancelLine(fmt.Sprint(i)))
		}
		if got := p.send(strings.Join(lines, "\n")); len(got) > 0 {
			t.Errorf("answers to cancelled requests: %q", got)
		}
		if b.started.Load() != b.canceled.Load() || b.running.Load() != 0 {
			t.Errorf("%d handlers started, %d saw the cancellation", b.started.Load(), b.canceled.Load())
		}
	})
}

func TestCancelTakesTheRightOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, b := blockingServer()
		p := startPeer(t, fixture(srv), &StdioOptions{})
		// Equal as float64 or as text, different as ids.
		ids := []string{"9007199254740992", "9007199254740993", `"9007199254740993"`}
		for _, id := range ids {
			p.send(callLine(id, "block", ""))
		}
		p.send(cancelLine("9007199254740993"), cancelLine(`"unknown"`))
		if b.canceled.Load() != 1 {
			t.Fatalf("%d handlers were cancelled, want 1", b.canceled.Load())
		}
		if got := p.send(callLine("9007199254740993", "echo", "")); len(got) != 1 {
			t.Errorf("the id of a cancelled request is not free again: %q", got)
		}
		if err := p.end(); err != nil {
			t.Fatal(err)
		}
		var answered []string
		for _, line := range p.out.take() {
			answered = append(answered, strings.TrimPrefix(strings.Split(line, ",")[1], `"id":`))
		}
		slices.Sort(answered)
		if want := []string{ids[2], ids[0]}; !slices.Equal(answered, want) {
			t.Errorf("answered %q, want %q", answered, want)
		}
	})
}

func TestInitializeIsNotCancellable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testServer()
		srv.Instructions = func(context.Context) string { time.Sleep(900 * time.Millisecond); return "" }
		srv.AddTool(mcp.NewTool("echo"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(ClientOf(ctx).Info.Name), nil
		})
		p := startPeer(t, fixture(srv), &StdioOptions{})
		got := p.send(initialize, cancelLine(`"init"`), callLine("1", "echo", ""), `{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		if len(got) != 1 || !strings.Contains(got[0], `"id":2,`) {
			t.Fatalf("before initialize is answered: %q, want the ping alone", got)
		}
		time.Sleep(time.Second)
		got = p.settle()
		if len(got) != 2 || !strings.Contains(got[0], `"id":"init","result"`) || !strings.Contains(got[1], `"text":"old"`) {
			t.Errorf("after it: %q, want initialize and then the call that knows the client", got)
		}
	})
}

func TestDuplicateID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, b := blockingServer()
		p := startPeer(t, fixture(srv), &StdioOptions{})
		p.send(callLine("7", "block", ""))
		for _, line := range []string{callLine("7", "echo", ""), `{"jsonrpc":"2.0","id":7,"method":"ping"}`, listenLine("7", `{"toolsListChanged":true}`)} {
			if got := p.send(line); len(got) != 1 || !strings.Contains(got[0], `"id":7,"error":{"code":-32600`) {
				t.Errorf("send(%s) = %q, want -32600", line, got)
			}
		}
		p.send(cancelLine("7"))
		if b.canceled.Load() != 1 {
			t.Error("the first request of that id cannot be cancelled")
		}
	})
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, b := blockingServer()
		p := startPeer(t, fixture(srv), &StdioOptions{})
		for i := range 64 * waitingPerSlot {
			p.send(callLine(fmt.Sprint(i), "block", ""))
		}
		if b.running.Load() != 64 {
			t.Errorf("%d calls run, want 64", b.running.Load())
		}
		got := p.send(callLine(`"late"`, "echo", ""))
		if want := fmt.Sprintf(`"id":"late","error":{"code":%d`, CodeBusy); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("one request too many: %q, want %s", got, want)
		}
		if got := p.send(`{"jsonrpc":"2.0","id":"ping","method":"ping"}`); len(got) != 1 || !strings.Contains(got[0], "result") {
			t.Errorf("ping while busy: %q", got)
		}
		for i := range 64 * waitingPerSlot {
			if got := p.send(cancelLine(fmt.Sprint(i))); len(got) > 0 {
				t.Fatalf("answer to a cancelled request: %q", got)
			}
		}
		if b.running.Load() != 0 || b.peak.Load() != 64 {
			t.Errorf("%d calls run after all were cancelled, at most %d ran", b.running.Load(), b.peak.Load())
		}
		if got := p.send(callLine(`"late"`, "echo", "")); len(got) != 1 || !strings.Contains(got[0], "result") {
			t.Errorf("after that: %q", got)
		}
	})
}

// addSlow adds a tool that takes a second, and counts how many calls of it run at once, at most.
func addSlow(srv *toolServer) (peak *atomic.Int64) {
	var running atomic.Int64
	peak = new(atomic.Int64)
	srv.AddTool(mcp.NewTool("slow"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		peak.Store(max(peak.Load(), running.Add(1)))
		defer running.Add(-1)
		time.Sleep(time.Second)
		return mcp.NewToolResultText("done"), nil
	})
	return peak
}

func TestWaitingCallsRunInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testServer()
		peak := addSlow(srv)
		opts := &StdioOptions{}
		opts.MaxInFlight = 3
		p := startPeer(t, fixture(srv), opts)
		start := time.Now()
		for i := range 9 {
			p.send(callLine(fmt.Sprint(i), "slow", ""))
		}
		time.Sleep(2*time.Second + time.Millisecond)
		if got := len(p.settle()); got != 6 {
			t.Errorf("%d answers after two seconds, want 6", got)
		}
		p.in.Close()
		if err := p.result(); err != nil {
			t.Errorf("ServeStdio() = %v", err)
		}
		if got := len(p.out.take()); got != 3 || peak.Load() != 3 || time.Since(start) != 3*time.Second {
			t.Errorf("%d answers at the end, peak %d, after %v", got, peak.Load(), time.Since(start))
		}
	})
}

func TestManyBytesWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, _ := blockingServer()
		opts := &StdioOptions{}
		opts.MaxLine = 1 << 10
		p := startPeer(t, fixture(srv), opts)
		filler := fmt.Sprintf(`{"x":%q}`, strings.Repeat("x", 900))
		busy := 0
		for i := range 20 {
			busy += len(p.send(callLine(fmt.Sprint(i), "block", filler)))
		}
		if busy != 12 {
			t.Errorf("%d of 20 requests of 1 KiB refused with 8 KiB allowed, want 12", busy)
		}
	})
}
