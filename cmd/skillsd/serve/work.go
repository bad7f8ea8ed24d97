package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/lmittmann/tint"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store"
)

// Work runs scripts for the servers of a cluster until ctx ends. It decides by its own options like a server,
// but records nothing and has no clients.
func (o *Options) Work(ctx context.Context) (err error) {
	logger, err := NewLogger(o.Err, o.LogLevel, o.LogFormat, !bool(report.NewPaint(o.Process.Env, o.Err)))
	if err != nil {
		return err
	}
	if err := cluster.CheckWorker(&o.Cluster); err != nil {
		return err
	}
	// The configuration of the servers may be used for workers too.
	o.HTTP.Addr, o.HTTP.Unix = "", ""
	if err := o.makeInstalledRoots(); err != nil {
		return err
	}
	p := o.PlanRun()
	defer func() { err = errors.Join(err, p.Close(context.WithoutCancel(ctx), logger)) }()
	if err := p.Err(); err != nil {
		return err
	}
	if !p.Policy.Offers(mcpserver.ToolRun) {
		return exit.Usagef("`skillsd allow SKILL:scripts/PATH` allows one",
			"a worker without allowed scripts has nothing to run")
	}
	// A worker runs what a server decided about, so both must mean the same bytes.
	if err := p.checkPinned(); err != nil {
		return err
	}
	sessions, err := p.Begin(ctx, logger, p.prepare)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sessions.End(context.WithoutCancel(ctx))) }()
	p.Detection.Start(ctx, logger, true)
	defer p.Detection.End()
	// A worker that takes jobs and refuses each would take them from workers that can run them.
	if _, err := p.Detection.runner(ctx); err != nil {
		return exit.Errorf(exit.Failure, "see `skillsd doctor`", "a worker needs a sandbox: %w", err)
	}
	rules, err := p.digestOfRules()
	if err != nil {
		return err
	}
	if o.watches() {
		watching, stop := context.WithCancel(ctx)
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			p.follow(watching, logger, func(context.Context, skills.Diff) {})
		}()
		defer func() { stop(); <-watched }()
	}
	return cluster.Work(ctx, &o.Cluster, rules, sessions, sessions.Logger(logger))
}

// makeInstalledRoots creates the directories of installed skills, so that skills a worker installs are
// served.
func (o *Options) makeInstalledRoots() error {
	state, err := o.Process.StateDir()
	if err != nil {
		return exit.Directory("state directory", "--state", err)
	}
	for _, tier := range skills.Tiers() {
		if err := os.MkdirAll(install.RootDir(state, tier), 0o700); err != nil {
			return exit.Directory("state directory", "--state", err)
		}
	}
	return nil
}

// installOne installs the skill of a lock with one entry, whose source the cluster already accepted.
func installOne(ctx context.Context, i *install.Installer, lock *install.Lock, access install.Access) error {
	plan, err := i.Sync(ctx, install.Sync{Lock: lock, TrustAccepted: true, Access: access})
	if err != nil {
		return err
	}
	return plan.Apply(ctx)
}

// allowed is the script of an allowlist entry on this machine.
type allowed struct {
	policy.Entry
	skill *skills.Skill
	file  *skills.Resource // nil if no script matches the digests of the entry
}

// allowed returns the scripts of the allowlist.
func (p *Plan) allowed(ctx context.Context) (all []allowed, err error) {
	for _, entry := range p.Policy.Entries() {
		a := allowed{Entry: entry, skill: p.Registry.Snapshot().Skill(entry.Skill)}
		if a.skill != nil {
			index, err := a.skill.Index(ctx)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err == nil {
				a.file = index.Resource(entry.Path)
			}
			if a.file != nil && entry.Changed(a.file.Digest, index.TreeDigest) != policy.Unchanged {
				a.file = nil
			}
		}
		all = append(all, a)
	}
	return all, nil
}

// prepareScript stores the tree of an allowed script, and finds its interpreter. The interpreter of an
// environment is found when the environment is checked.
func (p *Plan) prepareScript(ctx context.Context, a allowed) error {
	_, err := a.skill.Stage(ctx, p.trees)
	if err != nil || a.Environment != "" {
		return err
	}
	_, err = p.Detection.interpreters.Load().Find(ctx, string(a.file.Program().Runtime))
	return err
}

// prepare does work that the first runs of a worker would otherwise wait for: it installs missing allowed
// skills that were published in the cluster, stores trees, and finds interpreters. Failures are logged.
//
// Errors: errors of ctx.
func (p *Plan) prepare(ctx context.Context, logger *slog.Logger) error {
	all, err := p.allowed(ctx)
	if err != nil {
		return err
	}
	if lacking := p.lacking(all); len(lacking) > 0 && !p.options.Roots.NoDefaults {
		p.fetchLacking(ctx, all, lacking, logger)
		all, err = p.allowed(ctx)
		if err != nil {
			return err
		}
	}
	for _, a := range all {
		if a.file == nil || a.file.Program() == nil {
			continue // the start of the sessions reports it
		}
		err := p.prepareScript(ctx, a)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			logger.WarnContext(ctx, "an allowed script cannot be prepared", slog.String("entry", a.Spec()),
				tint.Err(err))
		}
	}
	return nil
}

// lacking returns the names of the allowed skills that installations from the cluster could provide.
func (p *Plan) lacking(all []allowed) map[string]error {
	installed := p.options.Process.InstalledRoots()
	lacking := map[string]error{}
	for _, a := range all {
		// A skill served from another root keeps its path; the start of the sessions reports a difference.
		name, _, _ := strings.Cut(a.Skill, "/")
		has := p.Registry.Snapshot().Skill(name)
		if a.file == nil && a.Tree != "" && (has == nil ||
			slices.ContainsFunc(installed, func(r skills.Root) bool { return r.Dir == has.Root.Dir })) {
			lacking[name] = nil
		}
	}
	return lacking
}

// fetchLacking is fetch, whose failures it logs.
func (p *Plan) fetchLacking(
	ctx context.Context, all []allowed, lacking map[string]error, logger *slog.Logger,
) {
	if err := p.fetch(ctx, all, lacking, logger); err != nil {
		logger.WarnContext(ctx, "missing allowed skills cannot be installed from the cluster",
			tint.Err(err))
	}
	for _, name := range slices.Sorted(maps.Keys(lacking)) {
		if err := lacking[name]; err != nil {
			logger.WarnContext(ctx, "an allowed skill cannot be installed from the cluster",
				slog.String("skill", name), tint.Err(err))
		}
	}
}

// fetch installs skills from the cluster by name, and deletes them from lacking. For a published skill that
// cannot be installed, lacking keeps the reason, preferably of the last publication.
func (p *Plan) fetch(
	ctx context.Context, all []allowed, lacking map[string]error, logger *slog.Logger,
) (err error) {
	catalogue, err := cluster.OpenCatalogue(ctx, &p.options.Cluster, false, logger)
	if err != nil {
		return err
	}
	defer catalogue.Close()
	wanted, unread := published(ctx, catalogue, all, lacking)
	if len(wanted) == 0 {
		return unread
	}
	return errors.Join(unread, p.installAll(ctx, catalogue, wanted, lacking, logger))
}

// published returns the locks of published skills that are lacking, each with one skill, the last publication
// of each. It deletes their names from lacking, which keeps the reason for a skill that is refused. With an
// error about a publication that cannot be read, the locks are from later ones.
func published(
	ctx context.Context, catalogue *cluster.Catalogue, all []allowed, lacking map[string]error,
) (wanted []*install.Lock, err error) {
	for lock, err := range catalogue.Locks(ctx) {
		if err != nil {
			return wanted, err
		}
		for name, why := range lacking {
			one := lock.Filter(func(e *install.Entry) bool { return e.Name == name })
			if len(one.Skills) == 0 {
				continue
			}
			if refusal := refused(one.Skills[0], all); refusal == nil {
				wanted = append(wanted, one)
				delete(lacking, name)
			} else if why == nil {
				lacking[name] = refusal
			}
		}
		if len(lacking) == 0 {
			break
		}
	}
	return wanted, nil
}

// installAll installs published skills, and adds to lacking why one cannot be.
func (p *Plan) installAll(
	ctx context.Context, catalogue *cluster.Catalogue, wanted []*install.Lock, lacking map[string]error,
	logger *slog.Logger,
) (err error) {
	cfg := install.Config{State: p.own.state.path, Trees: p.trees}
	cfg.Admit, err = p.options.Process.Admit()
	if err != nil {
		return err
	}
	installer, err := install.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, installer.Close()) }()
	installed := 0
	for _, one := range wanted {
		// One plan per skill, so that a failure does not affect others.
		err := installOne(ctx, installer, one, install.Access{Files: catalogue.File})
		if err != nil {
			lacking[one.Skills[0].Name] = err
			continue
		}
		installed++
	}
	if installed > 0 {
		logger.InfoContext(ctx, "installed from the cluster", slog.Int("skills", installed))
		_, err = p.Registry.Rescan(ctx)
	}
	return err
}

// refused returns why a worker does not install a published skill. The operator has checked the trees of the
// entries, and an entry without a tree would run any files installed at its path.
func refused(e *install.Entry, all []allowed) error {
	// The catalogue has files without their signatures, which a worker could not verify.
	if e.Origin.Signer != "" {
		return errors.New("it is signed: install it on this machine from its source, with the signature")
	}
	for _, a := range all {
		name, dir, _ := strings.Cut(a.Skill, "/")
		if name == e.Name && store.TreeDigest(e.Below(dir)) != a.Tree {
			return fmt.Errorf("the allowlist entry %s has another tree, or none", a.Spec())
		}
	}
	return nil
}

// digestOfRules returns the digest of the rules of a worker, without its skills.
func (p *Plan) digestOfRules() (digest.Digest, error) {
	rules, err := p.rules()
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(rules)
	return digest.FromBytes(text), err
}

// errElsewhere is the reason why a server with workers has no sandbox of its own.
func errElsewhere(pool string) error {
	return &sandbox.UnavailableError{Backend: "none", Reason: "scripts run at the workers of pool " + pool}
}
