package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/lmittmann/tint"
	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
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

// Plan has the parts of a server and the problems that keep it from starting. Making a plan changes nothing
// and does not listen. [Options.Run] runs a plan without problems; doctor prints the problems of one.
type Plan struct {
	Problems []Problem // in the order of the start

	options       *Options
	Policy        *policy.Policy // nil if it cannot be made
	facts         snapshot.Facts
	roots         []skills.Root
	scan          *skills.ScanOptions
	Workspace     sandbox.Workspace // without a directory if none is granted
	WorkspacePath string
	fromClient    func(session.ClientDir) (sandbox.Workspace, error) // nil if clients name no directories
	state         string
	artifacts     string
	private       []privateFile
	signer        note.Signer // nil without a key

	// These are set by Open.
	trees     *store.Store
	Records   *filestore.Store
	Detection *detection // not started
	Registry  *skills.Registry
}

// Problem is a fault of a plan.
type Problem struct {
	Severity skills.Severity // a server starts with warnings
	Err      error           // *exit.Error if it is known what mends it
}

// Plan returns the plan of a server with these options. The caller closes it.
func (o *Options) Plan() *Plan { return o.plan(o.Decided) }

// PlanRun returns the plan of a process that runs one script itself and serves no client. The caller
// closes it.
func (o *Options) PlanRun() *Plan {
	return o.plan(func() (*policy.Policy, snapshot.Facts, error) {
		facts, err := o.Facts()
		if err != nil {
			return nil, facts, err
		}
		pol, err := o.Policy()
		return pol, facts, err
	})
}

// plan finds as many problems as it can: a step is left out only if it needs the result of one that failed.
func (o *Options) plan(decide func() (*policy.Policy, snapshot.Facts, error)) *Plan {
	p := &Plan{options: o}
	var err error
	if p.Policy, p.facts, err = decide(); err != nil {
		p.Policy = nil
		p.fail(err)
	}
	for _, step := range []func() error{p.findRoots, p.openWorkspace, p.findPlaces, p.acceptDirectories} {
		// The later steps compare places with the roots and the workspace, so they need the first two.
		if err := step(); err != nil {
			p.fail(err)
			break
		}
	}
	if p.signer, err = readSigner(o.Records.SignKey); err != nil {
		p.fail(err)
	}
	for _, key := range [][2]string{{"--sign-key", o.Records.SignKey}, {"--tls-key", o.HTTP.Key}} {
		// Members of a group may have to read the key, so this is a warning and not an error.
		if info, err := os.Stat(key[1]); key[1] != "" && err == nil && config.OthersRead(info) {
			p.Problems = append(p.Problems, Problem{skills.Warning, &exit.Error{
				Err:  fmt.Errorf("others can read the key %s of %s", key[1], key[0]),
				Hint: "run: chmod go-r " + report.ShellLine(key[1]),
			}})
		}
	}
	return p
}

func (p *Plan) fail(err error) { p.Problems = append(p.Problems, Problem{skills.Error, err}) }

// Err returns the first problem that keeps the server from starting.
func (p *Plan) Err() error {
	for _, problem := range p.Problems {
		if problem.Severity == skills.Error {
			return problem.Err
		}
	}
	return nil
}

// errRoots marks that the roots cannot be found, which doctor reports with the roots.
type errRoots struct{ error }

func (e errRoots) Unwrap() error { return e.error }

// OfRoots reports whether a problem is that the roots cannot be found.
func (p Problem) OfRoots() bool {
	_, ok := errors.AsType[errRoots](p.Err)
	return ok
}

func (p *Plan) findRoots() (err error) {
	o := p.options
	if p.roots, err = o.Roots.Resolve(o.Process); err != nil {
		return errRoots{err}
	}
	p.scan = o.Roots.ScanOptions()
	return o.Choice.Apply(p.scan, o.Process)
}

func (p *Plan) openWorkspace() (err error) {
	p.Workspace, p.WorkspacePath, err = p.options.OpenWorkspace()
	return err
}

// findPlaces finds where state and records are kept, outside of what is served and of what scripts see.
func (p *Plan) findPlaces() (err error) {
	process := p.options.Process
	if p.state, err = process.StateDir(); err != nil {
		return err
	}
	if p.artifacts, err = process.ArtifactDir(); err != nil {
		return err
	}
	configFile, err := process.ConfigPlace()
	if err != nil {
		return err
	}
	if p.private, err = p.options.privateFiles(); err != nil {
		return err
	}
	err = checkPlaces(p.roots, configFile, p.state, p.artifacts, p.WorkspacePath, p.Workspace.Mode)
	if err != nil {
		return err
	}
	return p.checkPrivate()
}

// acceptDirectories accepts directories of clients, if the operator lets it.
func (p *Plan) acceptDirectories() error {
	o := p.options
	if !o.FromClient {
		return nil
	}
	if o.HTTP.Enabled() {
		return exit.Usagef("give --workspace DIR instead",
			"--workspace-from-client has no effect over HTTP, where clients work elsewhere")
	}
	configFile, err := o.Process.ConfigPlace()
	if err != nil {
		return err
	}
	own := []string{p.state, p.artifacts}
	for _, file := range p.private {
		own = append(own, file.path)
	}
	mode := p.Workspace.Mode
	if mode == "" || mode == sandbox.WorkspaceNone {
		mode = sandbox.WorkspaceRO
	}
	p.fromClient = (&clientWorkspaces{
		roots: p.roots, config: configFile, own: own, mode: mode, known: map[string]string{},
	}).open
	return nil
}

// Probe adds the problems that a start would find later: in the needs of allowlist entries, in the names of
// skills and sessions, and in addresses. It listens on addresses and closes them immediately. snapshot has
// the skills; it is nil if they cannot be read.
func (p *Plan) Probe(ctx context.Context, snapshot *skills.Snapshot) {
	o, discard := p.options, slog.New(slog.DiscardHandler)
	try := func(err error) {
		if errors.Is(err, AddressTaken) {
			p.Problems = append(p.Problems, Problem{skills.Warning, err})
		} else if err != nil {
			p.fail(err)
		}
	}
	if p.Policy != nil {
		try(entriesError(session.New(session.Config{
			Policy: p.Policy, Env: o.Process.Env, Secret: o.Process.Secret, Logger: discard,
		}).CheckEntries(ctx)))
	}
	for _, name := range o.Skills {
		if snapshot == nil {
			break
		}
		if _, err := snapshot.Lookup(name); err != nil {
			try(loadError(err))
			break
		}
	}
	if o.Resume.Session != "" {
		_, err := o.FindSession(ctx, o.Resume.Session)
		try(err)
	}
	switch {
	case o.HTTP.Unix != "":
		// Unlike open, checkSocket changes nothing: open would remove the socket of an ended server.
		_, _, err := o.httpServer().prepare(discard)
		if err == nil {
			err = checkSocket(ctx, o.HTTP.Unix)
		}
		try(err)
	case o.HTTP.Addr != "":
		listener, _, err := o.httpServer().open(ctx, discard)
		if err == nil {
			err = listener.Close()
		}
		try(err)
	}
	err := o.metrics().check()
	if err == nil && o.Metrics.Addr != "" {
		listener, listenErr := o.metrics().listen(ctx)
		if err = listenErr; err == nil {
			err = listener.Close()
		}
	}
	try(err)
}

// Open opens the stores of a server without problems, and prepares the detection of its sandbox and the
// registry of its skills.
func (p *Plan) Open() (err error) {
	o := p.options
	if p.trees, err = store.Open(p.state); err != nil {
		return exit.Place("state directory", "--state", err)
	}
	p.Records, err = filestore.Open(p.artifacts,
		&filestore.Options{Signer: p.signer, ForgetShown: !o.Records.KeepShown})
	if err != nil {
		return errors.Join(exit.Place("artifact root", "--artifact-root", err), p.trees.Close())
	}
	path, _ := o.Process.Env("PATH")
	p.Detection = newDetection(o.Sandbox, path)
	own := o.Process.OwnPaths()
	for _, file := range p.private {
		own = append(own, file.path)
	}
	// An interpreter that needs one of these directories would show it to scripts.
	p.Detection.interpreters.Keep(own...)
	p.scan.Cache = skills.NewCache(filepath.Join(p.state, "digests"))
	p.Registry = skills.NewRegistry(p.roots, p.scan)
	return nil
}

// Close saves the digests for the next start and closes the records and the workspace. Sessions must have
// ended.
func (p *Plan) Close(ctx context.Context, logger *slog.Logger) (err error) {
	if p.Registry != nil {
		if err := p.scan.Cache.Save(p.Registry.Snapshot()); err != nil {
			logger.WarnContext(ctx, "digests are not kept for the next start", tint.Err(err))
		}
	}
	if p.Records != nil {
		err = p.Records.Close()
	}
	if p.Workspace.Dir != nil {
		err = errors.Join(err, p.Workspace.Dir.Close())
	}
	return err
}

// Sessions returns the sessions of the process, which record into records.
//
// Errors: *exit.Error for an entry of the allowlist that cannot work.
func (p *Plan) Sessions(ctx context.Context, records provenance.Store,
	logger *slog.Logger) (*session.Sessions, error) {
	o, facts := p.options, p.facts
	facts.WorkspacePath, facts.KeepsShown, facts.Enforces = p.WorkspacePath, p.Records.KeepsShown(),
		p.Detection.enforces
	sessions := session.New(session.Config{
		Registry: p.Registry, Policy: p.Policy, Trees: p.trees, Records: records,
		Runner: p.Detection.runner, Host: host.New(), Interpreter: p.Detection.interpreter,
		Facts: facts, Workspace: p.Workspace, ClientWorkspace: p.fromClient,
		Limits: o.Limits.Sandbox(), Concurrent: o.Limits.Concurrent, Env: o.Process.Env,
		Secret:    o.Process.Secret,
		MaxRemote: filestore.MaxOpen(), RefuseDrift: o.Drift == "refuse", NamesInErrors: !o.NoCatalog,
		Version: o.Version, Logger: logger,
	})
	if err := entriesError(sessions.CheckEntries(ctx)); err != nil {
		return nil, err
	}
	return sessions, nil
}

// entriesError returns the error of an entry of the allowlist that cannot work.
func entriesError(err error) error {
	if err == nil {
		return nil
	}
	return exit.Usagef("mend the entry's network, or its secret", "%w", err)
}
