package wire

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

func progressLine(id, token string, n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"progress","arguments":{"n":%d},"_meta":{"progressToken":%s}}}`, id, n, token)
}

// order counts progress by call and complains about gaps, also before answers.
type order struct {
	t        *testing.T
	progress map[string]int
	answered int
}

func (o *order) see(line string, want int) {
	var m struct {
		ID     json.RawMessage
		Params struct {
			ProgressToken json.RawMessage
			Progress      int
		}
		Result json.RawMessage
	}
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		o.t.Fatalf("%q: %v", line, err)
	}
	if m.ID != nil {
		o.answered++
		if got := o.progress[string(m.ID)]; got != want || m.Result == nil {
			o.t.Errorf("answer %s after %d of %d notifications", line, got, want)
		}
		return
	}
	token := string(m.Params.ProgressToken)
	o.progress[token]++
	if o.progress[token] != m.Params.Progress {
		o.t.Errorf("%s comes as number %d", line, o.progress[token])
	}
}

func TestProgressIsNeverLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPeer(t, fixture(testServer()), &StdioOptions{})
		var lines []string
		for i := range 500 {
			lines = append(lines, progressLine(fmt.Sprint(i), fmt.Sprint(i), 20))
		}
		o := &order{t: t, progress: make(map[string]int)}
		for _, line := range p.send(strings.Join(lines, "\n")) {
			o.see(line, 20)
		}
		if o.answered != 500 {
			t.Errorf("%d answers, want 500", o.answered)
		}
	})
}

// The pipe holds nothing, so that every message waits for the reader.
func TestProgressWaitsForTheReader(t *testing.T) {
	r, w := io.Pipe()
	in := strings.NewReader(progressLine("1", "1", 2000) + "\n" + progressLine("2", "2", 2000))
	done := make(chan error, 1)
	go func() {
		done <- ServeStdio(t.Context(), &testServer().Dispatcher, &StdioOptions{In: in, Out: w, Drain: time.Hour})
		w.Close()
	}()
	o := &order{t: t, progress: make(map[string]int)}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		o.see(lines.Text(), 2000)
	}
	if err := <-done; err != nil || o.answered != 2 {
		t.Errorf("ServeStdio() = %v, %d answers", err, o.answered)
	}
}

func TestProgressOfOneCallFromManyGoroutines(t *testing.T) {
	srv := testServer()
	srv.AddTool(mcp.NewTool("many"), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for j := range 50 {
					if err := Notify(ctx, "notifications/progress", map[string]any{"progress": i*50 + j}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		return mcp.NewToolResultText("done"), nil
	})
	out := new(lineLog)
	in := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"many","_meta":{"progressToken":"x"}}}`)
	if err := ServeStdio(t.Context(), &srv.Dispatcher, &StdioOptions{In: in, Out: out, Drain: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if got := out.take(); len(got) != 1001 || !strings.Contains(got[1000], `"id":1,"result"`) {
		t.Errorf("%d messages, want 1000 notifications and the answer", len(got))
	}
}

func TestNotificationAfterTheAnswerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, release, sent := testServer(), make(chan struct{}), make(chan error, 1)
		srv.AddTool(mcp.NewTool("leak"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			go func() {
				<-release
				sent <- Notify(ctx, "notifications/message", map[string]any{"level": "error"})
			}()
			return mcp.NewToolResultText("done"), nil
		})
		p := startPeer(t, fixture(srv), &StdioOptions{})
		p.send(callLine("1", "leak", ""))
		close(release)
		if err := <-sent; err == nil {
			t.Error("a notification after the answer was taken")
		}
		if got := p.settle(); len(got) > 0 {
			t.Errorf("after the answer: %q", got)
		}
	})
}

func TestManyListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testServer()
		p := startPeer(t, fixture(srv), &StdioOptions{})
		for i := range maxListens {
			if got := p.send(listenLine(fmt.Sprint(i), `{"toolsListChanged":true}`)); len(got) != 1 || !strings.Contains(got[0], "acknowledged") {
				t.Fatalf("listen %d: %q", i, got)
			}
		}
		if got := p.send(listenLine(`"more"`, `{"toolsListChanged":true}`)); len(got) != 1 || !strings.Contains(got[0], fmt.Sprint(CodeBusy)) {
			t.Errorf("one subscription too many: %q", got)
		}
		// Subscriptions take none of the places of calls.
		if got := p.send(callLine(`"call"`, "echo", "")); len(got) != 1 || !strings.Contains(got[0], "result") {
			t.Errorf("a call beside them: %q", got)
		}
		for i := 0; i < maxListens; i += 2 {
			p.send(cancelLine(fmt.Sprint(i)))
		}
		if n := len(srv.audiences[0].all); n != maxListens/2 {
			t.Errorf("%d subscriptions are notified after half of %d were cancelled", n, maxListens)
		}
		srv.Announce(mcp.MethodNotificationToolsListChanged)
		synctest.Wait()
		seen := make(map[string]bool)
		for _, line := range p.out.take() {
			seen[line] = true
		}
		for i := range maxListens {
			want := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{%q:%d}}}`, mcp.MetaKeySubscriptionID, i)
			if seen[want] != (i%2 == 1) {
				t.Errorf("subscription %d was told: %v", i, seen[want])
			}
		}
		if len(seen) != maxListens/2 {
			t.Errorf("%d messages, want %d", len(seen), maxListens/2)
		}
	})
}

// What the server does not declare cannot be subscribed to.
func TestUndeclaredChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPeer(t, &Dispatcher{}, &StdioOptions{})
		got := p.send(listenLine("1", `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["a"]}`))
		if len(got) != 2 || !strings.Contains(got[0], `"notifications":{}`) || !strings.Contains(got[1], `"id":1,"result"`) {
			t.Errorf("got %q, want an empty acknowledgement and the end", got)
		}
	})
}

// A change while the one before it is being delivered is delivered, too: what the members were asked about may
// have been as before it.
func TestChangeDuringDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, asked, goOn := newAudience(), 0, make(chan struct{})
		a.add(newAnnouncer(func(string) bool { asked++; <-goOn; return false }))
		for range 3 {
			a.post(mcp.MethodNotificationToolsListChanged)
			synctest.Wait()
		}
		close(goOn)
		synctest.Wait()
		if asked != 2 {
			t.Errorf("asked %d times, want once for the first and once for those after it", asked)
		}
	})
}

// A change before the acknowledgement of a subscription comes after it.
func TestChangeDuringSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := new(lineLog)
		a := newAudience()
		m, _ := parse([]byte(listenLine("1", `{}`)))
		w := newLineWriter(writerFunc(func(p []byte) (int, error) {
			if strings.Contains(string(p), "acknowledged") { // the subscription is in place
				a.post(mcp.MethodNotificationToolsListChanged)
				synctest.Wait()
			}
			return out.Write(p)
		}))
		s := newCall(t.Context(), &session{}, m, new(admission))
		s.out, s.audience = w, a
		end := s.subscribe(mcp.SubscriptionFilter{ToolsListChanged: true}, nil)
		synctest.Wait()
		got := out.take()
		if len(got) != 2 || !strings.Contains(got[0], "acknowledged") || !strings.Contains(got[1], "list_changed") {
			t.Errorf("got %q, want the acknowledgement, then the change", got)
		}
		end()
		s.finish()
	})
}

// The client does not read while the lists change many times.
func TestChangesAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testServer()
		r, w := io.Pipe()
		opts := &StdioOptions{}
		opts.Out = w
		p := startPeer(t, fixture(srv), opts)
		lines := bufio.NewScanner(r)
		next := func() string { lines.Scan(); return lines.Text() }
		io.WriteString(p.in, initialize+"\n")
		next()
		io.WriteString(p.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
		synctest.Wait()
		for range 1000 {
			srv.Announce(mcp.MethodNotificationToolsListChanged)
		}
		srv.Announce(mcp.MethodNotificationPromptsListChanged)
		synctest.Wait()
		io.WriteString(p.in, `{"jsonrpc":"2.0","id":"end","method":"ping"}`+"\n")
		told := make(map[string]int)
		for told["answer"] == 0 || told["notifications/prompts/list_changed"] == 0 {
			var m struct{ Method string }
			if err := json.Unmarshal([]byte(next()), &m); err != nil {
				t.Fatal(err)
			}
			told[cmp.Or(m.Method, "answer")]++
		}
		if n := told["notifications/tools/list_changed"]; n < 1 || n > 3 {
			t.Errorf("told %v, want the 1000 changes joined", told)
		}
		r.Close()
	})
}

func TestCancelledAskIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPeer(t, fixture(testServer()), &StdioOptions{})
		p.send(initialize)
		p.send(callLine("5", "ask", ""))
		want := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
		if got := p.send(cancelLine("5")); len(got) != 1 || got[0] != want {
			t.Errorf("got %q, want %s", got, want)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
