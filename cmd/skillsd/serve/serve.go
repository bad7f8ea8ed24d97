// Package serve builds and runs a server of skills from its configuration.
package serve

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/watch"
)

// Run makes a plan and runs the server until ctx or its transport ends. The server answers while it tests
// the sandbox and scans the skills.
func (o *Options) Run(ctx context.Context) (err error) {
	_, noColor := o.Process.Env("NO_COLOR")
	logger, err := NewLogger(o.Err, o.LogLevel, o.LogFormat, noColor)
	if err != nil {
		return err
	}
	p := o.Plan()
	defer func() { err = errors.Join(err, p.Close(ctx, logger)) }()
	if err := p.Err(); err != nil {
		return err
	}
	if err := p.Open(); err != nil {
		return err
	}
	observed, err := o.observe(ctx, p.Records, p.Registry, logger)
	if err != nil {
		return err
	}
	defer observed.end(ctx)
	sessions, err := p.Sessions(ctx, observed.records, logger)
	if err != nil {
		return err
	}
	// ctx may have ended, and the end of a session must still be recorded. Deferred calls run in reverse, so
	// sessions end before the stores that they write to are closed.
	defer func() { err = errors.Join(err, sessions.End(context.WithoutCancel(ctx))) }()
	server := mcpserver.New(o.binding(mcpserver.Config{
		Workspace: p.Workspace.Dir != nil, Version: o.Version, Registry: p.Registry, Sessions: sessions,
		Policy: p.Policy, Traces: observed.Traces, Metrics: observed.Meters, Logger: logger,
	}))
	p.logStart(ctx, logger)
	if p.Policy.Offers(mcpserver.ToolRun) {
		p.Detection.Start(ctx, logger)
		defer p.Detection.End()
	}
	return o.serve(ctx, server, p.Registry, sessions.Logger(logger))
}

// binding completes the configuration of the server with the flags and variables that concern clients.
func (o *Options) binding(cfg mcpserver.Config) mcpserver.Config {
	cfg.Preload, cfg.NoCatalog, cfg.AlwaysSearch, cfg.Watching = o.Skills, o.NoCatalog, o.Search == "always",
		o.watches()
	cfg.ClientSession, _ = o.Process.Env("CLAUDE_CODE_SESSION_ID")
	cfg.ClientDir, _ = o.Process.Env("CLAUDE_PROJECT_DIR")
	cfg.AskWorkspace = o.FromClient
	return cfg
}

// watches reports whether the server follows changes on disk.
func (o *Options) watches() bool { return o.Watch && !o.NoWatch }

// serve runs the transport and, at the same time, the first scan and then the watch. If a skill, root or
// session that the operator named is missing, it returns an error before it answers any client.
func (o *Options) serve(ctx context.Context, server *mcpserver.Server, registry *skills.Registry,
	logger *slog.Logger) error {
	// Only with these options can the skills that are found end the server. Otherwise no client has to wait
	// for the scan.
	loaded := len(o.Skills) > 0 || o.Roots.Strict || o.Resume.Session != ""
	if loaded {
		if err := loadError(load(ctx, server)); err != nil {
			return err
		}
		if err := o.resume(ctx, server); err != nil {
			return err
		}
	}
	background, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		if !loaded {
			if err := load(background, server); err != nil {
				if background.Err() == nil {
					logger.ErrorContext(ctx, "skills not loaded", tint.Err(err))
				}
				return
			}
		}
		pins := &pinWarner{serve: o, logger: logger}
		pins.warn(ctx, registry.Snapshot())
		if o.watches() {
			if err := watch.Run(background, registry,
				watch.Options{Logger: logger, OnChange: func(ctx context.Context, diff skills.Diff) {
					server.Reloaded(ctx, diff)
					pins.warn(ctx, registry.Snapshot())
				}}); err != nil {
				logger.WarnContext(ctx, "changes on disk are not followed", tint.Err(err))
			}
		}
	})
	err := o.transport(ctx, server, logger)
	stop()
	group.Wait()
	return err
}

// transport serves clients until the transport ends.
func (o *Options) transport(ctx context.Context, server *mcpserver.Server, logger *slog.Logger) error {
	if o.HTTP.Enabled() {
		return o.httpServer().serve(ctx, server, logger)
	}
	return server.ServeStdio(ctx, o.In, o.Out)
}

// scanMemory is the memory from which the garbage of a scan is collected more often again, in bytes.
const scanMemory = 192 << 20

// load reads the skills. A scan leaves little but garbage: collecting it less often during the scan shortens
// the start by a tenth at 1,000 skills and by a quarter at 10,000.
func load(ctx context.Context, server *mcpserver.Server) error {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(scanMemory))
	return server.Load(ctx)
}

// loadError turns an unknown preload into a usage error that lists the known names.
func loadError(err error) error {
	if missing, ok := errors.AsType[*skills.NotFoundError](err); ok {
		hint := "no skills are configured"
		if len(missing.Nearest) > 0 {
			hint = "use one of: " + strings.Join(missing.Nearest, ", ")
		}
		return exit.Usagef(hint, "--skill: no skill %q", missing.Name)
	}
	if ambiguous, ok := errors.AsType[*skills.AmbiguousError](err); ok {
		return exit.Usagef("use one of: "+strings.Join(ambiguous.Paths, ", "),
			"--skill: %q names more than one skill", ambiguous.Name)
	}
	return err
}
