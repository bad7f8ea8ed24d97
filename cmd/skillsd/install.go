package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/skills/policy"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/source"
	"github.com/skillsd/skillsd/skills/store"
)

// planned is a command that changes what is installed.
type planned struct {
	taken func(path string) string // as in install.Config
	dry   bool                     // the plan is printed and not carried out
	added bool                     // the plan concerns nothing that was installed before

	compute func(i *install.Installer) (*install.Plan, error)
	// describe reads the skills of the plan, which cannot be read once it is carried out; may be nil.
	describe func(plan *install.Plan) error
	failure  func(error) error              // gives an error its hint; nil: installFailure
	print    func(plan *install.Plan) error // runs after the plan is carried out
}

// carryOut computes a plan, carries it out and prints it.
func (a *app) carryOut(ctx context.Context, p *planned) (err error) {
	failure := p.failure
	if failure == nil {
		failure = installFailure
	}
	installed, err := a.installation(ctx, p.taken)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, installed.Close()) }()
	before := installed.Lock()
	plan, err := p.compute(installed.Installer)
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
	installed.line.Clear()
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
		a.collectTrees(ctx, installed.Installer)
	}
	return err
}

// taken returns a function for the place of the skill that is served under a path from elsewhere than
// the installation.
func (a *app) taken(ctx context.Context, o *config.RootOptions) (func(path string) string, error) {
	roots, err := o.Given(&a.Process)
	if len(o.Specs) == 0 {
		// Skills of the working directory are served in this directory only.
		roots = slices.DeleteFunc(roots, func(
			root skills.Root) bool {
			return root.Tier == skills.LeastTrusted()
		})
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
			return report.SkillFile(sk)
		}
		return ""
	}, nil
}

// installFailure gives an error of a plan its exit code, and says what resolves it.
func installFailure(err error) error {
	fail := &exit.Error{Code: exit.Failure, Err: errors.New(report.Printable(err.Error()))}
	refused, isRefused := errors.AsType[*install.SourceError](err)
	fetch, isFetch := errors.AsType[*install.FetchError](err)
	archive, isArchive := errors.AsType[*source.ArchiveError](err)
	_, isMissing := errors.AsType[*install.MissingError](err)
	_, isCorrupt := errors.AsType[*store.CorruptError](err)
	switch {
	case isRefused:
		fail.Code, fail.Hint = exit.Usage, refused.Hint
	case isMissing:
		fail.Code, fail.Hint = exit.Usage, "`skillsd list` shows what is installed and where it came from"
	case errors.Is(err, install.ErrNoPrevious):
		fail.Hint = "only a skill that was updated can be rolled back: `skillsd update` updates it"
	case isCorrupt || errors.Is(err, store.ErrNotFound):
		fail.Hint = "`skillsd sync` brings back what the lock file says; then try again"
	case errors.Is(err, install.ErrNoGit):
		fail.Hint = "install git from your distribution, or give a zip archive or a directory"
	case isFetch:
		fail.Hint = "see what can be fetched: " + report.ShellLine("git", "ls-remote", "--", fetch.Source)
	case isArchive:
		fail.Err = errors.New(report.Printable(archive.Error()))
	default:
		fail.Hint = exit.SystemHint(err)
	}
	return fail
}

// installation is the installation of the state directory, open for one command.
type installation struct {
	*install.Installer
	trees *store.Store
	line  *report.StatusLine // how far the command is
}

// installation opens the installation. taken is as in install.Config.
func (a *app) installation(ctx context.Context, taken func(path string) string) (*installation, error) {
	state, err := a.StateDir()
	if err != nil {
		return nil, err
	}
	trees, err := store.Open(state)
	if err != nil {
		return nil, exit.Place("state directory", "--state", err)
	}
	git, _ := exec.LookPath("git")
	line := report.NewStatusLine(a.err)
	i, err := install.Open(ctx, install.Config{
		State:    state,
		Trees:    trees,
		Git:      install.Git{Path: git, Env: a.gitEnv()},
		Progress: showProgress(line),
		Taken:    taken,
		Waiting: func() {
			const text = "another skillsd is changing what is installed; waiting for it"
			fmt.Fprintln(a.err, "skillsd: note: "+text)
		},
	})
	if err != nil {
		return nil, errors.Join(lockFailure(err), trees.Close())
	}
	return &installation{i, trees, line}, nil
}

func (i *installation) Close() error {
	i.line.Clear()
	return errors.Join(i.Installer.Close(), i.trees.Close())
}

// showProgress returns a function that shows the steps of an installer in a line.
func showProgress(line *report.StatusLine) func(what string, done, total int) {
	shown := time.Now()
	return func(what string, done, total int) {
		// A step that is counted changes the line at most five times a second, so that it can be read.
		if total > 0 && time.Since(shown) < 200*time.Millisecond {
			return
		}
		shown = time.Now()
		if total > 0 {
			what = fmt.Sprintf("%s: %d of %d", what, done, total)
		}
		line.Set(what)
	}
}

// lockFailure says what repairs a lock file that cannot be read.
func lockFailure(err error) error {
	if problem, ok := errors.AsType[*install.LockError](err); ok {
		return &exit.Error{Code: exit.Failure, Err: err, Hint: hintLock(problem.File)}
	}
	return err
}

func hintLock(file string) string {
	return "bring back the lock file from a backup, or forget what is installed: " +
		report.ShellLine("mv", file, file+".bad")
}

// gitEnv returns the variables of the environment that git may use.
func (a *app) gitEnv() []string {
	var env []string
	for _, name := range []string{
		"PATH", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR", "SYSTEMROOT", "TEMP",
		"http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY",
	} {
		if value, ok := a.Env(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

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
		Long: "Install the skill of a source, or with --all every skill of it, below the state\n" +
			"directory, from where `skillsd serve` serves it. SOURCE is a git URL (https:// or\n" +
			"ssh://), a zip archive or a directory. The skills are checked and reported; nothing of\n" +
			"them is run, and no script may run before it is allowed: see `skillsd allow`. A\n" +
			"failure leaves nothing behind.\n\n" +
			"  skillsd install https://github.com/anthropics/skills --subdir skills/pdf\n" +
			"  skillsd install ./my-skills --all --tier user\n\n" +
			"A skill is named by its directory in the source; --name chooses another name.\n" +
			"skillsd.lock in the state directory has the source, the commit and the digest of every\n" +
			"file. With --keep-going the exit code is 3 if a skill was left out.",
		Args: cobra.ExactArgs(1),
		RunE: runE(func(ctx context.Context, args []string) error { return opts.run(ctx, args[0]) }),
	}
	opts.Roots.Register(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&opts.Ref, "ref", "",
		"branch, tag or commit of a git repository: `REF` (default: the repository's default branch)")
	flags.StringVar(&opts.Subdir, "subdir", "", "look in this `DIR` of the source only")
	flags.StringVar(&opts.Name, "name", "", "`NAME` to install the skill under")
	flags.StringVar(&opts.Tier, "tier", skills.LeastTrusted().String(),
		"how far the skills are trusted: `TIER` is "+skills.TierList())
	flags.BoolVar(&opts.All, "all", false, "install every skill of the source")
	flags.BoolVar(&opts.Keep, "keep-going", false,
		"with --all: install what can be installed, and report the rest")
	flags.BoolVar(&opts.Insecure, "insecure-transport", false,
		"accept http:// and git:// URLs of other machines")
	flags.BoolVar(&opts.DryRun, "dry-run", false, "fetch, check and report; install nothing")
	flags.BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *installOptions) run(ctx context.Context, given string) error {
	tier, err := skills.ParseTier(o.Tier)
	if err != nil {
		return exit.Flag("tier", err)
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
				err = &exit.Error{Code: exit.Problems}
			}
			return err
		},
	})
}

// failure gives an error of an installation its exit code, and says what resolves it.
func (o *installOptions) failure(given string, err error) error {
	several, isSeveral := errors.AsType[*install.SeveralError](err)
	refused, isRefused := errors.AsType[*install.RefusedError](err)
	switch {
	case isSeveral:
		one := []string{"skillsd", "install", given, "--subdir", several.Paths[0]}
		return &exit.Error{
			Code: exit.Usage,
			Err:  errors.New(report.Printable(several.Error())),
			Hint: "name one with --subdir, or install them with --all: " + report.ShellLine(one...),
		}
	case isRefused && o.All:
		for _, r := range refused.Refused[:min(len(refused.Refused), maxListed)] {
			fmt.Fprintf(o.app.err, "error: %s\n", report.Printable(report.JoinPath(r.Path, "")+": "+r.Reason))
		}
		failed := &exit.Error{
			Code: exit.Failure,
			Err: fmt.Errorf("%s cannot be installed, so none is",
				report.Plural(len(refused.Refused), "skill")),
		}
		if refused.Others > 0 {
			failed.Hint = fmt.Sprintf("--keep-going installs the other %d: ", refused.Others) +
				report.ShellLine("skillsd", "install", given, "--all", "--keep-going")
		}
		return failed
	case isRefused:
		return &exit.Error{Code: exit.Failure, Err: errors.New(report.Printable(refused.Error()))}
	}
	return installFailure(err)
}

// installReport is the result of an installation, as install --json prints it.
type installReport struct {
	Installed []installedRow    `json:"installed"`
	Refused   []install.Refusal `json:"refused"` // with --keep-going
	Notes     []string          `json:"notes"`   // on the source
	DryRun    bool              `json:"dryRun"`
}

// installedRow is an installed skill: what the lock file says and what the skill is.
type installedRow struct {
	Lock  *install.Entry  `json:"lock"`
	Skill report.SkillRow `json:"skill"`
	// Nested are the skills that lie in it, each served by itself.
	Nested []report.SkillRow `json:"nested"`
	// Left are the files of the source that are not installed, and why.
	Left []report.Diagnostic `json:"left"`
}

// newInstallReport describes the skills of a plan.
func (a *app) newInstallReport(ctx context.Context, plan *install.Plan) (*installReport, error) {
	state, err := a.StateDir()
	if err != nil {
		return nil, err
	}
	all := &installReport{
		Installed: make([]installedRow, len(plan.Changes)),
		Refused:   append([]install.Refusal{}, plan.Refused...),
		Notes:     append([]string{}, plan.Notes...),
	}
	nested := map[string][]*skills.Skill{}
	for _, sk := range plan.New.Skills {
		if name, _, below := strings.Cut(sk.Path, "/"); below {
			nested[name] = append(nested[name], sk)
		}
	}
	err = report.Each(ctx, len(plan.Changes), func(n int) {
		c := &plan.Changes[n]
		described := append([]*skills.Skill{plan.New.Skill(c.Name)}, nested[c.Name]...)
		all.Installed[n] = newInstalledRow(ctx, state, plan.New, described, c)
	})
	return all, err
}

// newInstalledRow describes a skill, the first of described, as it will be served, and the skills that
// lie in it.
func newInstalledRow(ctx context.Context, state string, snapshot *skills.Snapshot, described []*skills.Skill,
	c *install.Change) installedRow {
	e := c.After
	rows := make([]report.SkillRow, len(described))
	for n, sk := range described {
		rows[n] = report.NewSkillRow(ctx, snapshot, sk, policy.Allowlist{})
	}
	_ = report.AddViolations(ctx, rows) // it ends early only when ctx does
	for n := range rows {
		row := &rows[n]
		row.Tier, row.Root, row.Origin = e.Tier.String(), install.RootDir(state, e.Tier), originText(e)
		row.File = strings.Replace(row.File, described[n].Root.Dir, row.Root, 1)
	}
	return installedRow{Lock: e, Skill: rows[0], Nested: append([]report.SkillRow{}, rows[1:]...),
		Left: report.Diagnostics(c.Left)}
}

// print prints what is installed on stdout, and what is odd about it on stderr.
func (r *installReport) print(a *app) error {
	a.printNotes(r.Notes)
	for _, refused := range r.Refused {
		fmt.Fprintf(a.err, "not installed: %s\n", report.Printable(refused.Path+": "+refused.Reason))
	}
	verb := "installed"
	if r.DryRun {
		verb = "would install"
	}
	if len(r.Installed) == 1 {
		return r.Installed[0].print(a, verb)
	}
	var rows []report.SkillRow
	var found []report.Diagnostic
	for _, one := range r.Installed {
		rows = append(append(rows, one.Skill), one.Nested...)
		found = append(found, report.Notable(one.Skill.Path+"/", one.Left)...)
	}
	for i := range rows {
		found = append(found, report.Notable(rows[i].Path+"/", rows[i].Diagnostics)...)
	}
	if err := report.PrintSkills(a.out, rows, a.columns(a.out)); err != nil {
		return err
	}
	for i := range rows {
		if text := rows[i].Powers(); text != "" {
			fmt.Fprintf(a.out, "  %s: %s\n", report.Printable(rows[i].Path), report.Printable(text))
		}
	}
	if err := report.WriteDiagnostics(a.err, found, maxListed); err != nil {
		return err
	}
	count := report.Plural(len(r.Installed), "skill")
	if more := len(rows) - len(r.Installed); more > 0 {
		count += fmt.Sprintf(" and %d nested in them", more)
	}
	const more = "`skillsd show NAME` has more, no script may run before `skillsd allow`"
	_, err := fmt.Fprintf(a.err, "%s %s; %s\n", verb, count, more)
	return err
}

// print prints what one skill is and what it could do.
func (r *installedRow) print(a *app, verb string) error {
	fmt.Fprintf(a.out, "%s %s (%s)\n", verb, report.Printable(r.Lock.Name), r.Lock.Tier)
	r.facts(a.out)
	for i := range r.Nested {
		fmt.Fprintf(a.out, "nested skill %s (%s)\n", report.Printable(r.Nested[i].Path), r.Lock.Tier)
		r.Nested[i].PrintFacts(a.out)
	}
	all := append([]report.SkillRow{r.Skill}, r.Nested...)
	var diagnostics []report.Diagnostic
	for i := range all {
		of := all[i].Diagnostics
		if i == 0 {
			of = append(append([]report.Diagnostic{}, of...), r.Left...)
		}
		for _, d := range of {
			d.Path = all[i].Path + "/" + d.Path
			diagnostics = append(diagnostics, d)
		}
	}
	if err := report.WriteDiagnostics(a.err, diagnostics, maxListed); err != nil {
		return err
	}
	for i := range all {
		for _, v := range all[i].Violations {
			fmt.Fprintf(a.err, "strict: %s\n",
				report.ProblemLine(report.PlaceAt(all[i].Path+"/SKILL.md", v.Line), v.Rule, v.Message, v.Fix))
		}
	}
	return r.hintAllow(a)
}

// hintAllow says how a script of the skill may be allowed.
func (r *installedRow) hintAllow(a *app) error {
	if _, err := policy.ParseEntry(r.Lock.Name + ":scripts/x"); err != nil && len(r.Skill.Scripts) > 0 {
		fmt.Fprintln(a.err, "hint: no script can be allowed under this name; "+
			"`skillsd remove` it and install it with --name, in lower-case letters and digits with "+
			"single hyphens")
		return nil
	}
	for _, script := range r.Skill.Scripts {
		if script.Runtime != "" {
			entry := report.Printable(report.ShellLine(r.Lock.Name + ":" + script.Path))
			fmt.Fprintf(a.err, "hint: no script may run before it is allowed:\n  skillsd allow %s\n", entry)
			break
		}
	}
	return nil
}

// facts prints what an installed skill is.
func (r *installedRow) facts(w io.Writer) {
	links := 0
	for _, d := range r.Left {
		if d.Code == skills.CodeResourceOutside {
			links++
		}
	}
	report.PrintFact(w, "from", r.Skill.Origin)
	if links > 0 {
		report.PrintFact(w, "links", fmt.Sprintf("%d lead out of the skill and are left out", links))
	}
	r.Skill.PrintFacts(w)
}

// printNotes prints what is worth knowing about a source, at most maxListed lines.
func (a *app) printNotes(notes []string) {
	for _, note := range notes[:min(len(notes), maxListed)] {
		fmt.Fprintf(a.err, "note: %s\n", report.Printable(note))
	}
	if more := len(notes) - maxListed; more > 0 {
		fmt.Fprintf(a.err, "note: and %d more\n", more)
	}
}
