package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// serve are the options that serve would have, or why it would have none.
func (o *doctorOptions) serve() (*serveOptions, error) {
	if err := o.Serve.configure(o.all); err != nil {
		return nil, err
	}
	return &o.Serve, nil
}

// checkServe makes the checks that serve makes before it listens. Nothing is written, and what is
// listened on is let go at once.
func (o *doctorOptions) checkServe(ctx context.Context, serve *serveOptions) []check {
	var checks []check
	for _, step := range []func(context.Context) error{
		serve.checkPolicy, serve.checkOwnPlaces, serve.checkSigner, serve.checkPreload, serve.checkResume, serve.checkHTTP, serve.checkMetrics,
	} {
		if err := step(ctx); err != nil {
			checks = append(checks, o.refusal(err, &serve.app.cfg))
		}
	}
	for _, key := range serve.readableKeys() {
		checks = append(checks, check{Verdict: warn, Area: "serve", Fact: "others can read the key " + key[1] + " of " + key[0], Hint: "run: chmod go-r " + shellLine([]string{key[1]})})
	}
	return checks
}

// refusal is the line for what serve would refuse. An address that is taken may be that of a server of
// this very configuration.
func (o *doctorOptions) refusal(err error, cfg *configuration) check {
	c := check{Verdict: fail, Area: "serve"}
	fact := strings.ReplaceAll(err.Error(), "\n", "; ")
	for _, note := range cfg.notes(fact) {
		fact += "; " + note
	}
	c.Fact = fact
	if exit, ok := errors.AsType[*exitError](err); ok {
		c.Hint = cmp.Or(exit.Hint, systemHint(err), flagHint("skillsd doctor", o.Flags, exit.Flag))
	}
	if errors.Is(err, addressTaken) {
		c.Verdict, c.Hint = warn, "nothing is wrong if that is a server of this configuration; else: "+c.Hint
	}
	return c
}

func (o *serveOptions) checkPolicy(ctx context.Context) error {
	if _, err := newLogger(o.app.err, o.LogLevel, o.LogFormat, true); err != nil {
		return err
	}
	pol, _, err := o.decided()
	if err != nil {
		return err
	}
	return o.checkEntries(ctx, pol)
}

// checkEntries refuses what the start of sessions would refuse of allowed scripts.
func (o *serveOptions) checkEntries(ctx context.Context, pol *policy.Policy) error {
	sessions := session.New(session.Config{Policy: pol, Env: o.app.env, Secret: o.app.secret, Logger: slog.New(slog.DiscardHandler)})
	return entriesError(sessions.CheckEntries(ctx))
}

func (o *serveOptions) checkOwnPlaces(context.Context) error {
	roots, err := o.Roots.resolve(o.app)
	if err != nil {
		return nil // which the check of the roots says
	}
	workspace, path, err := o.workspace()
	if err != nil {
		return err
	}
	if workspace.Dir != nil {
		defer workspace.Dir.Close()
	}
	if _, err := o.clientWorkspaces(roots, workspace.Mode); err != nil {
		return err
	}
	_, _, err = o.ownPlaces(roots, path, workspace.Mode)
	return err
}

func (o *serveOptions) checkSigner(context.Context) error {
	_, err := readSigner(o.Records.SignKey)
	return err
}

// checkPreload refuses names of skills that are not served.
func (o *serveOptions) checkPreload(ctx context.Context) error {
	if len(o.Skills) == 0 {
		return nil
	}
	roots, err := o.Roots.resolve(o.app)
	if err != nil {
		return nil
	}
	scan := o.Roots.scanOptions()
	if err := o.Choice.apply(scan, o.app); err != nil {
		return err
	}
	snapshot, err := skills.Scan(ctx, roots, scan)
	if err != nil {
		return nil
	}
	for _, name := range o.Skills {
		if _, err := snapshot.Lookup(name); err != nil {
			return loadError(err)
		}
	}
	return nil
}

func (o *serveOptions) checkResume(context.Context) error {
	if o.Resume.Session == "" {
		return nil
	}
	_, _, err := o.app.findSession(o.Resume.Session)
	return err
}

func (o *serveOptions) checkHTTP(ctx context.Context) error {
	if !o.HTTP.enabled() {
		return nil
	}
	discard := slog.New(slog.DiscardHandler)
	if o.HTTP.Unix != "" {
		if _, _, err := o.HTTP.prepare(discard); err != nil {
			return err
		}
		return checkSocket(ctx, o.HTTP.Unix)
	}
	listener, _, err := o.HTTP.open(ctx, discard)
	if err != nil {
		return err
	}
	return listener.Close()
}

func (o *serveOptions) checkMetrics(ctx context.Context) error {
	if err := o.Metrics.check(); err != nil || o.Metrics.Addr == "" {
		return err
	}
	listener, err := o.Metrics.listen(ctx)
	if err != nil {
		return err
	}
	return listener.Close()
}
