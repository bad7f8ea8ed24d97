// Command conformance serves over HTTP what the protocol's conformance suite expects a server to
// offer: tools, resources and prompts with agreed names. It is made for tests and takes no
// arguments; it listens on a free port of 127.0.0.1, which it logs, until it is interrupted.
//
// Messages take the same way as in skillsd: [wire.HTTP] in front of mcp-go, and the same base
// methods overridden as there. What the suite finds out about transport, sessions, versions and
// methods it finds out about skillsd. The fixtures themselves prove nothing.
package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/skillsd/skillsd/mcpserver/tasks"
	"github.com/skillsd/skillsd/mcpserver/wire"
)

const (
	name    = "conformance"
	version = "1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if err := run(ctx, logger); err != nil {
		logger.Error("cannot serve", slog.String("err", err.Error()))
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, logger *slog.Logger) error {
	f := newFixture()
	handler, err := wire.NewHTTP(&wire.Dispatcher{
		Server:     f.mcp,
		Overrides:  f.overrides(),
		Methods:    f.tasks.Methods(),
		ServerInfo: mcp.Implementation{Name: name, Version: version},
		CacheTTL:   time.Minute,
		Logger:     logger,
	}, wire.HTTPOptions{})
	if err != nil {
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	logger.Info("listening", slog.String("addr", listener.Addr().String()))
	return handler.Serve(ctx, listener)
}

// fixture is the server under the suite's eyes.
type fixture struct {
	mcp   *server.MCPServer
	key   []byte // of the signatures under request states
	tasks *tasks.Store
}

func newFixture() *fixture {
	f := &fixture{mcp: server.NewMCPServer(name, version,
		server.WithToolCapabilities(true),
		server.WithResourceCapabilities(true, true),
		server.WithPromptCapabilities(true),
		server.WithCompletions(),
		server.WithLogging(),
		server.WithElicitation(),
		server.WithRoots(),
		server.WithCacheHints(time.Minute.Milliseconds(), mcp.CacheScopePrivate),
		server.WithExtensions(map[string]any{tasks.Extension: map[string]any{}}),
		server.WithRecovery(),
	), key: newKey()}
	f.tasks = tasks.New(tasks.Options{Patience: patience,
		Owner: func(context.Context, map[string]any) (string, string) { return name, "" }})
	f.mcp.EnableSampling()
	f.addTools()
	f.addDialogues()
	f.addTasks()
	return f
}
