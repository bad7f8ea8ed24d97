package wire

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// runnerServer has a script that is killed at EOF, a call that takes a second and one that takes as long as
// it may.
func runnerServer(ended chan<- error) (*toolServer, *blocker) {
	srv, b := blockingServer()
	srv.AddTool(mcp.NewTool("script"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ctx, stop := KillAtEOF(ctx)
		defer stop()
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return mcp.NewToolResultText("killed"), nil
	})
	srv.AddTool(mcp.NewTool("second"), func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		select {
		case <-time.After(time.Second):
			return mcp.NewToolResultText("finished"), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	return srv, b
}

func TestEnd(t *testing.T) {
	for name, end := range map[string]func(*peer){
		"input ends":   func(p *peer) { p.in.Close() },
		"context ends": func(p *peer) { p.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				srv, b := runnerServer(ended)
				p := startPeer(t, fixture(srv), &StdioOptions{})
				p.send(callLine("1", "script", ""), callLine("2", "second", ""), callLine("3", "block", ""), listenLine("4", `{"toolsListChanged":true}`))
				start := time.Now()
				end(p)
				got := strings.Join(p.settle(), "\n")
				if cause := <-ended; !errors.Is(cause, ErrDisconnected) || time.Since(start) != 0 {
					t.Errorf("script ended with %v after %v, want at once", cause, time.Since(start))
				}
				if !strings.Contains(got, `"id":1,"result"`) || !strings.Contains(got, `"id":4,"result"`) {
					t.Errorf("answered at once: %s, want the script and the subscription", got)
				}
				time.Sleep(time.Second)
				if got := strings.Join(p.settle(), "\n"); !strings.Contains(got, "finished") {
					t.Errorf("after a second: %s, want the call that takes one", got)
				}
				if err := p.result(); err != nil {
					t.Errorf("ServeStdio() = %v", err)
				}
				if elapsed := time.Since(start); elapsed != 2*time.Second || b.disconnected.Load() != 1 {
					t.Errorf("returned after %v, %d calls ended", elapsed, b.disconnected.Load())
				}
			})
		})
	}
}

func TestEndIdleReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fixture(testServer())
		p := startPeer(t, d, &StdioOptions{})
		p.send(callLine("1", "echo", ""))
		start := time.Now()
		if err := p.end(); err != nil || time.Since(start) != 0 {
			t.Errorf("ServeStdio() = %v after %v", err, time.Since(start))
		}
		if len(d.audiences) != 0 {
			t.Errorf("%d connections that have ended are notified", len(d.audiences))
		}
	})
}

func TestLastLineWithoutNewline(t *testing.T) {
	out := new(lineLog)
	err := ServeStdio(t.Context(), &testServer().Dispatcher, &StdioOptions{In: strings.NewReader(callLine("1", "echo", "")), Out: out, Drain: time.Hour})
	if got := out.take(); err != nil || len(got) != 1 || !strings.Contains(got[0], "echo") {
		t.Errorf("ServeStdio() = %v, wrote %q", err, got)
	}
}

func TestHandlerThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, release := testServer(), make(chan struct{})
		srv.AddTool(mcp.NewTool("deaf"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-release
			return mcp.NewToolResultText("late"), nil
		})
		p := startPeer(t, fixture(srv), &StdioOptions{})
		p.send(callLine("1", "deaf", ""))
		start := time.Now()
		if err := p.end(); err != nil || time.Since(start) != 2200*time.Millisecond {
			t.Errorf("ServeStdio() = %v after %v", err, time.Since(start))
		}
		close(release)
		if got := p.settle(); len(got) > 0 {
			t.Errorf("written after the end: %q", got)
		}
	})
}

// A client that is gone: the real pipe gives EPIPE.
func TestClosedOutput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	in, feed := io.Pipe()
	defer feed.Close()
	srv, b := blockingServer()
	result := make(chan error)
	go func() {
		result <- ServeStdio(t.Context(), &srv.Dispatcher, &StdioOptions{In: in, Out: w, Drain: time.Hour})
	}()
	io.WriteString(feed, callLine("1", "block", "")+"\n"+callLine("2", "echo", "")+"\n")
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	r.Close()
	io.WriteString(feed, callLine("3", "echo", "")+"\n")
	if err := <-result; err != nil {
		t.Errorf("ServeStdio() = %v", err)
	}
	if b.disconnected.Load() != 1 {
		t.Error("the running call was not ended")
	}
}

// A client that neither reads nor leaves.
func TestStuckOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testServer()
		unread, out := io.Pipe()
		opts := &StdioOptions{}
		opts.Out = out
		p := startPeer(t, fixture(srv), opts)
		p.send(initialize, callLine("1", "progress", `{"n":1000}`))
		for range 500 {
			srv.Announce(mcp.MethodNotificationToolsListChanged)
		}
		start := time.Now()
		p.stop()
		if err := p.result(); err != nil || time.Since(start) > 3*time.Second {
			t.Errorf("ServeStdio() = %v after %v", err, time.Since(start))
		}
		unread.Close()
	})
}

// One Write that never ends must not keep the others waiting after the end.
func TestWritersGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unread, out := io.Pipe()
		defer unread.Close()
		w := newLineWriter(out)
		go w.write([]byte("stuck"))
		synctest.Wait()
		waiting := make(chan struct{})
		go func() {
			w.write([]byte("waiting"))
			close(waiting)
		}()
		synctest.Wait()
		w.close()
		synctest.Wait()
		select {
		case <-waiting:
		default:
			t.Error("a writer still waits for its turn")
		}
	})
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestStreamErrors(t *testing.T) {
	broken := errors.New("disk full")
	ping := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n")
	if err := ServeStdio(t.Context(), &testServer().Dispatcher, &StdioOptions{In: ping, Out: failingWriter{broken}}); !errors.Is(err, broken) {
		t.Errorf("failing output: %v, want %v", err, broken)
	}
	if err := ServeStdio(t.Context(), &testServer().Dispatcher, &StdioOptions{In: iotest.ErrReader(broken), Out: io.Discard}); !errors.Is(err, broken) {
		t.Errorf("failing input: %v, want %v", err, broken)
	}
}

func TestKillAtEOFElsewhere(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	ctx, stop := KillAtEOF(parent)
	defer stop()
	if ctx.Err() != nil {
		t.Error("ended before its parent")
	}
	cancel()
	if ctx.Err() == nil {
		t.Error("outlives its parent")
	}
}
