package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/host"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store"
)

// prepared is what the options make for the sessions of a process, whoever their calls come from.
type prepared struct {
	policy        *policy.Policy
	facts         session.Facts
	roots         []skills.Root
	registry      *skills.Registry
	trees         *store.Store
	records       *filestore.Store
	detection     *detection // not started
	workspace     sandbox.Workspace
	workspacePath string // empty without one
	fromClient    func(session.ClientDir) (sandbox.Workspace, error)
	version       string

	save func(context.Context)
}

// prepare opens what the options name. The caller closes it.
func (o *serveOptions) prepare(pol *policy.Policy, facts session.Facts, logger *slog.Logger) (p *prepared, err error) {
	p = &prepared{policy: pol, facts: facts, version: readBuild().Version, save: func(context.Context) {}}
	if p.roots, err = o.Roots.resolve(o.app); err != nil {
		return nil, err
	}
	if p.workspace, p.workspacePath, err = o.workspace(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close(context.Background()))
		}
	}()
	if p.trees, p.records, err = o.openStores(p.roots, p.workspacePath, p.workspace.Mode); err != nil {
		return p, err
	}
	path, _ := o.app.env("PATH")
	p.detection = newDetection(o.Sandbox, path)
	private, err := o.privateFiles()
	if err != nil {
		return p, err
	}
	p.detection.interpreters.Keep(o.app.ownPaths(private...)...)
	if p.fromClient, err = o.clientWorkspaces(p.roots, p.workspace.Mode); err != nil {
		return p, err
	}
	registry, save, err := o.registry(p.roots, logger)
	if err != nil {
		return p, err
	}
	p.registry, p.save = registry, save
	return p, nil
}

// close keeps what the next start uses and releases the rest. Sessions have ended before.
func (p *prepared) close(ctx context.Context) (err error) {
	p.save(ctx)
	if p.records != nil {
		err = p.records.Close()
	}
	if p.workspace.Dir != nil {
		err = errors.Join(err, p.workspace.Dir.Close())
	}
	return err
}

// sessions are those of the process; what they record goes into records.
//
// Errors: *exitError for an entry of the allowlist that cannot be meant.
func (o *serveOptions) sessions(ctx context.Context, p *prepared, records provenance.Store, logger *slog.Logger) (*session.Sessions, error) {
	sessions := session.New(session.Config{
		Registry: p.registry, Policy: p.policy, Trees: p.trees, Records: records,
		Runner: p.detection.runner, Host: host.New(), Interpreter: p.detection.interpreter,
		Facts: recorded(p.facts, p.workspacePath, p.records, p.detection), Workspace: p.workspace, ClientWorkspace: p.fromClient,
		Limits: o.Limits.limit, Concurrent: o.Limits.concurrent, Env: o.app.env, Secret: o.app.secret, MaxRemote: filestore.MaxOpen(),
		RefuseDrift: o.Drift == "refuse", NamesInErrors: !o.NoCatalog, Version: p.version, Logger: logger,
	})
	if err := entriesError(sessions.CheckEntries(ctx)); err != nil {
		return nil, err
	}
	return sessions, nil
}

// entriesError is that an entry of the allowlist cannot be meant.
func entriesError(err error) error {
	if err == nil {
		return nil
	}
	return usageError("mend the entry's network, or its secret", "%w", err)
}
