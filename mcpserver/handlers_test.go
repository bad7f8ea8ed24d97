package mcpserver

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/skillsd/skillsd/mcpserver/session"
)

// Progress is sent as long as the call lives and no longer, also for a handler that never came to stop it.
func TestProgressEndsWithTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{mcp: server.NewMCPServer("test", "1")}
		s.cfg.Logger = slog.New(slog.DiscardHandler)
		ctx, cancel := context.WithCancel(t.Context())
		var request mcp.CallToolRequest
		request.Params.Meta = &mcp.Meta{ProgressToken: 1}
		s.reportProgress(ctx, &session.Call{}, request)
		cancel()
		synctest.Wait()
	})
}

// slowSession is a client that takes no notification until it reads.
type slowSession struct {
	reads chan struct{}
	got   chan mcp.JSONRPCNotification
}

func (*slowSession) SessionID() string { return "slow" }
func (*slowSession) Initialize()       {}
func (*slowSession) Initialized() bool { return true }
func (s *slowSession) NotificationChannel() chan<- mcp.JSONRPCNotification {
	<-s.reads
	return s.got
}

// A client that read nothing for a while gets the newest progress, not what was true before.
func TestProgressOfASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{mcp: server.NewMCPServer("test", "1")}
		s.cfg.Logger = slog.New(slog.DiscardHandler)
		client := &slowSession{make(chan struct{}), make(chan mcp.JSONRPCNotification, 100)}
		var call session.Call
		stop := s.reportProgress(s.mcp.WithContext(t.Context(), client), &call, 1)
		for before := range 9 {
			call.Progress(fmt.Sprintf("%d before this one", 9-before))
		}
		call.Progress("running")
		close(client.reads)
		synctest.Wait()
		stop()
		close(client.got)
		var last any
		for n := range client.got {
			last = n.Params.AdditionalFields["message"]
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
