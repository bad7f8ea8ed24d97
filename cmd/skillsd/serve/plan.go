package serve

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/httpauth"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/snapshot"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/environment"
	"github.com/skillsd/skillsd/sandbox/native"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store"
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
	own           ownPaths
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
	p.fail(p.findUIDs())
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

// findUIDs finds the user ids of scripts, which root must be able to use if scripts can run.
func (p *Plan) findUIDs() (err error) {
	p.uids, err = p.options.UIDs()
	if err != nil || os.Geteuid() != 0 || p.Policy == nil || !p.Policy.Offers(mcpserver.ToolRun) {
		return err
	}
	if err := p.uids.Check(); err != nil {
		return exit.Usagef(config.HintUIDs, "--sandbox-uids: %w", err)
	}
	return nil
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
	if p.Policy != nil {
		p.fail(entriesError(session.New(session.Config{
			Policy: p.Policy, Env: o.Process.Env, Secret: o.Process.Secret, Logger: discard,
		}).CheckEntries(ctx)))
	}
	if snapshot != nil {
		for _, name := range o.Skills {
			if _, err := snapshot.Lookup(name); err != nil {
				p.fail(report.LookupError(exit.Usage, "--skill: ", err))
				break
			}
		}
	}
	if o.Resume.Session != "" {
		_, err := o.FindSession(ctx, o.Resume.Session)
		p.fail(err)
	}
	p.probeHTTP(ctx, discard)
	p.probeListener(o.listenMetrics(ctx))
	page, login, err := o.listenPage(ctx)
	p.probeListener(page, err)
	if login != nil {
		if _, _, err := login.Begin(ctx); err != nil {
			p.fail(exit.Usagef(hintKeys, "--page-client: logins do not work: %w", err))
		}
	}
}

// probeHTTP adds the problems of the records, the address and the issuer of a server over HTTP.
func (p *Plan) probeHTTP(ctx context.Context, logger *slog.Logger) {
	o := p.options
	if o.HTTP.Enabled() && !o.HTTP.SharedRecords && !o.Cluster.Enabled() && p.own.records.path != "" &&
		filestore.Served(p.own.records.path) {
		p.warn(p.servedError(filestore.ErrServing))
	}
	switch {
	case o.HTTP.Unix != "":
		// openHTTP would remove the socket of a server that has ended; checkSocket changes nothing.
		opts, _, err := o.prepareHTTP(logger)
		if err == nil {
			p.probeKeys(ctx, opts.Auth)
			_, err = checkSocket(ctx, o.HTTP.Unix)
		}
		p.probeListener(nil, err)
	case o.HTTP.Addr != "":
		listener, opts, err := o.openHTTP(ctx, logger)
		p.probeListener(listener, err)
		p.probeKeys(ctx, opts.Auth)
	}
}

// probeListener closes a listener, which may be nil, and adds the problem of its address, if any.
func (p *Plan) probeListener(listener net.Listener, err error) {
	if listener != nil {
		err = listener.Close()
	}
	// The server that doctor examines may be running.
	if errors.Is(err, AddressTaken) {
		p.warn(err)
		return
	}
	p.fail(err)
}

// probeKeys fetches the keys of an issuer, if there is one.
func (p *Plan) probeKeys(ctx context.Context, auth *httpauth.Authenticator) {
	if auth == nil {
		return
	}
	if err := auth.Reload(ctx); err != nil {
		p.fail(exit.Usagef(hintKeys, "the keys of the issuer cannot be fetched: %w", err))
	}
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
