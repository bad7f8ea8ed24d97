// Package mcpserver is the MCP binding: it turns skills into tools and resources of an
// [github.com/mark3labs/mcp-go/server.MCPServer], protocol words into session calls, and their
// errors into answers, through the one table in errors.go. Nothing is decided here.
//
// The catalogue stands in the description of load_skill within the budgets of known clients, names
// also in the instructions. Tools declare no output schema and successful results carry no
// structured content, because clients that see it drop the text; the reference's output objects
// travel in _meta["skillsd/result"].
//
// Both protocol eras are served by one process: 2026-07-28, stateless, and 2025-11-25 and
// 2025-06-18 with their initialize handshake.
package mcpserver

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// Name is how the server introduces itself.
const Name = "skillsd"

// scanPatience is how long initialize, server/discover and tools/list wait for the first scan. A
// client waits one second.
const scanPatience = 900 * time.Millisecond

// cacheTTL is how long a client may keep a list.
const cacheTTL = time.Minute

// ProtocolVersions lists the protocol revisions served, newest first.
func ProtocolVersions() []string { return []string{"2026-07-28", "2025-11-25", "2025-06-18"} }

// Config is what a Server is made of. All fields but those marked optional are required.
type Config struct {
	Version   string
	Registry  *skills.Registry
	Sessions  *session.Sessions
	Policy    *policy.Policy
	Preload   []string // optional: names or paths of skills to activate at the start of a session
	NoCatalog bool     // leave the catalogue out of descriptions and errors
	Logger    *slog.Logger
}

// Server serves one catalogue of skills. Its methods are safe for concurrent use.
type Server struct {
	cfg   Config
	mcp   *server.MCPServer
	ready chan struct{} // closed once the first scan is published
}

// New builds the server. It offers no tool until [Server.Load] has read the skills.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, ready: make(chan struct{})}
	hooks := &server.Hooks{}
	hooks.AddAfterInitialize(func(ctx context.Context, _ any, _ *mcp.InitializeRequest, result *mcp.InitializeResult) {
		s.awaitScan(ctx)
		result.Instructions = s.instructions()
	})
	hooks.AddAfterDiscover(func(ctx context.Context, _ any, _ *mcp.DiscoverRequest, result *mcp.DiscoverResult) {
		s.awaitScan(ctx)
		result.Instructions = s.instructions()
	})
	hooks.AddBeforeListTools(func(ctx context.Context, _ any, _ *mcp.ListToolsRequest) { s.awaitScan(ctx) })
	hooks.AddBeforeListResources(func(ctx context.Context, _ any, _ *mcp.ListResourcesRequest) { s.awaitScan(ctx) })
	s.mcp = server.NewMCPServer(Name, cfg.Version,
		server.WithHooks(hooks),
		server.WithToolCapabilities(true),
		server.WithResourceCapabilities(false, true),
		server.WithTitle("skillsd: Agent Skills, guarded and recorded"),
		server.WithCacheHints(cacheTTL.Milliseconds(), mcp.CacheScopePrivate),
		server.WithRecovery(),
	)
	s.publishTools(true)
	return s
}

// Load reads the skills, pins what the allowlist names, preloads, and publishes the tools. Until it
// returns, calls wait. It returns the errors of the scan and of unknown preloads.
func (s *Server) Load(ctx context.Context) error {
	if _, err := s.cfg.Registry.Rescan(ctx); err != nil {
		return err
	}
	if err := s.cfg.Sessions.Start(ctx, s.cfg.Preload); err != nil {
		return err
	}
	s.publishTools(false)
	close(s.ready)
	return nil
}

// Publish makes the tools describe the registry's current snapshot; clients are told when they
// listen.
func (s *Server) Publish() { s.publishTools(false) }

func (s *Server) publishTools(scanning bool) {
	tools := []server.ServerTool{{Tool: loadTool(s.loadDescription(scanning), s.enumNames()), Handler: s.handleLoad}, {Tool: readTool(), Handler: s.handleRead}}
	if len(s.visible()) == 0 && !scanning {
		tools = tools[1:]
	}
	if s.cfg.Policy.Offers(ToolRun) {
		tools = append(tools, server.ServerTool{Tool: runTool(false), Handler: s.handleRun})
	}
	s.mcp.SetTools(tools...)
}

// awaitScan waits for the first scan, but not longer than a client would.
func (s *Server) awaitScan(ctx context.Context) {
	select {
	case <-s.ready:
		return
	default:
	}
	timer := time.NewTimer(scanPatience)
	defer timer.Stop()
	select {
	case <-s.ready:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// scanned waits for the first scan as long as the call lives.
func (s *Server) scanned(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ServeStdio serves one client over in and out until in ends or ctx is done. Running scripts are
// killed then, other calls get two seconds to finish.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	return wire.ServeStdio(ctx, s.mcp, &wire.StdioOptions{
		In: in, Out: out, Logger: s.cfg.Logger, Methods: s.methods(), Overrides: s.overrides(),
		ServerInfo: mcp.Implementation{Name: Name, Version: s.cfg.Version}, CacheTTL: cacheTTL,
	})
}

// methods are JSON-RPC methods the library lacks: one line each.
func (s *Server) methods() wire.Methods {
	return wire.Methods{}
}

// overrides are methods of the library answered here, because its own would lose equal names or
// hold all files in memory.
func (s *Server) overrides() wire.Methods {
	return wire.Methods{
		methodListResources: s.listResources,
		methodReadResource:  s.readResource,
	}
}
