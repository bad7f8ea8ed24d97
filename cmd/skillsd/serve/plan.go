package serve

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/admit"
	"github.com/skillsd/skillsd/mcpserver/httpauth"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/mcpserver/session/packages"
	"github.com/skillsd/skillsd/mcpserver/session/snapshot"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/sandbox/host"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store"
	"github.com/skillsd/skillsd/skills/watch"
)

// Plan has the parts of a server and the problems that prevent its start. Making a plan changes nothing and
// does not listen. [Options.Run] runs a plan without problems; doctor prints the problems of one.
type Plan struct {
	Problems []Problem // in the order of the start

	options       *Options
	Policy        *policy.Policy // nil if it cannot be made
	facts         snapshot.Facts
	roots         []skills.Root
	scan          *skills.ScanOptions
	Workspace     sandbox.Workspace // without a directory if none is granted
	WorkspacePath string
	client        *clientWorkspaces                                  // nil if clients cannot name directories
	fromClient    func(session.ClientDir) (sandbox.Workspace, error) // likewise
	own           []ownPath
	uids          native.UIDs       // of scripts, for root
	signer        note.Signer       // nil without a key
	lock          *environment.Lock // of environments; nil without one

	// The following are set by Open.
	trees *store.Store
	// nil if no entry names an environment
	environments *environment.Store
	Records      Records
	Cluster      *cluster.Cluster // nil without
	Detection    *detection       // not started
	Registry     *skills.Registry
	last         *config.LastCatalogue // nil without one
}

// Records is the store of a server.
type Records interface {
	provenance.Store
	KeepsShown() int64 // bytes of shown texts that a session keeps, 0 for none
	Uses(context.Context) ([]filestore.Use, error)
	Path(session, name string) string // of a file of a session on this machine
}

// Problem is a fault of a plan.
type Problem struct {
	Severity skills.Severity // a warning does not prevent the start
	Err      error           // *exit.Error if there is a known remedy
	OfRoots  bool            // the roots cannot be found; doctor reports it with the roots
}

// Plan returns the plan of a server with these options. The caller closes it.
func (o *Options) Plan() *Plan { return o.plan(o.Decided) }

// PlanRun returns the plan of a process that runs one script itself and has no clients. The caller closes it.
func (o *Options) PlanRun() *Plan { return o.plan(o.decidedRun) }

// plan finds as many problems as possible: a step is skipped only if it needs the result of a failed one.
func (o *Options) plan(decide func() (*policy.Policy, snapshot.Facts, error)) *Plan {
	p := &Plan{options: o}
	var err error
	p.Policy, p.facts, err = decide()
	if err != nil {
		p.Policy = nil
		p.fail(err)
	}
	p.uids, err = o.UIDs()
	if err != nil {
		p.fail(err)
	} else if os.Geteuid() == 0 && p.Policy != nil && p.Policy.Offers(mcpserver.ToolRun) {
		if err := p.uids.Check(); err != nil {
			p.fail(exit.Usagef(config.HintUIDs, "--sandbox-uids: %w", err))
		}
	}
	resolve := o.Roots.Resolve
	if o.watches() {
		// Without a watch, no later scan would find a directory that is missing now.
		resolve = o.Roots.Awaiting
	}
	p.roots, err = resolve(o.Process)
	if err != nil {
		p.Problems = append(p.Problems, Problem{skills.Error, err, true})
	} else {
		p.fail(p.findPaths())
	}
	if p.Policy != nil {
		p.warnLoose()
		if p.Policy.Offers(mcpserver.ToolRun) {
			p.fail(o.checkQuotas())
		}
	}
	// One configuration may be used for stdio too, where each client has its own server outside of the
	// cluster.
	if o.Cluster.Enabled() && o.HTTP.Enabled() {
		p.fail(p.checkCluster())
	}
	if p.usesEnvironments() {
		p.lock, err = o.Process.ReadLock()
		if err != nil {
			// It is only a warning: scripts without packages still run, and the others are refused with the
			// reason.
			p.warn(exit.Usagef("correct it, or remove it and run `skillsd env sync`", "%w", err))
		}
	}
	if o.Records.SignKey != "" {
		p.signer, err = ReadSigner(o.Records.SignKey)
		p.fail(err)
	}
	p.warnReadable("--sign-key", o.Records.SignKey)
	p.warnReadable("--tls-key", o.HTTP.Key)
	return p
}

// warnLoose warns of a policy that permits more than it seems to.
func (p *Plan) warnLoose() {
	onHost := func(e policy.Entry) bool { return e.Target == policy.TargetHost }
	if len(p.Workspace.ReadOnly) > 0 && slices.ContainsFunc(p.Policy.Entries(), onHost) {
		p.warn(exit.Usagef("allow only scripts on the host that may change skills",
			"scripts with target: host can write the skills roots in the workspace, which a sandbox "+
				"keeps read-only"))
	}
	if p.Policy.Offers(mcpserver.ToolRun) && p.Policy.Mode(0) < policy.EnforceExplicit {
		p.warn(exit.Usagef("remove --cfc-enforcement-mode and policy.mode, or use enforce-explicit",
			"in mode %s every allowed script runs without asking the user, even scripts of third parties",
			p.Policy.Mode(0)))
	}
}

// warnReadable warns of a key that other users can read. A group may have to read it, so this is no error.
func (p *Plan) warnReadable(flag, key string) {
	if key == "" {
		return
	}
	info, err := os.Stat(key)
	if err == nil && config.OthersRead(info) {
		p.warn(exit.Usagef("run: chmod go-r "+report.ShellLine(key),
			"other users can read the key %s of %s", key, flag))
	}
}

// checkQuotas rejects a quota of records that is too small for the outcome of a single run.
func (o *Options) checkQuotas() error {
	type quota struct {
		key  string
		most config.Size
	}
	room, limits := session.RunRoom(o.Limits.Limits), o.RecordLimits()
	principals := o.Process.Cfg.Keys.Principals
	quotas := []quota{{"sessions.limits.bytes", limits.Bytes}, {"sessions.limits.outputs", limits.Outputs}}
	for _, name := range slices.Sorted(maps.Keys(principals)) {
		quotas = append(quotas, quota{"principals." + name + ".record_bytes", principals[name].RecordBytes},
			quota{"principals." + name + ".record_outputs", principals[name].RecordOutputs})
	}
	for _, q := range quotas {
		// The room for an outcome is reserved before a run, because a run whose end cannot be recorded must
		// not begin.
		if q.most > 0 && int64(q.most) <= room {
			return exit.Usagef("set it above "+config.Size(room).String()+
				"; a smaller output in --limit needs less",
				"%s is %s, but %s are reserved for the outcome of one run: no script could run",
				q.key, q.most, config.Size(room))
		}
	}
	return nil
}

// checkCluster rejects options that servers of a cluster do not support.
func (p *Plan) checkCluster() error {
	o := p.options
	if err := cluster.Check(&o.Cluster); err != nil {
		return err
	}
	limits := o.Records.Limits
	for _, principal := range o.Process.Cfg.Keys.Principals {
		limits.Bytes = max(limits.Bytes, principal.RecordBytes)
		limits.Sessions = max(limits.Sessions, principal.RecordSessions)
		limits.Outputs = max(limits.Outputs, principal.RecordOutputs)
	}
	switch {
	case o.Records.SignKey != "":
		return exit.Usagef("remove --sign-key", "--cluster: records in a cluster are not signed")
	case !o.Records.KeepShown:
		return exit.Usagef("remove --keep-shown", "--cluster: records in a cluster keep what was shown")
	case limits != config.RecordLimits{}:
		return exit.Usagef("remove them, and limit the streams of the cluster",
			"--cluster: records in a cluster have no limits per principal or of the disk")
	}
	return p.checkPinned()
}

// checkPinned rejects entries of the allowlist that could match other files on other machines.
func (p *Plan) checkPinned() error {
	if p.Policy == nil {
		return nil
	}
	for _, entry := range p.Policy.Entries() {
		// Without digests each server would pin the files that it has at its own start.
		if entry.Pin == "" || entry.Tree == "" && !entry.PinScript {
			return exit.Usagef("`skillsd allow` writes both digests",
				"--cluster: the allowlist entry %s lacks the digest of its tree or its script", entry.Spec())
		}
	}
	return nil
}

// MaxKeyFile is the maximum size of a key file in bytes.
const MaxKeyFile = 4 << 10

// fail adds a problem that prevents the start, unless err is nil.
func (p *Plan) fail(err error) {
	if err != nil {
		p.Problems = append(p.Problems, Problem{Severity: skills.Error, Err: err})
	}
}

func (p *Plan) warn(err error) {
	p.Problems = append(p.Problems, Problem{Severity: skills.Warning, Err: err})
}

// Err returns the first problem that prevents the start.
func (p *Plan) Err() error {
	for _, problem := range p.Problems {
		if problem.Severity == skills.Error {
			return problem.Err
		}
	}
	return nil
}

// Probe adds the problems that a start would find later: requirements of allowlist entries, names of skills
// and sessions, addresses, and the keys of an issuer, which it fetches. It listens on addresses and closes
// them at once. snapshot has the skills; it is nil if they cannot be read.
func (p *Plan) Probe(ctx context.Context, snapshot *skills.Snapshot) {
	o, discard := p.options, slog.New(slog.DiscardHandler)
	try := func(err error) {
		// The server that doctor examines may be running.
		if errors.Is(err, AddressTaken) {
			p.warn(err)
			return
		}
		p.fail(err)
	}
	tryListener := func(listener net.Listener, err error) {
		if listener != nil {
			err = listener.Close()
		}
		try(err)
	}
	tryKeys := func(auth *httpauth.Authenticator) {
		if auth == nil {
			return
		}
		if err := auth.Reload(ctx); err != nil {
			p.fail(exit.Usagef(hintKeys, "the keys of the issuer cannot be fetched: %w", err))
		}
	}
	if p.Policy != nil {
		try(entriesError(session.New(session.Config{
			Policy: p.Policy, Env: o.Process.Env, Secret: o.Process.Secret, Logger: discard,
		}).CheckEntries(ctx)))
	}
	if snapshot != nil {
		for _, name := range o.Skills {
			if _, err := snapshot.Lookup(name); err != nil {
				try(report.LookupError(exit.Usage, "--skill: ", err))
				break
			}
		}
	}
	if o.Resume.Session != "" {
		_, err := o.FindSession(ctx, o.Resume.Session)
		try(err)
	}
	if o.HTTP.Enabled() && !o.HTTP.SharedRecords && !o.Cluster.Enabled() && len(p.own) > 1 &&
		filestore.Served(p.own[1].path) {
		p.warn(p.servedError(filestore.ErrServing))
	}
	switch {
	case o.HTTP.Unix != "":
		// openHTTP would remove the socket of a server that has ended; checkSocket changes nothing.
		opts, _, err := o.prepareHTTP(discard)
		if err == nil {
			tryKeys(opts.Auth)
			_, err = checkSocket(ctx, o.HTTP.Unix)
		}
		try(err)
	case o.HTTP.Addr != "":
		listener, opts, err := o.openHTTP(ctx, discard)
		tryListener(listener, err)
		tryKeys(opts.Auth)
	}
	tryListener(o.listenMetrics(ctx))
	page, login, err := o.listenPage(ctx)
	tryListener(page, err)
	if login != nil {
		if _, _, err := login.Begin(ctx); err != nil {
			p.fail(exit.Usagef(hintKeys, "--page-client: logins do not work: %w", err))
		}
	}
}

// servedError is the error of a server over HTTP whose records another server uses.
func (p *Plan) servedError(err error) error {
	if !errors.Is(err, filestore.ErrServing) {
		return exit.Directory("artifact root", "--artifact-root", err)
	}
	return exit.Errorf(exit.Failure, "give this one a directory of its own with --artifact-root; "+
		"--shared-records starts it anyway, but what is declined, approved or loaded at one server is "+
		"unknown to the other", "%w: %s", err, p.own[1].path)
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
	files, err := filestore.Open(p.own[1].path, &filestore.Options{
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

// Open opens the stores of a server without problems, and prepares the detection of its sandbox and the
// registry of its skills.
func (p *Plan) Open(ctx context.Context, logger *slog.Logger) (err error) {
	o := p.options
	state := p.own[0].path
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
	p.Detection.look(o.finder(p, p.Detection.writable))
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

// ReadSigner reads the private key of --sign-key.
//
// Errors: *exit.Error, with a hint.
func ReadSigner(path string) (note.Signer, error) {
	text, err := config.ReadOperatorFile("sign-key", path, MaxKeyFile)
	if err != nil {
		return nil, err
	}
	signer, err := note.NewSigner(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, exit.Usagef("`skillsd session keygen FILE` makes one",
			"--sign-key: %s contains no private key", path)
	}
	return signer, nil
}

// usesEnvironments reports whether an entry of the allowlist names an environment.
func (p *Plan) usesEnvironments() bool {
	return p.Policy != nil && slices.ContainsFunc(p.Policy.Entries(),
		func(e policy.Entry) bool { return e.Environment != "" })
}

// A server checks for old sessions every hour, and every minute with a limit of total bytes. Checks take at
// most a twentieth of the time, unless there is something to delete.
const (
	collectEvery = time.Hour
	collectSoon  = time.Minute
	collectPart  = 20
)

// Collect deletes old sessions by the rules of the configuration, repeatedly until ctx ends. release ends
// unused sessions of this server; see [provenance.CollectOptions].
func (p *Plan) Collect(ctx context.Context, release func(context.Context, string) bool, logger *slog.Logger) {
	gc := p.options.Records.GC
	if gc.Age == 0 && gc.Total == 0 {
		return
	}
	for {
		began := time.Now()
		opts := provenance.CollectOptions{Total: int64(gc.Total), Release: release}
		if gc.Age > 0 {
			opts.Before = time.Now().Add(-time.Duration(gc.Age))
		}
		list, err := p.Records.Collect(ctx, opts)
		deleted, bytes := 0, int64(0)
		for _, c := range list {
			switch {
			case c.Err == nil:
				deleted++
				bytes += c.Bytes
			// A session in use is deleted at a later check.
			case !errors.Is(c.Err, provenance.ErrHeld):
				err = errors.Join(err, c.Err)
			}
		}
		if err != nil && ctx.Err() == nil {
			logger.WarnContext(ctx, "old sessions could not be deleted", tint.Err(err))
		}
		if deleted > 0 {
			logger.InfoContext(ctx, "old sessions deleted", slog.Int("sessions", deleted),
				slog.Int64("bytes", bytes))
		}
		select {
		case <-time.After(collectWait(int64(gc.Total), deleted, time.Since(began))):
		case <-ctx.Done():
			return
		}
	}
}

// collectWait returns the time until the next check, after one of a certain duration and number of deletions.
func collectWait(total int64, deleted int, took time.Duration) time.Duration {
	switch {
	case total == 0:
		return collectEvery
	case deleted > 0: // sessions may have grown above the limit again meanwhile
		return collectSoon
	}
	return min(collectEvery, max(collectSoon, collectPart*took))
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

// codes returns the calls that wait for the user's decision.
func (p *Plan) codes() *approval.Codes {
	if p.Cluster != nil {
		return p.Cluster.Codes
	}
	return Codes(p.own[0].path)
}

// Sessions returns the sessions of the process, which record into records.
//
// Errors: *exit.Error for an invalid entry of the allowlist.
func (p *Plan) Sessions(ctx context.Context, records provenance.Store,
	logger *slog.Logger) (*session.Sessions, error) {
	o, facts := p.options, p.facts
	facts.WorkspacePath, facts.KeepsShown = p.WorkspacePath, p.Records.KeepsShown()
	facts.Enforces, facts.Path = p.Detection.enforces, p.Records.Path
	all := cmp.Or(o.Limits.Concurrent, admit.Default())
	concurrent := func(principal string) int {
		// The only principal of a server may use all of it.
		if !o.HTTP.Authenticates() && o.Cluster.Pool == "" {
			return all
		}
		return cmp.Or(o.Process.Cfg.Keys.Principals[principal].Concurrent, (all+1)/2)
	}
	installed := &origins{state: p.own[0].path, registry: p.Registry}
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
		Limits: o.Limits.Limits, Concurrent: o.Limits.Concurrent, ConcurrentOf: concurrent,
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

// follow applies changes on disk until ctx ends.
func (p *Plan) follow(
	ctx context.Context, logger *slog.Logger, changed func(context.Context, skills.Diff),
) {
	if err := watch.Run(ctx, p.Registry, watch.Options{Logger: logger, OnChange: changed}); err != nil {
		logger.WarnContext(ctx, "changes on disk cannot be followed", tint.Err(err))
	}
}

// entriesError returns the error for an invalid entry of the allowlist.
func entriesError(err error) error {
	if err == nil {
		return nil
	}
	return exit.Usagef("correct the network or the secret of the entry", "%w", err)
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

// look sets the finder of interpreters.
func (d *detection) look(finder *detect.Finder) { d.interpreters.Store(finder) }

// python returns the interpreter for environments, or nil.
func (d *detection) python(ctx context.Context) (*sandbox.Interpreter, error) {
	return d.interpreters.Load().Find(ctx, string(script.Python3))
}

// finder returns the finder of interpreters for a plan. It rejects interpreters below a path of the server's
// own, or where scripts can write.
func (o *Options) finder(p *Plan, writable []detect.Writable) *detect.Finder {
	finder := o.Process.Interpreters(p.ownPaths()...)
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

// Without disables the sandbox for a reason, instead of Start.
func (d *detection) Without(err error) {
	d.err = err
	close(d.done)
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
