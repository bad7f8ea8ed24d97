// Package serve builds and runs a server of skills from its configuration.
package serve

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store"
	"github.com/skillsd/skillsd/skills/watch"
)

// Run is the start of the server, top to bottom: configuration, logger, records, sandbox
// detection and first scan side by side, then the transport.
func (o *Options) Run(ctx context.Context) (err error) {
	_, noColor := o.Process.Env("NO_COLOR")
	logger, err := NewLogger(o.Err, o.LogLevel, o.LogFormat, noColor)
	if err != nil {
		return err
	}
	pol, facts, err := o.Decided()
	if err != nil {
		return err
	}
	p, err := o.Prepare(pol, facts, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	observed, err := o.observe(ctx, p.Records, p.Registry, logger)
	if err != nil {
		return err
	}
	defer observed.end(ctx)
	sessions, err := o.Sessions(ctx, p, observed.records, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sessions.End(context.WithoutCancel(ctx))) }()
	server := mcpserver.New(o.binding(mcpserver.Config{Workspace: p.workspace.Dir != nil, Version: p.Version, Registry: p.Registry, Sessions: sessions, Policy: pol, Traces: observed.Traces, Metrics: observed.Meters, Logger: logger}))
	o.logStart(ctx, p.roots, pol, p.workspace.Dir != nil, logger)
	if pol.Offers(mcpserver.ToolRun) {
		p.Detection.Start(ctx, logger)
		defer p.Detection.End()
	}
	return o.serve(ctx, server, p.Registry, sessions.Logger(logger))
}

// binding completes the configuration of the server with what flags and environment say of clients.
func (o *Options) binding(cfg mcpserver.Config) mcpserver.Config {
	cfg.Preload, cfg.NoCatalog, cfg.AlwaysSearch, cfg.Watching = o.Skills, o.NoCatalog, o.Search == "always", o.watches()
	cfg.ClientSession, _ = o.Process.Env("CLAUDE_CODE_SESSION_ID")
	cfg.ClientDir, _ = o.Process.Env("CLAUDE_PROJECT_DIR")
	cfg.AskWorkspace = o.FromClient
	return cfg
}

// registry makes the registry of the roots. save keeps the digests it knows for the next start.
func (o *Options) registry(roots []skills.Root, logger *slog.Logger) (registry *skills.Registry, save func(context.Context), err error) {
	scan := o.Roots.ScanOptions()
	if err := o.Choice.Apply(scan, o.Process); err != nil {
		return nil, nil, err
	}
	state, err := o.Process.StateDir()
	if err != nil {
		return nil, nil, err
	}
	scan.Cache = skills.NewCache(filepath.Join(state, "digests"))
	registry = skills.NewRegistry(roots, scan)
	save = func(ctx context.Context) {
		if err := scan.Cache.Save(registry.Snapshot()); err != nil {
			logger.WarnContext(ctx, "digests are not kept for the next start", tint.Err(err))
		}
	}
	return registry, save, nil
}

// watches reports whether the server follows changes on disk.
func (o *Options) watches() bool { return o.Watch && !o.NoWatch }

// ownPlaces returns where state and records are kept, outside of what is served and of what scripts see.
func (o *Options) ownPlaces(roots []skills.Root, workspace string, mode sandbox.WorkspaceMode) (state, artifacts string, err error) {
	if state, err = o.Process.StateDir(); err != nil {
		return "", "", err
	}
	if artifacts, err = o.Process.ArtifactDir(); err != nil {
		return "", "", err
	}
	config, err := o.Process.ConfigPlace()
	if err != nil {
		return "", "", err
	}
	if err := checkPlaces(roots, config, state, artifacts, workspace, mode); err != nil {
		return "", "", err
	}
	if err := o.checkPrivate(roots, workspace); err != nil {
		return "", "", err
	}
	return state, artifacts, nil
}

// openStores opens what the server writes: stored trees and records.
func (o *Options) openStores(roots []skills.Root, workspace string, mode sandbox.WorkspaceMode) (*store.Store, *filestore.Store, error) {
	state, artifacts, err := o.ownPlaces(roots, workspace, mode)
	if err != nil {
		return nil, nil, err
	}
	trees, err := store.Open(state)
	if err != nil {
		return nil, nil, exit.Place("state directory", "--state", err)
	}
	records, err := o.openRecords(artifacts)
	if err != nil {
		return nil, nil, errors.Join(exit.Place("artifact root", "--artifact-root", err), trees.Close())
	}
	return trees, records, nil
}

// serve runs the transport beside the first scan and, after it, the watch. What the operator named
// and is not there ends the server before it answers anything.
func (o *Options) serve(ctx context.Context, server *mcpserver.Server, registry *skills.Registry, logger *slog.Logger) error {
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
			if err := watch.Run(background, registry, watch.Options{Logger: logger, OnChange: func(ctx context.Context, diff skills.Diff) {
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

// scanMemory is where the garbage of a scan is collected more often again, in bytes.
const scanMemory = 192 << 20

// load reads the skills. A scan leaves little but garbage, and collecting it less often while it
// goes on shortens the start by a tenth at 1,000 skills and a quarter at 10,000.
func load(ctx context.Context, server *mcpserver.Server) error {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(scanMemory))
	return server.Load(ctx)
}

// loadError turns an unknown preload into a usage error that lists the names there are.
func loadError(err error) error {
	if missing, ok := errors.AsType[*skills.NotFoundError](err); ok {
		hint := "no skills are configured"
		if len(missing.Nearest) > 0 {
			hint = "use one of: " + strings.Join(missing.Nearest, ", ")
		}
		return exit.Usagef(hint, "--skill: no skill %q", missing.Name)
	}
	if ambiguous, ok := errors.AsType[*skills.AmbiguousError](err); ok {
		return exit.Usagef("use one of: "+strings.Join(ambiguous.Paths, ", "), "--skill: %q names more than one skill", ambiguous.Name)
	}
	return err
}
