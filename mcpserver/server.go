// Package mcpserver is the MCP binding: it maps skills to tools, resources and prompts, requests to calls of
// the session, and errors to answers, by the table in errors.go. It makes no decisions.
//
// The catalogue is part of the description of load_skill, or of its parameter name for clients that truncate
// descriptions of tools. Its budget is the operator's; it is not repeated, except for some names in the first
// line of the instructions for clients that may not show the tools at once. Tools declare no output schema
// and successful results have no structured content, because clients that get it drop the text; the output
// objects of the reference are in _meta["skillsd/result"].
//
// One process serves both protocol eras: 2026-07-28, stateless, and 2025-11-25 and 2025-06-18 with their
// initialize handshake.
package mcpserver

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/tasks"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/skills"
)

// serverName is the server's name in its answers.
const serverName = "skillsd"

// scanPatience is how long after the start initialize, server/discover and tools/list wait for the first
// scan, in total. Clients wait one second.
const scanPatience = 800 * time.Millisecond

// keepsPatience is how much longer they wait for a client that keeps the first descriptions it gets. Such
// clients wait at least 28 seconds for a server.
const keepsPatience = 20 * time.Second

// keepLists is how long a client may cache a list that is not watched for changes.
const keepLists = time.Minute

// ProtocolVersions lists the protocol revisions served, newest first.
func ProtocolVersions() []string { return wire.Versions() }

// Config configures a Server. All fields are required unless marked optional.
type Config struct {
	Version   string
	Registry  *skills.Registry
	Sessions  *session.Sessions
	Preload   []string // optional: names or paths of skills to load at the start of a session
	NoCatalog bool     // leave the catalogue out of descriptions and errors
	// AlwaysSearch offers search_skills even if the catalogue fits its budget.
	AlwaysSearch bool
	// Watching is set if [Server.Reloaded] follows changes on disk; clients must not cache lists then.
	Watching bool
	// CatalogBudget is the maximum size of the catalogue in characters; 0 for [catalog.DefaultBudget].
	CatalogBudget int
	// Uses is the number of earlier uses of skills, by path: if the catalogue does not fit, skills used more
	// come first. It does not change while the server runs, so that prompt caches stay valid.
	Uses map[string]int
	// Used is called with the path of each loaded skill; optional.
	Used   func(path string)
	Logger *slog.Logger

	// ClientSession and ClientDir are the session id and the working directory of the client that started the
	// process. Optional; used on stdio only.
	ClientSession, ClientDir string
	// StartDir is the directory in which the client started the process, for a client that reports none after
	// AskWorkspace. Optional; used on stdio only.
	StartDir string
	// WorkDir is the directory of the process, if the client that started it is on this machine. Results
	// mention arguments that name a file there that the script does not see. Optional; used on stdio only.
	WorkDir string
	// Workspace is the directory that scripts see at /workspace regardless of the client. Optional.
	Workspace string
	// AskWorkspace asks clients that support it for their working directory.
	AskWorkspace bool
	// Roots describes where skills are searched for, in words that clients may see. Optional.
	Roots string
	// Refresh is called before each request and applies a changed configuration. Optional.
	Refresh func(ctx context.Context)
	// Last returns the snapshot of an earlier process, whose names and descriptions are shown until the first
	// scan is done; nil without one. Optional.
	Last func() *skills.Snapshot
	// Holders locates tasks if this is one of several servers, else nil.
	Holders tasks.Holders
	// Traces gets a span for each request, and Metrics its duration; both are optional.
	Traces  trace.TracerProvider
	Metrics metric.MeterProvider
}

// Server serves one catalogue of skills. Its methods are safe for concurrent use.
type Server struct {
	cfg     Config
	wire    *wire.Dispatcher
	tools   map[string]tasks.Handler // by name
	ready   chan struct{}            // closed once the first scan is published
	roots   clientRoots
	last    func() *skills.Snapshot // Config.Last, called at most once
	news    news
	seen    visibleCache
	early   atomic.Bool // a list was answered before the end of the first scan
	waits   time.Time   // until when requests wait for the first scan
	guesses atomic.Bool // see HTTPOptions.OnlyHandles
	trace   *tracer     // nil without traces and metrics
	tasks   *tasks.Store

	toolsEvery time.Duration // see the constant
	asksLater  atomic.Bool   // a delayed announcement of changed tools is scheduled

	logging sync.Mutex
	logged  []skills.Diagnostic // about roots and directories; guarded by logging
}

// New returns a server. It offers no tools until [Server.Load] has read the skills.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, ready: make(chan struct{}), waits: time.Now().Add(scanPatience),
		toolsEvery: toolsEvery}
	s.cfg.Logger = cfg.Sessions.Logger(cfg.Logger)
	s.last = func() *skills.Snapshot { return nil }
	if cfg.Last != nil {
		s.last = sync.OnceValue(cfg.Last)
	}
	s.trace = newTracer(cfg)
	s.tasks = s.newTasks()
	s.tools = map[string]tasks.Handler{
		ToolLoad: s.tool(s.load), ToolRead: s.tool(s.read), ToolSearch: s.tool(s.search),
	}
	s.tools[ToolRun] = s.tool(s.run)
	s.wire = &wire.Dispatcher{
		Methods: s.methods(),
		ServerInfo: mcp.Implementation{Name: serverName, Version: cfg.Version,
			Title: "skillsd: Agent Skills, guarded and recorded"},
		Capabilities: s.capabilities,
		Instructions: func(ctx context.Context) string {
			s.awaitScan(ctx)
			return s.instructions(s.scopeOf(ctx), clientOf(ctx))
		},
		Changes:  s.changesFor,
		CacheTTL: s.cacheTTL(),
		Logger:   s.cfg.Logger,
		// An error may repeat words of its client, including a secret.
		Withhold: func(raw json.RawMessage) json.RawMessage { return s.cfg.Sessions.Secrets().JSON(raw) },
	}
	if s.trace != nil {
		s.wire.Trace = s.trace.start
	}
	cfg.Registry.OnRescan(s.Publish)
	return s
}

// capabilities returns what the server declares. Skills are declared in both eras, and clients need not
// declare them; tasks exist on 2026-07-28 only.
func (s *Server) capabilities(modern bool) (has mcp.ServerCapabilities) {
	changes := struct {
		ListChanged bool `json:"listChanged,omitempty"`
	}{true}
	has.Tools, has.Prompts, has.Completions = &changes, &changes, &struct{}{}
	has.Resources = &struct {
		Subscribe   bool `json:"subscribe,omitempty"`
		ListChanged bool `json:"listChanged,omitempty"`
	}{ListChanged: true}
	has.Extensions = map[string]any{"io.modelcontextprotocol/skills": map[string]any{"directoryRead": true}}
	if modern && s.cfg.Sessions.Policy().Offers(ToolRun) {
		has.Extensions[tasks.Extension] = map[string]any{}
	}
	if s.cfg.AskWorkspace {
		has.Experimental = map[string]any{metaSandboxState: struct{}{}}
	}
	return has
}

// Load reads the skills, pins the scripts of the allowlist, resolves preloads, and publishes the tools. Calls
// wait until it returns. It returns errors of the scan and of unknown preloads.
func (s *Server) Load(ctx context.Context) error {
	if _, err := s.cfg.Registry.Rescan(ctx); err != nil {
		return err
	}
	if err := s.cfg.Sessions.Start(ctx, s.cfg.Preload); err != nil {
		return err
	}
	// Pins and preloads must be resolved before any list is answered.
	snapshot := s.cfg.Registry.Snapshot()
	all := make([]string, 0, len(snapshot.Skills))
	for _, sk := range snapshot.Skills {
		all = append(all, sk.Path)
	}
	s.logDiagnostics(ctx, snapshot, all...)
	s.visible(scope{principal: localPrincipal}).catalogue()
	close(s.ready)
	if s.early.Load() {
		s.Publish()
	}
	return nil
}

// Resume continues a recorded session of the local user, on stdio; see [session.Sessions.Resume]. Call it
// after Load and before the server answers.
func (s *Server) Resume(ctx context.Context, id string, reload bool) error {
	return s.cfg.Sessions.Resume(ctx, id, localPrincipal, reload)
}

// logDiagnostics logs the new diagnostics of roots and directories, and of the skills at the given
// paths: one line per code, with the first diagnostic.
func (s *Server) logDiagnostics(ctx context.Context, snapshot *skills.Snapshot, paths ...string) {
	type sum struct {
		count int
		first skills.Diagnostic
		skill string // of first
	}
	sums := map[skills.Code]*sum{}
	var order []skills.Code
	warn := func(path string, d skills.Diagnostic) {
		if d.Severity == skills.Info {
			return
		}
		if sums[d.Code] == nil {
			sums[d.Code] = &sum{first: d, skill: path}
			order = append(order, d.Code)
		}
		sums[d.Code].count++
	}
	s.logging.Lock()
	before := s.logged
	s.logged = snapshot.Diagnostics
	s.logging.Unlock()
	for _, d := range snapshot.Diagnostics {
		if !slices.Contains(before, d) {
			warn("", d)
		}
	}
	for _, path := range paths {
		if sk := snapshot.Skill(path); sk != nil {
			for _, d := range sk.Diagnostics {
				warn(path, d)
			}
		}
	}
	for _, code := range order {
		of := sums[code]
		attrs := []any{slog.String("code", string(code)), slog.String("skill", of.skill),
			slog.String("path", of.first.Path), slog.String("err", of.first.Detail)}
		message := "skill diagnostic"
		if of.count > 1 {
			message = "skill diagnostics; this is the first, `skillsd list` and `skillsd doctor` " +
				"have the others"
			attrs = append(attrs, slog.Int("count", of.count))
		}
		s.cfg.Logger.WarnContext(ctx, message, attrs...)
	}
}

// Reloaded publishes the registry's current snapshot after a change on disk.
func (s *Server) Reloaded(ctx context.Context, diff skills.Diff) {
	if s.scanned(ctx) != nil {
		return
	}
	if diff.Empty() {
		s.logDiagnostics(ctx, s.cfg.Registry.Snapshot())
		return
	}
	// The files of new skills are pinned before a client can learn of the skills and run a script.
	s.cfg.Sessions.PinAdded(ctx)
	s.cfg.Logger.InfoContext(ctx, "skills reloaded", slog.Int("added", len(diff.Added)),
		slog.Int("removed", len(diff.Removed)), slog.Int("changed", len(diff.Changed)))
	s.logDiagnostics(ctx, s.cfg.Registry.Snapshot(), slices.Concat(diff.Added, diff.Changed)...)
	s.Publish()
}

// ServeStdio serves one client over in and out until in ends or ctx is done. Running scripts, including
// tasks, are killed then, and other calls get two seconds to finish.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	defer s.tasks.Close()
	return wire.ServeStdio(ctx, s.wire, &wire.StdioOptions{In: in, Out: out})
}

// cacheTTL returns how long a client may cache a list.
func (s *Server) cacheTTL() time.Duration {
	if s.cfg.Watching {
		return 0
	}
	return keepLists
}
