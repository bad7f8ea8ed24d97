package mcpserver

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/wire"
)

// begun returns the context of a request that a client of the older revisions sends, and what the client gets. Its
// values are those of ctx; it ends when end is called.
func begun(t *testing.T, ctx context.Context, client string) (request context.Context, out *bufio.Reader, end func()) {
	t.Helper()
	in, feed := io.Pipe()
	read, write := io.Pipe()
	requests, release := make(chan context.Context), make(chan struct{})
	d := &wire.Dispatcher{Methods: wire.Methods{"test": func(ctx context.Context, _ *wire.Request) (any, error) {
		requests <- ctx
		<-release
		return &mcp.EmptyResult{}, nil
	}}}
	go func() {
		wire.ServeStdio(ctx, d, &wire.StdioOptions{In: in, Out: write, Drain: time.Hour})
		write.Close()
	}()
	out = bufio.NewReader(read)
	fmt.Fprintf(feed, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":%q,"version":"1"}}}`+"\n", client)
	if _, err := out.ReadBytes('\n'); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(feed, `{"jsonrpc":"2.0","id":2,"method":"test","params":{"_meta":{"progressToken":7}}}`)
	return <-requests, out, sync.OnceFunc(func() {
		close(release)
		feed.Close()
	})
}

// Progress is sent as long as the call lives and no longer, also for a handler that never came to stop it.
func TestProgressEndsWithTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		s.cfg.Logger = slog.New(slog.DiscardHandler)
		ctx, cancel := context.WithCancel(t.Context())
		s.reportProgress(ctx, &session.Call{})
		cancel()
		synctest.Wait()
	})
}

// A client that read nothing for a while gets the newest progress, not what was true before.
func TestProgressOfASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		s.cfg.Logger = slog.New(slog.DiscardHandler)
		ctx, out, end := begun(t, t.Context(), "slow")
		var call session.Call
		stop := s.reportProgress(ctx, &call)
		for before := range 200 {
			call.Progress(fmt.Sprintf("%d before this one", 200-before))
		}
		call.Progress("running")
		go func() {
			synctest.Wait()
			stop()
			end()
		}()
		last := ""
		for line, err := out.ReadBytes('\n'); err == nil; line, err = out.ReadBytes('\n') {
			var n struct{ Params struct{ Message string } }
			if err := json.Unmarshal(line, &n); err != nil {
				t.Fatal(err)
			}
			last = cmp.Or(n.Params.Message, last)
		}
		if last != "running" {
			t.Errorf("the last message is %q", last)
		}
	})
}

// A client that does not wait for the first scan is told of no skill that is being preloaded.
func TestInstructionsDuringTheScan(t *testing.T) {
	s := unloadedServer(t, map[string]string{"notes/SKILL.md": "---\nname: notes\ndescription: For tests.\n---\nBody.\n"}, nil, Config{Preload: []string{"notes"}})
	loaded := make(chan error, 1)
	go func() { loaded <- s.Load(context.WithoutCancel(t.Context())) }()
	preloaded := "Preloaded for this session, load it first: notes"
	for !s.isReady() {
		if text := s.instructions(scope{principal: localPrincipal}, client{}); strings.Contains(text, preloaded) && !s.isReady() {
			t.Error("a preload is told of before it is known")
		}
	}
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	if text := s.instructions(scope{principal: localPrincipal}, client{}); !strings.Contains(text, preloaded) {
		t.Errorf("instructions: %s", text)
	}
}
