package serve

import (
	"context"
	"errors"
	"log/slog"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/snapshot"
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
	facts         snapshot.Facts
	roots         []skills.Root
	Registry      *skills.Registry
	trees         *store.Store
	Records       *filestore.Store
	Detection     *detection // not started
	workspace     sandbox.Workspace
	workspacePath string // empty without one
	fromClient    func(session.ClientDir) (sandbox.Workspace, error)
	Version       string

	save func(context.Context)
}

// Prepare opens what the options name. The caller closes it.
func (o *Options) Prepare(pol *policy.Policy, facts snapshot.Facts, logger *slog.Logger) (p *prepared, err error) {
	p = &prepared{policy: pol, facts: facts, Version: o.Version, save: func(context.Context) {}}
	if p.roots, err = o.Roots.Resolve(o.Process); err != nil {
		return nil, err
	}
	if p.workspace, p.workspacePath, err = o.OpenWorkspace(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close(context.Background()))
		}
	}()
	if p.trees, p.Records, err = o.openStores(p.roots, p.workspacePath, p.workspace.Mode); err != nil {
		return p, err
	}
	path, _ := o.Process.Env("PATH")
	p.Detection = newDetection(o.Sandbox, path)
	private, err := o.privateFiles()
	if err != nil {
		return p, err
	}
	own := o.Process.OwnPaths()
	for _, file := range private {
		own = append(own, file.path)
	}
	p.Detection.interpreters.Keep(own...)
	if p.fromClient, err = o.clientWorkspaces(p.roots, p.workspace.Mode); err != nil {
		return p, err
	}
	registry, save, err := o.registry(p.roots, logger)
	if err != nil {
		return p, err
	}
	p.Registry, p.save = registry, save
	return p, nil
}

// Close keeps what the next start uses and releases the rest. Sessions have ended before.
func (p *prepared) Close(ctx context.Context) (err error) {
	p.save(ctx)
	if p.Records != nil {
		err = p.Records.Close()
	}
	if p.workspace.Dir != nil {
		err = errors.Join(err, p.workspace.Dir.Close())
	}
	return err
}

// Sessions are those of the process; what they record goes into records.
//
// Errors: *exitError for an entry of the allowlist that cannot be meant.
func (o *Options) Sessions(ctx context.Context, p *prepared, records provenance.Store, logger *slog.Logger) (*session.Sessions, error) {
	sessions := session.New(session.Config{
		Registry: p.Registry, Policy: p.policy, Trees: p.trees, Records: records,
		Runner: p.Detection.runner, Host: host.New(), Interpreter: p.Detection.interpreter,
		Facts: recorded(p.facts, p.workspacePath, p.Records, p.Detection), Workspace: p.workspace, ClientWorkspace: p.fromClient,
		Limits: o.Limits.Sandbox(), Concurrent: o.Limits.Concurrent, Env: o.Process.Env, Secret: o.Process.Secret, MaxRemote: filestore.MaxOpen(),
		RefuseDrift: o.Drift == "refuse", NamesInErrors: !o.NoCatalog, Version: p.Version, Logger: logger,
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
	return exit.Usagef("mend the entry's network, or its secret", "%w", err)
}
