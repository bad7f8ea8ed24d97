package serve

import (
	"context"
	"log/slog"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// CheckPolicy refuses options that a server would not start with.
func (o *Options) CheckPolicy(ctx context.Context) error {
	if _, err := NewLogger(o.Err, o.LogLevel, o.LogFormat, true); err != nil {
		return err
	}
	pol, _, err := o.Decided()
	if err != nil {
		return err
	}
	return o.checkEntries(ctx, pol)
}

// checkEntries refuses what the start of sessions would refuse of allowed scripts.
func (o *Options) checkEntries(ctx context.Context, pol *policy.Policy) error {
	sessions := session.New(session.Config{Policy: pol, Env: o.Process.Env, Secret: o.Process.Secret, Logger: slog.New(slog.DiscardHandler)})
	return entriesError(sessions.CheckEntries(ctx))
}

// CheckOwnPlaces refuses a layout of directories that a server would not start with.
func (o *Options) CheckOwnPlaces(context.Context) error {
	roots, err := o.Roots.Resolve(o.Process)
	if err != nil {
		return nil // which the check of the roots says
	}
	workspace, path, err := o.OpenWorkspace()
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

// CheckSigner refuses a key that cannot sign.
func (o *Options) CheckSigner(context.Context) error {
	_, err := readSigner(o.Records.SignKey)
	return err
}

// CheckPreload refuses names of skills that are not served.
func (o *Options) CheckPreload(ctx context.Context) error {
	if len(o.Skills) == 0 {
		return nil
	}
	roots, err := o.Roots.Resolve(o.Process)
	if err != nil {
		return nil
	}
	scan := o.Roots.ScanOptions()
	if err := o.Choice.Apply(scan, o.Process); err != nil {
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

// CheckResume refuses a session that there is not.
func (o *Options) CheckResume(ctx context.Context) error {
	if o.Resume.Session == "" {
		return nil
	}
	_, err := o.FindSession(ctx, o.Resume.Session)
	return err
}

// CheckHTTP refuses what listening over HTTP would fail with.
func (o *Options) CheckHTTP(ctx context.Context) error {
	if !o.HTTP.Enabled() {
		return nil
	}
	discard := slog.New(slog.DiscardHandler)
	if o.HTTP.Unix != "" {
		if _, _, err := o.httpServer().prepare(discard); err != nil {
			return err
		}
		return checkSocket(ctx, o.HTTP.Unix)
	}
	listener, _, err := o.httpServer().open(ctx, discard)
	if err != nil {
		return err
	}
	return listener.Close()
}

// CheckMetrics refuses what listening for metrics would fail with.
func (o *Options) CheckMetrics(ctx context.Context) error {
	if err := o.metrics().check(); err != nil || o.Metrics.Addr == "" {
		return err
	}
	listener, err := o.metrics().listen(ctx)
	if err != nil {
		return err
	}
	return listener.Close()
}
