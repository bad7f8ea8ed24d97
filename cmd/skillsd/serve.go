package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store"
	"github.com/skillsd/skillsd/skills/watch"
)

func newServeCmd(a *app) *cobra.Command {
	opts := &serveOptions{app: a}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve skills over stdio or HTTP",
		Long: "Serve skills to one MCP client over stdin and stdout, or with --http or --unix to many over HTTP. Without\n" +
			"--skills-root the conventional directories are served: ./skills, ./.agents/skills and ./.claude/skills\n" +
			"(untrusted), ~/.agents/skills and ~/.claude/skills. What `skillsd install` installed is served as well.\n\n" +
			"Nothing may run unless it is allowed twice, the tool and the exact script:\n\n" +
			"  skillsd serve --skills-root ./skills --allow-tool run_skill_script \\\n" +
			"    --allow-skill-script pdf:scripts/extract.py \\\n" +
			"    --prompt-slot-role direct-command\n\n" +
			"Every flag can be told in the environment and in a file as well: see `skillsd config --help`.",
		Args: cobra.NoArgs,
		RunE: runE(func(ctx context.Context, _ []string) error { return opts.run(ctx) }),
	}
	opts.register(cmd.Flags())
	return cmd
}

// run is the start of the server, top to bottom: configuration, logger, records, sandbox
// detection and first scan side by side, then the transport.
func (o *serveOptions) run(ctx context.Context) (err error) {
	_, noColor := o.app.env("NO_COLOR")
	logger, err := newLogger(o.app.err, o.LogLevel, o.LogFormat, noColor)
	if err != nil {
		return err
	}
	pol, facts, err := o.decided()
	if err != nil {
		return err
	}
	p, err := o.prepare(pol, facts, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	observed, err := o.observe(ctx, p.records, p.registry, logger)
	if err != nil {
		return err
	}
	defer observed.end(ctx)
	sessions, err := o.sessions(ctx, p, observed.records, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sessions.End(context.WithoutCancel(ctx))) }()
	server := mcpserver.New(o.binding(mcpserver.Config{Workspace: p.workspace.Dir != nil, Version: p.version, Registry: p.registry, Sessions: sessions, Policy: pol, Traces: observed.spans(), Logger: logger}))
	o.logStart(ctx, p.roots, pol, p.workspace.Dir != nil, logger)
	if pol.Offers(mcpserver.ToolRun) {
		p.detection.start(ctx, logger)
		defer p.detection.end()
	}
	return o.serve(ctx, server, p.registry, sessions.Logger(logger))
}

// binding completes the configuration of the server with what flags and environment say of clients.
func (o *serveOptions) binding(cfg mcpserver.Config) mcpserver.Config {
	cfg.Preload, cfg.NoCatalog, cfg.AlwaysSearch, cfg.Watching = o.Skills, o.NoCatalog, o.Search == "always", o.watches()
	cfg.ClientSession, _ = o.app.env("CLAUDE_CODE_SESSION_ID")
	cfg.ClientDir, _ = o.app.env("CLAUDE_PROJECT_DIR")
	cfg.AskWorkspace = o.FromClient
	return cfg
}

// registry makes the registry of the roots. save keeps the digests it knows for the next start.
func (o *serveOptions) registry(roots []skills.Root, logger *slog.Logger) (registry *skills.Registry, save func(context.Context), err error) {
	scan := o.Roots.scanOptions()
	if err := o.Choice.apply(scan, o.app); err != nil {
		return nil, nil, err
	}
	state, err := o.app.stateDir()
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
func (o *serveOptions) watches() bool { return o.Watch && !o.NoWatch }

// ownPlaces returns where state and records are kept, outside of what is served and of what scripts see.
func (o *serveOptions) ownPlaces(roots []skills.Root, workspace string, mode sandbox.WorkspaceMode) (state, artifacts string, err error) {
	if state, err = o.app.stateDir(); err != nil {
		return "", "", err
	}
	if artifacts, err = o.app.artifactDir(); err != nil {
		return "", "", err
	}
	config, err := o.app.configPlace()
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
func (o *serveOptions) openStores(roots []skills.Root, workspace string, mode sandbox.WorkspaceMode) (*store.Store, *filestore.Store, error) {
	state, artifacts, err := o.ownPlaces(roots, workspace, mode)
	if err != nil {
		return nil, nil, err
	}
	trees, err := store.Open(state)
	if err != nil {
		return nil, nil, placeError("state directory", "--state", err)
	}
	records, err := o.Records.open(artifacts)
	if err != nil {
		return nil, nil, errors.Join(placeError("artifact root", "--artifact-root", err), trees.Close())
	}
	return trees, records, nil
}

// placeError is that a directory of the server's own cannot be used. An error that knows what mends it
// stays as it is.
func placeError(what, flag string, err error) error {
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit
	}
	return &exitError{Code: exitFailure, Err: fmt.Errorf("%s: %w", what, err), Hint: "give " + flag + " a directory of your own that can be written"}
}

// serve runs the transport beside the first scan and, after it, the watch. What the operator named
// and is not there ends the server before it answers anything.
func (o *serveOptions) serve(ctx context.Context, server *mcpserver.Server, registry *skills.Registry, logger *slog.Logger) error {
	loaded := len(o.Skills) > 0 || o.Roots.Strict || o.Resume.Session != ""
	if loaded {
		if err := loadError(load(ctx, server)); err != nil {
			return err
		}
		if err := o.Resume.resume(ctx, o.app, server); err != nil {
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
func (o *serveOptions) transport(ctx context.Context, server *mcpserver.Server, logger *slog.Logger) error {
	if o.HTTP.enabled() {
		return o.HTTP.serve(ctx, server, logger)
	}
	return server.ServeStdio(ctx, o.app.in, o.app.out)
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
		return usageError(hint, "--skill: no skill %q", missing.Name)
	}
	if ambiguous, ok := errors.AsType[*skills.AmbiguousError](err); ok {
		return usageError("use one of: "+strings.Join(ambiguous.Paths, ", "), "--skill: %q names more than one skill", ambiguous.Name)
	}
	return err
}
