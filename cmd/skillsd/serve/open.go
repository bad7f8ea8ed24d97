package serve

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lmittmann/tint"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/mcpserver/admit"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/mcpserver/session/packages"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/sandbox/host"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store"
	"github.com/skillsd/skillsd/skills/watch"
)

// Open opens the stores of a server without problems, and prepares the detection of its sandbox and the
// registry of its skills.
func (p *Plan) Open(ctx context.Context, logger *slog.Logger) (err error) {
	o := p.options
	state := p.own.state.path
	p.trees, err = store.Open(state)
	if err != nil {
		return exit.Directory("state directory", "--state", err)
	}
	if err := p.openRecords(ctx, logger); err != nil {
		return err
	}
	path, _ := o.Process.Env("PATH")
	p.Detection = &detection{want: o.Sandbox, path: path, done: make(chan struct{}), uids: p.uids}
	if p.Workspace.Dir != nil && p.Workspace.Mode != sandbox.WorkspaceRO {
		p.Detection.writable = []detect.Writable{{Dir: p.WorkspacePath,
			ReadOnly: o.Process.ProgramDirs(p.WorkspacePath)}}
	}
	p.Detection.interpreters.Store(o.finder(p, p.Detection.writable))
	if p.usesEnvironments() {
		p.environments, err = environment.Open(config.EnvironmentsDir(state))
		if err != nil {
			return exit.Directory("state directory", "--state", err) // Close closes the rest
		}
	}
	p.scan.Cache = o.Roots.Cache(o.Process, p.roots)
	p.last = o.Roots.LastCatalogue(o.Process, p.roots, p.scan)
	p.Registry = skills.NewRegistry(p.roots, p.scan)
	return nil
}

// openRecords opens the records; the records of a server over HTTP can be in a cluster.
func (p *Plan) openRecords(ctx context.Context, logger *slog.Logger) error {
	o := p.options
	if o.Cluster.Enabled() && o.HTTP.Enabled() {
		c, err := cluster.Open(ctx, &o.Cluster, logger)
		if err != nil {
			return err
		}
		p.Cluster, p.Records = c, c.Records
		return err
	}
	limits := o.RecordLimits()
	files, err := filestore.Open(p.own.records.path, &filestore.Options{
		Signer: p.signer, ForgetShown: !o.Records.KeepShown, Floor: int64(limits.Free),
		Quota: func(principal string) filestore.Quota {
			own := o.Process.Cfg.Keys.Principals[principal]
			return filestore.Quota{Bytes: int64(cmp.Or(own.RecordBytes, limits.Bytes)),
				Sessions: cmp.Or(own.RecordSessions, limits.Sessions),
				Outputs:  int64(cmp.Or(own.RecordOutputs, limits.Outputs))}
		},
	})
	if err != nil {
		return exit.Directory("artifact root", "--artifact-root", err)
	}
	p.Records = files
	return nil
}

// servedError is the error of a server over HTTP whose records another server uses.
func (p *Plan) servedError(err error) error {
	if !errors.Is(err, filestore.ErrServing) {
		return exit.Directory("artifact root", "--artifact-root", err)
	}
	return exit.Errorf(exit.Failure, "give this one a directory of its own with --artifact-root; "+
		"--shared-records starts it anyway, but what is declined, approved or loaded at one server is "+
		"unknown to the other", "%w: %s", err, p.own.records.path)
}

// besideServed is servedError, or another problem that would still be there if the other server ended.
func (p *Plan) besideServed(ctx context.Context, err error) error {
	p.Probe(ctx, nil)
	for _, problem := range p.Problems {
		if problem.Severity == skills.Error && !errors.Is(problem.Err, AddressTaken) {
			return problem.Err
		}
	}
	return p.servedError(err)
}

// usesEnvironments reports whether an entry of the allowlist names an environment.
func (p *Plan) usesEnvironments() bool {
	return p.Policy != nil && slices.ContainsFunc(p.Policy.Entries(),
		func(e policy.Entry) bool { return e.Environment != "" })
}

// Begin opens the plan for runs without a client, reads the skills, calls prepare, which may be nil, and
// returns the sessions, which the caller ends.
//
// Errors: the errors of Open, Sessions and prepare, and of reading the skills.
func (p *Plan) Begin(
	ctx context.Context, logger *slog.Logger, prepare func(context.Context, *slog.Logger) error,
) (*session.Sessions, error) {
	if err := p.Open(ctx, logger); err != nil {
		return nil, err
	}
	sessions, err := p.Sessions(ctx, p.Records, logger)
	if err != nil {
		return nil, err
	}
	_, err = p.Registry.Rescan(ctx)
	if err != nil {
		return nil, errors.Join(err, sessions.End(context.WithoutCancel(ctx)))
	}
	if prepare != nil {
		err = prepare(ctx, logger)
	}
	if err != nil {
		return nil, errors.Join(err, sessions.End(context.WithoutCancel(ctx)))
	}
	// Entries without a digest are pinned to the files as of now.
	err = sessions.Start(ctx, nil)
	if err != nil {
		return nil, errors.Join(err, sessions.End(context.WithoutCancel(ctx)))
	}
	return sessions, nil
}

// Sessions returns the sessions of the process, which record into records.
//
// Errors: *exit.Error for an invalid entry of the allowlist.
func (p *Plan) Sessions(ctx context.Context, records provenance.Store,
	logger *slog.Logger) (*session.Sessions, error) {
	o, facts := p.options, p.facts
	facts.WorkspacePath, facts.KeepsShown = p.WorkspacePath, p.Records.KeepsShown()
	facts.Enforces, facts.Path = p.Detection.enforces, p.Records.Path
	installed := &origins{state: p.own.state.path, registry: p.Registry}
	facts.Origin = installed.of
	p.facts = facts
	cfg := session.Config{
		Registry: p.Registry, Policy: p.Policy, Trees: p.trees, Records: records,
		Runner: p.Detection.runner, Host: host.New(),
		Interpreter: func(ctx context.Context, name string) (*sandbox.Interpreter, error) {
			return p.Detection.interpreters.Load().Find(ctx, name)
		},
		ApartInterpreter: func(ctx context.Context, name string) (*sandbox.Interpreter, error) {
			return p.Detection.interpreters.Load().FindApart(ctx, name)
		},
		HostInterpreter: func(ctx context.Context, name string, dirs []string) (*sandbox.Interpreter, error) {
			return p.Detection.interpreters.Load().FindOnHost(ctx, name, dirs)
		},
		Environments: &packages.Environments{Store: p.environments, Lock: p.lock, Python: p.Detection.python},
		Tampered:     installed.tampered,
		Facts:        facts, Workspace: p.Workspace, ClientWorkspace: p.fromClient,
		Limits: o.Limits.Limits, Concurrent: o.Limits.Concurrent, ConcurrentOf: o.concurrentOf(),
		Env:       o.Process.Env,
		Secret:    o.Process.Secret,
		MaxRemote: filestore.MaxOpen(), RefuseDrift: o.Drift == "refuse", NamesInErrors: !o.NoCatalog,
		Version: o.Version, Logger: logger,
		Principals: o.Process.Cfg.Keys.PolicyPrincipals(nil),
	}
	cfg.Codes = p.codes()
	cfg.Originals, _ = p.Records.(provenance.Originals)
	if p.Cluster != nil {
		cfg.Peers, cfg.Approver, cfg.Pool = p.Cluster.Peers, p.Cluster.Approver, p.Cluster.Pool
	}
	sessions := session.New(cfg)
	if err := entriesError(sessions.CheckEntries(ctx)); err != nil {
		return nil, err
	}
	return sessions, nil
}

// concurrentOf returns the function that returns how many scripts of a principal run at a time.
func (o *Options) concurrentOf() func(principal string) int {
	all := cmp.Or(o.Limits.Concurrent, admit.Default())
	// The only principal of a server may use all of it. The token that a server makes later has one owner.
	alone := !o.HTTP.Authenticates() && o.Cluster.Pool == ""
	return func(principal string) int {
		if alone {
			return all
		}
		return cmp.Or(o.Process.Cfg.Keys.Principals[principal].Concurrent, (all+1)/2)
	}
}

// codes returns the calls that wait for the user's decision.
func (p *Plan) codes() *approval.Codes {
	if p.Cluster != nil {
		return p.Cluster.Codes
	}
	return Codes(p.own.state.path)
}

// entriesError returns the error for an invalid entry of the allowlist.
func entriesError(err error) error {
	if err == nil {
		return nil
	}
	return exit.Usagef("correct the network or the secret of the entry", "%w", err)
}

// origins looks up the sources of skills in the lock file of installed skills, which may change at any time.
// It is safe for concurrent use.
type origins struct {
	state    string // directory
	registry *skills.Registry

	mu   sync.Mutex
	info fs.FileInfo // of the lock file that was read; nil before the first read
	lock *install.Lock
}

// of returns the source of a skill with the given digest of its tree. It is nil if the source of exactly
// these files is unknown: they may have been edited since they were installed.
func (o *origins) of(ctx context.Context, sk *skills.Skill, tree digest.Digest) *cfharness.SkillOrigin {
	if sk.Root.FS != nil {
		origin := &cfharness.SkillOrigin{Kind: "archive", Source: cmp.Or(sk.Root.Origin, sk.Root.Dir)}
		if sk.Dir != "." {
			origin.Path = sk.Dir
		}
		return origin
	}
	if !install.IsRoot(o.state, sk.Root.Dir) {
		return nil
	}
	e, inside := o.current().Holding(sk.Path)
	if e == nil {
		return nil
	}
	if inside != "" {
		// The lock file has the digest of the enclosing skill.
		whole := o.registry.Snapshot().Skill(e.Name)
		if whole == nil || whole.Root.Dir != sk.Root.Dir {
			return nil
		}
		index, err := whole.Index(ctx)
		if err != nil {
			return nil
		}
		tree = index.TreeDigest
	}
	// A record must not name a source for bytes that did not come from there.
	if e.Tree != tree {
		return nil
	}
	origin := report.OriginOf(e)
	origin.Path = strings.Trim(origin.Path+"/"+inside, "/")
	return origin
}

// current returns the lock file as it is now; it is empty if it cannot be read.
func (o *origins) current() *install.Lock {
	o.mu.Lock()
	defer o.mu.Unlock()
	file := install.LockFile(o.state)
	info, err := os.Stat(file)
	if err != nil {
		return &install.Lock{}
	}
	if o.info != nil && os.SameFile(o.info, info) && o.info.ModTime().Equal(info.ModTime()) &&
		o.info.Size() == info.Size() {
		return o.lock
	}
	// A lock file that cannot be read must not leave the facts of an earlier one.
	o.info = nil
	lock, err := install.ReadLock(file)
	if err != nil {
		return &install.Lock{}
	}
	o.info, o.lock = info, lock
	return lock
}

// installed returns the installed skills as of now.
func (o *origins) installed() install.Installed { return o.current().In(o.state) }

// tampered reports whether the files of a skill on disk are not those that were installed.
func (o *origins) tampered(ctx context.Context, sk *skills.Skill) bool {
	return o.installed().Tampered(ctx, sk)
}

// detection detects the sandbox backend while the server starts: the self-test of a backend runs a real
// sandbox, and clients should not wait for it.
type detection struct {
	interpreters atomic.Pointer[detect.Finder] // replaced when the configuration changes
	want, path   string
	uids         native.UIDs
	writable     []detect.Writable
	stop         context.CancelFunc // nil before Start
	done         chan struct{}
	backend      sandbox.Runner
	reports      []detect.Report // of the candidates
	err          error
}

// finder returns the finder of interpreters for a plan. It rejects interpreters below a path of the server's
// own, or where scripts can write.
func (o *Options) finder(p *Plan, writable []detect.Writable) *detect.Finder {
	finder := o.Process.Interpreters(p.own.paths()...)
	finder.UIDs = p.uids
	finder.Writable(writable...)
	return finder
}

// Start starts the detection and logs a warning if scripts cannot run. It may be called once. With many, the
// sandbox of each run is prepared in advance.
func (d *detection) Start(ctx context.Context, logger *slog.Logger, many bool) {
	ctx, d.stop = context.WithCancel(ctx)
	go func() {
		defer close(d.done)
		d.backend, d.reports, d.err = detect.Select(ctx, d.want, &detect.Options{
			Path: d.path, Writable: d.writable, Native: &native.Options{UIDs: d.uids, Ahead: many},
		})
		switch {
		case ctx.Err() != nil:
		case d.err != nil:
			logger.WarnContext(ctx, "no sandbox: scripts are refused", tint.Err(d.err))
			for _, report := range d.reports {
				logger.WarnContext(ctx, "sandbox unusable", slog.String("backend", report.Name),
					slog.String("err", report.Fact))
			}
		default:
			logger.InfoContext(ctx, "sandbox ready", slog.String("backend", d.backend.Name()))
			for _, report := range d.reports {
				// Sampling is weaker than what root can get; for other users it is normal.
				if e := report.Enforces; e != nil && e.Memory == native.MemorySampled && os.Geteuid() == 0 {
					logger.WarnContext(ctx, "sandbox without memory cgroup, memory limits are sampled",
						slog.String("backend", report.Name), slog.String("memory", string(e.Memory)),
						slog.String("processes", e.Processes))
				}
			}
		}
	}()
}

// without disables the sandbox for a reason, instead of Start.
func (d *detection) without(err error) {
	d.err = err
	close(d.done)
}

// python returns the interpreter for environments, or nil.
func (d *detection) python(ctx context.Context) (*sandbox.Interpreter, error) {
	return d.interpreters.Load().Find(ctx, string(script.Python3))
}

// runner returns the backend after its self-test.
func (d *detection) runner(ctx context.Context) (sandbox.Runner, error) {
	select {
	case <-d.done:
		return d.backend, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// enforces returns how the backend enforces the limits of memory and processes; empty without a backend.
func (d *detection) enforces() (memory, processes string) {
	<-d.done
	for _, report := range d.reports {
		if report.OK && report.Enforces != nil {
			memory, processes = string(report.Enforces.Memory), report.Enforces.Processes
		}
	}
	return memory, processes
}

// End stops a running detection, waits for its cleanup, and ends sandboxes that the backend has prepared.
func (d *detection) End() {
	if d.stop == nil {
		return
	}
	d.stop()
	<-d.done
	if b, ok := d.backend.(*native.Runner); ok {
		b.Close()
	}
}

// follow applies changes on disk until ctx ends.
func (p *Plan) follow(
	ctx context.Context, logger *slog.Logger, changed func(context.Context, skills.Diff),
) {
	if err := watch.Run(ctx, p.Registry, watch.Options{Logger: logger, OnChange: changed}); err != nil {
		logger.WarnContext(ctx, "changes on disk cannot be followed", tint.Err(err))
	}
}

// keepScan saves the result of the scan for the next start.
func (p *Plan) keepScan(ctx context.Context, logger *slog.Logger) {
	if p.Registry == nil || p.scan.Cache == nil {
		return
	}
	err := config.SaveScan(p.scan.Cache, p.Registry.Snapshot())
	if p.last != nil && p.Registry.Scanned() {
		err = errors.Join(err, p.last.Save(p.Registry.Snapshot()))
	}
	if err != nil {
		logger.WarnContext(ctx, "the result of the scan could not be saved for the next start", tint.Err(err))
	}
}

// Close saves the result of the scan and closes the records and the workspace. Sessions must have ended.
func (p *Plan) Close(ctx context.Context, logger *slog.Logger) (err error) {
	p.keepScan(ctx, logger)
	switch {
	case p.Cluster != nil:
		err = p.Cluster.Close()
	case p.Records != nil:
		err = p.Records.Close()
	}
	if p.environments != nil {
		err = errors.Join(err, p.environments.Close())
	}
	if p.trees != nil {
		err = errors.Join(err, p.trees.Close())
	}
	if p.Workspace.Dir != nil {
		err = errors.Join(err, p.Workspace.Dir.Close())
	}
	return err
}
