package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"github.com/skillsd/skillsd/cmd/skillsd/config"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/source"
	"github.com/skillsd/skillsd/skills/store"
)

// installOptions are the flags of install.
type installOptions struct {
	app      *app
	Roots    config.RootOptions
	Ref      string
	Subdir   string
	Name     string
	Tier     string
	All      bool
	Keep     bool
	Insecure bool
	DryRun   bool
	JSON     bool
}

func newInstallCmd(a *app) *cobra.Command {
	opts := &installOptions{app: a}
	cmd := &cobra.Command{
		Use:   "install SOURCE",
		Short: "Install skills from a git URL, a zip archive or a directory",
		Long: "Install the skill of a source, or with --all every skill of it, below the state directory, from\n" +
			"where `skillsd serve` serves it. SOURCE is a git URL (https:// or ssh://), a zip archive or a\n" +
			"directory. The skills are checked and reported; nothing of them is run, and no script may run\n" +
			"before it is allowed: see `skillsd allow`. What fails leaves nothing behind.\n\n" +
			"  skillsd install https://github.com/anthropics/skills --subdir skills/pdf\n" +
			"  skillsd install ./my-skills --all --tier user\n\n" +
			"A skill is named by its directory in the source; --name chooses another name. skillsd.lock in\n" +
			"the state directory has the source, the commit and the digest of every file. With --keep-going the exit code is 3 when a skill was left out.",
		Args: cobra.ExactArgs(1),
		RunE: runE(func(ctx context.Context, args []string) error { return opts.run(ctx, args[0]) }),
	}
	opts.Roots.Register(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&opts.Ref, "ref", "", "branch, tag or commit of a git repository: `REF` (default: the repository's default branch)")
	flags.StringVar(&opts.Subdir, "subdir", "", "look in this `DIR` of the source only")
	flags.StringVar(&opts.Name, "name", "", "`NAME` to install the skill under")
	flags.StringVar(&opts.Tier, "tier", skills.LeastTrusted().String(), "how far the skills are trusted: `TIER` is "+skills.TierList())
	flags.BoolVar(&opts.All, "all", false, "install every skill of the source")
	flags.BoolVar(&opts.Keep, "keep-going", false, "with --all: install what can be installed, and report the rest")
	flags.BoolVar(&opts.Insecure, "insecure-transport", false, "accept http:// and git:// URLs of other machines")
	flags.BoolVar(&opts.DryRun, "dry-run", false, "fetch, check and report; install nothing")
	flags.BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *installOptions) run(ctx context.Context, given string) error {
	tier, err := skills.ParseTier(o.Tier)
	if err != nil {
		return flagError("tier", err)
	}
	taken, err := o.app.taken(ctx, &o.Roots)
	if err != nil {
		return err
	}
	request := install.Request{
		Source:    given,
		Ref:       o.Ref,
		Subdir:    o.Subdir,
		Name:      o.Name,
		Tier:      tier,
		All:       o.All,
		KeepGoing: o.Keep,
		Insecure:  o.Insecure,
	}
	var result *installReport
	return o.app.carryOut(ctx, &planned{
		taken:   taken,
		dry:     o.DryRun,
		added:   true,
		compute: func(i *install.Installer) (*install.Plan, error) { return i.Add(ctx, request) },
		describe: func(plan *install.Plan) error {
			result, err = o.app.newInstallReport(ctx, plan)
			return err
		},
		failure: func(err error) error { return o.failure(given, err) },
		print: func(*install.Plan) error {
			result.DryRun = o.DryRun
			var err error
			if o.JSON {
				err = report.WriteJSON(o.app.out, result)
			} else {
				err = result.print(o.app)
			}
			if err == nil && len(result.Refused) > 0 {
				err = &exitError{Code: exitProblems}
			}
			return err
		},
	})
}

// planned is a command that changes what is installed.
type planned struct {
	taken func(path string) string // see [app.installer]
	dry   bool                     // the plan is shown and not carried out
	added bool                     // nothing that was installed before changes

	compute func(i *install.Installer) (*install.Plan, error)
	// describe reads what is at hand only until the plan is carried out; nil: nothing is.
	describe func(plan *install.Plan) error
	failure  func(error) error              // gives an error its hint; nil: installFailure
	print    func(plan *install.Plan) error // once the plan is carried out
}

// carryOut computes a plan, carries it out and prints it.
func (a *app) carryOut(ctx context.Context, p *planned) (err error) {
	failure := p.failure
	if failure == nil {
		failure = installFailure
	}
	installer, end, err := a.installer(ctx, p.taken)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	before := installer.Lock()
	plan, err := p.compute(installer)
	if err != nil {
		return failure(err)
	}
	if p.describe != nil {
		err = p.describe(plan)
	}
	if err == nil && !p.dry {
		if err = plan.Apply(ctx); err != nil {
			err = failure(err)
		}
	}
	if err := errors.Join(err, plan.Close()); err != nil {
		return err
	}
	a.endProgress()
	err = p.print(plan)
	var names []string
	after := map[string]*install.Entry{}
	for _, c := range plan.Changes {
		if c.After != c.Before && !p.added {
			names, after[c.Name] = append(names, c.Name), c.After
		}
	}
	a.notePins(names, before.Find, func(name string) *install.Entry { return after[name] })
	if !p.dry {
		a.collectTrees(ctx, installer)
	}
	return err
}

// taken tells what else is served under a path. What is installed is known to the installer.
func (a *app) taken(ctx context.Context, o *config.RootOptions) (func(path string) string, error) {
	roots, err := o.Given(&a.Process)
	if len(o.Specs) == 0 {
		// Those of the working directory are served in this directory only.
		roots = slices.DeleteFunc(roots, func(root skills.Root) bool { return root.Tier == skills.LeastTrusted() })
	}
	if err != nil || len(roots) == 0 {
		return nil, err
	}
	snapshot, err := skills.Scan(ctx, roots, o.ScanOptions())
	if err != nil {
		return nil, err
	}
	return func(path string) string {
		if sk := snapshot.Skill(path); sk != nil {
			return skillFile(sk)
		}
		return ""
	}, nil
}

// failure says what resolves an error of an installation.
func (o *installOptions) failure(given string, err error) error {
	several, isSeveral := errors.AsType[*install.SeveralError](err)
	refused, isRefused := errors.AsType[*install.RefusedError](err)
	switch {
	case isSeveral:
		return &exitError{Code: exitUsage, Err: errors.New(report.Printable(several.Error())), Hint: "name one with --subdir, or install them with --all: " + shellLine([]string{"skillsd", "install", given, "--subdir", several.Paths[0]})}
	case isRefused && o.All:
		o.app.endProgress()
		for _, r := range refused.Refused[:min(len(refused.Refused), maxListed)] {
			fmt.Fprintf(o.app.err, "error: %s\n", report.Printable(joinPath(r.Path, "")+": "+r.Reason))
		}
		exit := &exitError{Code: exitFailure, Err: fmt.Errorf("%s cannot be installed, so none is", report.Plural(len(refused.Refused), "skill"))}
		if refused.Others > 0 {
			exit.Hint = fmt.Sprintf("--keep-going installs the other %d: ", refused.Others) + shellLine([]string{"skillsd", "install", given, "--all", "--keep-going"})
		}
		return exit
	case isRefused:
		return &exitError{Code: exitFailure, Err: errors.New(report.Printable(refused.Error()))}
	}
	return installFailure(err)
}

// installFailure gives an error of a plan its exit code, and says what resolves it.
func installFailure(err error) error {
	fail := &exitError{Code: exitFailure, Err: errors.New(report.Printable(err.Error()))}
	refused, isRefused := errors.AsType[*install.SourceError](err)
	fetch, isFetch := errors.AsType[*install.FetchError](err)
	archive, isArchive := errors.AsType[*source.ArchiveError](err)
	_, isMissing := errors.AsType[*install.MissingError](err)
	_, isCorrupt := errors.AsType[*store.CorruptError](err)
	switch {
	case isRefused:
		fail.Code, fail.Hint = exitUsage, refused.Hint
	case isMissing:
		fail.Code, fail.Hint = exitUsage, "`skillsd list` shows what is installed and where it came from"
	case errors.Is(err, install.ErrNoPrevious):
		fail.Hint = "only a skill that was updated can be rolled back: `skillsd update` updates it"
	case isCorrupt || errors.Is(err, store.ErrNotFound):
		fail.Hint = "`skillsd sync` brings back what the lock file says; then try again"
	case errors.Is(err, install.ErrNoGit):
		fail.Hint = "install git from your distribution, or give a zip archive or a directory"
	case isFetch:
		fail.Hint = "see what can be fetched: " + shellLine([]string{"git", "ls-remote", "--", fetch.Source})
	case isArchive:
		fail.Err = errors.New(report.Printable(archive.Error()))
	default:
		fail.Hint = systemHint(err)
	}
	return fail
}

// installer opens the installation of the state directory; taken tells what is served from elsewhere, and
// nil is for commands that bring nothing. end closes it and removes the progress.
func (a *app) installer(ctx context.Context, taken func(path string) string) (i *install.Installer, end func() error, err error) {
	state, err := a.stateDir()
	if err != nil {
		return nil, nil, err
	}
	trees, err := store.Open(state)
	if err != nil {
		return nil, nil, placeError("state directory", "--state", err)
	}
	git, _ := exec.LookPath("git")
	i, err = install.Open(ctx, install.Config{
		State: state, Trees: trees, Git: install.Git{Path: git, Env: a.gitEnv()}, Progress: a.progress(), Taken: taken,
		Waiting: func() {
			fmt.Fprintln(a.err, "skillsd: note: another skillsd is changing what is installed; waiting for it")
		},
	})
	if err != nil {
		return nil, nil, errors.Join(lockFailure(err), trees.Close())
	}
	return i, func() error {
		a.endProgress()
		return errors.Join(i.Close(), trees.Close())
	}, nil
}

// lockFailure says what mends a lock file that cannot be read.
func lockFailure(err error) error {
	if problem, ok := errors.AsType[*install.LockError](err); ok {
		return &exitError{Code: exitFailure, Err: err, Hint: hintLock(problem.File)}
	}
	return err
}

func hintLock(file string) string {
	return "bring back the lock file from a backup, or forget what is installed: " + shellLine([]string{"mv", file, file + ".bad"})
}

// gitEnv is what git may know of the environment.
func (a *app) gitEnv() []string {
	var env []string
	for _, name := range []string{"PATH", "SSH_AUTH_SOCK", "http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR", "SYSTEMROOT", "TEMP"} {
		if value, ok := a.Env(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// progress shows how far a long command is, on a terminal.
func (a *app) progress() func(what string, done, total int) {
	if !report.IsTerminal(a.err) {
		return nil
	}
	shown := time.Now()
	return func(what string, done, total int) {
		if total > 0 && time.Since(shown) < 200*time.Millisecond {
			return
		}
		shown = time.Now()
		text := what
		if total > 0 {
			text = fmt.Sprintf("%s: %d of %d", what, done, total)
		}
		fmt.Fprintf(a.err, "\r%s\x1b[K", text)
	}
}

// endProgress removes what progress shows.
func (a *app) endProgress() {
	if report.IsTerminal(a.err) {
		fmt.Fprint(a.err, "\r\x1b[K")
	}
}

// originText is where an installed skill came from, in one line.
func originText(e *install.Entry) string {
	text := e.Origin.Source
	if e.Origin.Path != "." {
		text += " " + e.Origin.Path
	}
	if e.Origin.Commit != "" {
		text += " at " + e.Origin.Commit[:12]
	}
	if e.Origin.Ref != "" && e.Origin.Ref != e.Origin.Commit {
		text += " (" + e.Origin.Ref + ")"
	}
	return text
}

// noScripts is the allowlist of commands that only tell what could be allowed.
func noScripts() policy.Allowlist { return policy.Allowlist{} }
