// Package serve builds and runs a server of skills from its configuration.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/cmd/skillsd/clients"
	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/garbage"
	"github.com/skillsd/skillsd/cmd/skillsd/owners"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/catalog"
	"github.com/skillsd/skillsd/skills/policy"
)

// Run makes a plan and runs the server until ctx or its transport ends. The server answers requests while it
// tests the sandbox and scans the skills.
func (o *Options) Run(ctx context.Context) (err error) {
	logger, err := NewLogger(o.Err, o.LogLevel, o.LogFormat, !bool(report.NewPaint(o.Process.Env, o.Err)))
	if err != nil {
		return err
	}
	if !o.HTTP.Enabled() {
		var release func()
		// Over HTTP a server has many clients, and none of them started it.
		ctx, release = withParent(ctx, logger)
		defer release()
	}
	p := o.Plan()
	defer func() { err = errors.Join(err, p.Close(ctx, logger)) }()
	if err := p.Err(); err != nil {
		return err
	}
	if err := p.Open(ctx, logger); err != nil {
		return err
	}
	release, err := p.takeRecords(ctx)
	if err != nil {
		return err
	}
	defer release()
	observed, err := o.observe(ctx, p.Records, p.Registry, logger)
	if err != nil {
		return err
	}
	defer observed.end(ctx)
	sessions, err := p.Sessions(ctx, observed.records, logger)
	if err != nil {
		return err
	}
	// ctx may have ended, but the end of a session must still be recorded. Deferred calls run in reverse
	// order, so sessions end before their stores are closed.
	defer func() { err = errors.Join(err, sessions.End(context.WithoutCancel(ctx))) }()
	endPage, err := o.openPage(ctx, p, sessions, logger)
	if err != nil {
		return err
	}
	defer endPage()
	cfg := o.serverConfig(p, sessions, observed, logger)
	defer o.countUses(ctx, &cfg, logger)()
	o.warnNoDirectory(ctx, &cfg, logger)
	reloads := p.reloads(ctx, sessions, sessions.Logger(logger))
	if reloads != nil {
		cfg.Refresh = reloads.refresh
	}
	p.logStart(ctx, logger)
	defer p.Detection.End()
	p.detect(ctx, logger)
	collecting, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { p.collect(collecting, sessions.GiveUp, logger) })
	defer group.Wait()
	defer stop()
	server := mcpserver.New(cfg)
	if reloads != nil {
		reloads.publish = server.Publish
		group.Go(func() { reloads.follow(collecting) })
	}
	return o.serve(ctx, server, p, sessions.Logger(logger))
}

// takeRecords keeps other servers from the directory of records until release is called: two with one
// directory would not know of each other's refusals and approvals. On stdio, in a cluster, and where the
// operator shares the records, it does nothing.
func (p *Plan) takeRecords(ctx context.Context) (release func(), err error) {
	o := p.options
	if !o.HTTP.Enabled() || o.HTTP.SharedRecords || p.Cluster != nil {
		return func() {}, nil
	}
	unlock, err := filestore.Serve(p.own.records.path)
	if err != nil {
		return nil, p.besideServed(ctx, err)
	}
	return func() { _ = unlock() }, nil
}

// detect starts the detection of the sandbox, if scripts can run and run here.
func (p *Plan) detect(ctx context.Context, logger *slog.Logger) {
	switch {
	case !p.Policy.Offers(mcpserver.ToolRun):
	case p.Cluster != nil && p.Cluster.Pool != nil:
		p.Detection.without(errElsewhere(p.options.Cluster.Pool))
	default:
		p.Detection.Start(ctx, logger, true)
	}
}

// warnNoDirectory warns if scripts see no directory of a client that names none.
func (o *Options) warnNoDirectory(ctx context.Context, cfg *mcpserver.Config, logger *slog.Logger) {
	if !o.HTTP.Enabled() && o.FromClient && cmp.Or(cfg.ClientDir, cfg.StartDir) == "" {
		logger.WarnContext(ctx, "--workspace-from-client has no effect for a client that names no "+
			"directory: the server was started in a home directory or in /", slog.String("dir", cfg.WorkDir))
	}
}

// serverConfig returns the configuration of the server, but for what counts uses and what reloads.
func (o *Options) serverConfig(
	p *Plan, sessions *session.Sessions, observed *observation, logger *slog.Logger,
) mcpserver.Config {
	cfg := mcpserver.Config{
		Version: o.Version, Registry: p.Registry, Sessions: sessions,
		Traces: observed.Traces, Metrics: observed.Meters, Logger: logger,
		Preload: o.Skills, NoCatalog: o.NoCatalog, AlwaysSearch: o.Search == "always",
		CatalogBudget: int(o.CatalogBudget),
		Roots:         o.lookedFor(),
		Watching:      o.watches(), AskWorkspace: o.FromClient, Workspace: p.WorkspacePath,
	}
	if p.last != nil {
		cfg.Last = p.last.Read
	}
	if p.Cluster != nil {
		cfg.Holders = p.Cluster
	}
	cfg.ClientSession, _ = o.Process.Env("CLAUDE_CODE_SESSION_ID")
	cfg.ClientDir, _ = o.Process.Env("CLAUDE_PROJECT_DIR")
	if o.HTTP.Enabled() {
		return cfg
	}
	dir, err := os.Getwd()
	if err == nil { // else the directory was removed, so arguments cannot name files in it
		cfg.WorkDir = dir
	}
	// Desktop clients start servers in the home directory or in /, which are not projects.
	if !o.isHome(cfg.WorkDir) {
		cfg.StartDir = cfg.WorkDir
	}
	return cfg
}

// lookedFor describes where the server searches for skills, in words that clients may see.
func (o *Options) lookedFor() string {
	const installed = "what `skillsd install` installs"
	switch {
	case o.Roots.NoDefaults && len(o.Roots.Specs) == 0:
		return ""
	case len(o.Roots.Specs) > 0 && o.Roots.NoDefaults:
		return "the configured directories"
	case len(o.Roots.Specs) > 0:
		return "the configured directories and in " + installed
	}
	conventional := "skills, .agents/skills, .claude/skills and .github/skills of the directory in which " +
		"the server was started, in .agents/skills and .claude/skills of the home directory"
	if client := clients.Named(o.Roots.Client); client != nil {
		conventional += " (but for those that " + client.Title + " loads itself)"
	}
	return conventional + ", and in " + installed
}

// isHome reports whether a directory is a home directory, contains them, or is empty or the root: no client
// works on the whole of it.
func (o *Options) isHome(dir string) bool {
	if dir == "" || filepath.Dir(dir) == dir {
		return true
	}
	homes := []string{}
	if home, ok := o.Process.Env("HOME"); ok {
		homes = append(homes, home)
	}
	if account, err := user.Current(); err == nil {
		homes = append(homes, account.HomeDir)
	}
	return slices.ContainsFunc(homes, func(home string) bool {
		return filepath.IsAbs(home) && config.Inside(home, dir)
	})
}

// watches reports whether the server follows changes on disk.
func (o *Options) watches() bool { return o.Watch && !o.NoWatch }

// logStart logs what is served, and which parts of the configuration have no effect.
func (p *Plan) logStart(ctx context.Context, logger *slog.Logger) {
	o, transport := p.options, "stdio"
	switch {
	case o.HTTP.Unix != "":
		transport = "unix"
	case o.HTTP.Addr != "":
		transport = "http"
	}
	logger.InfoContext(ctx, "start", slog.String("transport", transport), slog.Int("roots", p.present()))
	if p.present() == 0 {
		none := o.Roots.NoRoots(o.Process)
		logger.WarnContext(ctx, none.Error(), slog.String("hint", none.Hint))
	}
	if len(o.AllowTools) > 0 != (len(o.AllowScripts) > 0) {
		logger.WarnContext(ctx, "run_skill_script is not offered: it needs both "+
			"--allow-tool run_skill_script and --allow-skill-script")
	}
	for _, problem := range p.Problems {
		var hint string
		if mends, ok := errors.AsType[*exit.Error](problem.Err); ok {
			hint = mends.Hint
		}
		logger.WarnContext(ctx, problem.Err.Error(), slog.String("hint", hint))
	}
	if !p.Policy.Offers(mcpserver.ToolRun) {
		return
	}
	for _, entry := range p.Policy.Entries() {
		if p.Policy.Unreleased(entry, p.Workspace.Dir != nil) {
			logger.WarnContext(ctx, "every run of an allowed script is refused: "+Unreleased(entry),
				slog.String("script", entry.Spec()), slog.String("hint", HintUnreleased))
		}
	}
}

// HintUnreleased is the hint for the reason that Unreleased returns.
const HintUnreleased = "set release: observed, or release: opaque, on its entry or with --release"

// Unreleased returns why the output of an entry needs a release for clients. A run that the user types in a
// terminal needs none.
func Unreleased(entry policy.Entry) string {
	reason := "it sees the project directory"
	switch {
	case entry.Target == policy.TargetHost:
		reason = "it runs on the host"
	case len(entry.Network) > 0:
		reason = "it may reach hosts"
	case len(entry.Env)+len(entry.Secrets) > 0:
		reason = "it gets variables or secrets"
	}
	return reason + ", and its output is not released to clients"
}

// restAfter is how long after the first scan a server does its deferred work, which no client waits for.
const restAfter = 100 * time.Millisecond

// collectUsually ends the delay of garbage collection. The limit of the control group takes reading several
// files of the kernel; the limit of the delay is below it until then.
func collectUsually() {
	garbage.Within(native.GroupMemory())
	garbage.Usual()
}

// serve runs the transport and, concurrently, the first scan and then the watch. It returns an error before
// it answers any client if a skill, root or session that the operator named is missing.
func (o *Options) serve(ctx context.Context, server *mcpserver.Server, p *Plan, logger *slog.Logger) error {
	// Only with these options can the result of the scan prevent the start. Otherwise clients need not wait
	// for the scan.
	loaded := len(o.Skills) > 0 || o.Roots.Strict || o.Resume.Session != "" || p.Cluster != nil
	if loaded {
		if err := report.LookupError(exit.Usage, "--skill: ", server.Load(ctx)); err != nil {
			return err
		}
		if err := o.resume(ctx, server); err != nil {
			return err
		}
		// It needs the skills, whose digests are compared, and comes before the first request is answered.
		if err := p.join(ctx); err != nil {
			return err
		}
	}
	background, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		if loaded || load(background, server, logger) {
			p.rest(ctx, background, server, logger)
		}
	})
	defer group.Wait()
	defer stop()
	if o.HTTP.Enabled() {
		return o.serveHTTP(ctx, server, p.Cluster, logger)
	}
	if report.IsTerminal(o.In) {
		fmt.Fprintln(o.Err, "skillsd: note: this server waits for an MCP client on its input, which is "+
			"your terminal")
		fmt.Fprintln(o.Err, "skillsd: hint: an MCP client starts it automatically after `skillsd setup "+
			"claude --write`; Ctrl-C ends this one")
	}
	if o.Begins != nil {
		o.Begins()
	}
	return server.ServeStdio(ctx, o.In, o.Out)
}

// load makes the first scan, and reports whether the server has skills. It logs an error, unless ctx ended.
func load(ctx context.Context, server *mcpserver.Server, logger *slog.Logger) bool {
	err := server.Load(ctx)
	if err == nil {
		return true
	}
	collectUsually()
	if ctx.Err() == nil {
		logger.ErrorContext(ctx, "skills could not be loaded", tint.Err(err))
	}
	return false
}

// rest does what follows the first scan: it warns of skills and scripts, keeps the scan for the next server,
// and follows changes on disk until background ends. What is found before is reported also after that.
func (p *Plan) rest(ctx, background context.Context, server *mcpserver.Server, logger *slog.Logger) {
	registry := p.Registry
	installed := &origins{state: p.own.state.path, registry: registry}
	pins := &pinWarner{serve: p.options, installed: installed.installed, logger: logger}
	pins.warn(ctx, registry.Snapshot())
	// Leave the time for the client's first requests; the watch finds changes made meanwhile.
	select {
	case <-time.After(restAfter):
	case <-background.Done():
	}
	collectUsually()
	// Report other users with write access to skills even if the server ended quickly.
	warnOfOthers(ctx, registry.Snapshot(), logger)
	if background.Err() != nil {
		return
	}
	p.keepScan(ctx, logger) // many clients kill a server without a warning
	if !p.options.watches() {
		return
	}
	p.follow(background, logger, func(ctx context.Context, diff skills.Diff) {
		server.Reloaded(ctx, diff)
		p.changedAlone(ctx, diff, logger)
		pins.warn(ctx, registry.Snapshot())
	})
}

// warnOfOthers warns of roots that users other than this one and root can change. Roots of the least trusted
// tier are exempt.
func warnOfOthers(ctx context.Context, snapshot *skills.Snapshot, logger *slog.Logger) {
	look := owners.New()
	for i := range snapshot.Roots {
		root := &snapshot.Roots[i]
		if root.Tier == skills.LeastTrusted() {
			continue
		}
		if others := look.Root(root, snapshot.Skills, false); others != "" {
			logger.WarnContext(ctx, "other users can change served skills", slog.String("root", root.Dir),
				slog.String("tier", root.Tier.String()), slog.String("who", others),
				slog.String("hint", owners.Hint(root)))
		}
	}
}

// resume makes the resumed session the session of the process, before any request is answered.
func (o *Options) resume(ctx context.Context, server *mcpserver.Server) error {
	if o.Resume.Session == "" {
		return nil
	}
	id, err := o.FindSession(ctx, o.Resume.Session)
	if err != nil {
		return err
	}
	err = server.Resume(ctx, id, o.Resume.Drift == "reload")
	if drifted, ok := errors.AsType[*earlier.DriftedError](err); ok {
		var lines strings.Builder
		for _, d := range drifted.Drifts {
			lines.WriteString("\n  " + d.String())
		}
		return exit.Errorf(exit.Failure,
			"review the change and add --resume-drift reload, or start without --resume",
			"--resume %s: skills have changed since the session loaded them:%s", id, &lines)
	}
	if errors.Is(err, provenance.ErrUnavailable) {
		// The texts before the cause repeat the session.
		cause := err.Error()
		cause = strings.TrimSpace(cause[strings.LastIndexByte(cause, ':')+1:])
		return exit.Errorf(exit.Failure, "if another server uses the session, stop it first",
			"--resume %s: the session cannot be written to: %s", id, cause)
	}
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	return nil
}

// NewLogger returns the server's logger. It writes to stderr only: stdout is for the protocol.
func NewLogger(w io.Writer, level, format string, noColor bool) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil || strings.ContainsAny(level, "+-") {
		return nil, exit.Usagef("use debug, info, warn or error", "--log-level: unknown level %q", level)
	}
	terminal := report.IsTerminal(w)
	switch {
	case format == "text", format == "auto" && terminal:
		return TextLogger(w, l, noColor || !terminal), nil
	case format == "json", format == "auto":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})), nil
	}
	return nil, exit.Usagef("use auto, text or json", "--log-format: unknown format %q", format)
}

// TextLogger returns a logger for a person.
func TextLogger(w io.Writer, level slog.Level, noColor bool) *slog.Logger {
	return slog.New(tint.NewTextHandler(w, &tint.Options{Level: level, NoColor: noColor,
		TimeFormat: time.TimeOnly}))
}

// countUses orders the server's catalogue by earlier loads on this machine, and counts new loads; end writes
// the last of them. Errors of counting prevent neither the start nor a load.
func (o *Options) countUses(ctx context.Context, cfg *mcpserver.Config, logger *slog.Logger) (end func()) {
	state, err := o.Process.StateDir()
	if err != nil || o.CatalogOrder != config.OrderUsed || o.NoCatalog {
		return func() {}
	}
	file := filepath.Join(state, "uses")
	cfg.Uses, err = catalog.LoadsOf(file)
	if err != nil {
		logger.WarnContext(ctx, "the catalog is ordered by name", tint.Err(err))
	}
	counter := catalog.NewLoadCounter(file, func(err error) {
		logger.DebugContext(ctx, "uses cannot be counted", tint.Err(err))
	})
	cfg.Used = counter.Add
	return counter.Flush
}
