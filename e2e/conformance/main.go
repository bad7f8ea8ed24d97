// Command conformance serves the tools, resources and prompts that the protocol's conformance suite expects
// of a server, over HTTP. It is made for tests and takes no arguments. It listens on a free port of
// 127.0.0.1, which it logs, until it is interrupted.
//
// Messages take the same path as in skillsd, through [wire.HTTP]. The suite's results about transport,
// sessions, versions and the protocol's own methods are therefore valid for skillsd. The fixtures themselves
// prove nothing.
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
	f.wire.Logger = logger
	handler, err := wire.NewHTTP(f.wire, wire.HTTPOptions{})
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

// fixture is the server under test.
type fixture struct {
	wire  *wire.Dispatcher
	tools map[string]tool
	key   []byte // key for signing request states
	tasks *tasks.Store
}

func newFixture() *fixture {
	f := &fixture{tools: map[string]tool{}, key: newKey()}
	f.tasks = tasks.New(tasks.Options{Patience: patience,
		Owner: func(context.Context, map[string]any) (string, string) { return name, "" }})
	f.wire = &wire.Dispatcher{
		Methods: f.methods(), ServerInfo: mcp.Implementation{Name: name, Version: version},
		Capabilities: capabilities, CacheTTL: time.Minute,
	}
	f.addTools()
	f.addDialogues()
	f.addTasks()
	return f
}

func capabilities(bool) (has mcp.ServerCapabilities) {
	changes := struct {
		ListChanged bool `json:"listChanged,omitempty"`
	}{true}
	has.Tools, has.Prompts, has.Completions, has.Logging = &changes, &changes, &struct{}{}, &struct{}{}
	has.Resources = &struct {
		Subscribe   bool `json:"subscribe,omitempty"`
		ListChanged bool `json:"listChanged,omitempty"`
	}{true, true}
	has.Extensions = map[string]any{tasks.Extension: map[string]any{}}
	return has
}
