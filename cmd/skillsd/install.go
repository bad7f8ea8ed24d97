package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/opencontainers/go-digest"
	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/installing"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/store"
)

// planned is a command that changes the installed skills.
type planned struct {
	roots *config.RootOptions // installed skills may not take paths of skills in these roots; may be nil
	dry   bool                // print the plan without carrying it out
	quiet bool                // the caller reports what is installed and not served
	// some is set if no skill was named: a skill that waits for a review is then a fact about the source, and
	// no problem of the command. So is one that lacks a requirement, as long as others are served.
	some bool
	// compute also describes the skills of the plan, which cannot be read after it is carried out.
	compute func(i *install.Installer) (*install.Plan, error)
	// confirm runs before the plan is carried out, and may return an error to stop; may be nil.
	confirm func(ctx context.Context, plan *install.Plan) error
	print   func(plan *install.Plan) error // runs after the plan is carried out; may be nil
}

// apply carries a plan out, after the confirmation if there is one. A dry run does nothing.
func (p *planned) apply(ctx context.Context, plan *install.Plan, installed *installation) error {
	if p.dry {
		return nil
	}
	err := plan.Prepare(ctx)
	// The status line must not be left above a question.
	installed.line.Clear()
	if err != nil {
		return err
	}
	if p.confirm != nil {
		if err := p.confirm(ctx, plan); err != nil {
			return err
		}
	}
	if err := plan.Apply(ctx); err != nil {
		return err
	}
	return installing.NoteHeld(installed.state, plan, installed.Lock())
}

// carryOut computes a plan, carries it out and prints it.
func (a *app) carryOut(ctx context.Context, p planned) (err error) {
	if !p.dry {
		if err := a.configByUser(); err != nil {
			return err
		}
	}
	installed, err := a.installation(ctx, p.roots)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, installed.Close()) }()
	plan, err := p.compute(installed.Installer)
	if err != nil {
		return installing.Failure(err)
	}
	err = errors.Join(p.apply(ctx, plan, installed), plan.Close())
	if err != nil {
		return installing.Failure(err)
	}
	// Clear the status line before the result.
	installed.line.Clear()
	if p.print != nil {
		err = p.print(plan)
	}
	// Report scripts whose pin no longer matches; otherwise a model's call would fail later.
	for _, line := range installing.PinNotes(&a.Cfg, plan, p.dry) {
		a.notef("skillsd: note: %s", line)
	}
	if p.quiet {
		return err
	}
	waits := a.warnWaiting(installing.Waiting(plan, p.dry))
	if waits && err == nil && !p.some {
		err = &exit.Error{Code: exit.Problems}
	}
	if !p.dry {
		a.collectTrees(ctx, installed.Installer)
	}
	return err
}

// warnWaiting warns of skills that are installed and not served, each with a hint or none, and reports
// whether there are any.
func (a *app) warnWaiting(rows [][2]string) bool {
	for _, row := range rows {
		a.say("warning", row[0])
		if row[1] != "" {
			a.say("hint", row[1])
		}
	}
	return len(rows) > 0
}

// taken returns a function that returns the location of a skill served under a path from outside the
// installation; nil without such skills.
func (a *app) taken(ctx context.Context, o *config.RootOptions) (func(path string) string, error) {
	roots, err := o.Given(&a.Process)
	if len(o.Specs) == 0 {
		// Skills of the working directory are served in this directory only.
		roots = slices.DeleteFunc(roots, func(r skills.Root) bool { return r.Tier == skills.LeastTrusted() })
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

// installation is the installation in the state directory, open for one command.
type installation struct {
	*install.Installer
	state string // its directory
	trees *store.Store
	line  *report.StatusLine // progress of the command
}

// installation opens the installation. Skills of roots, which may be nil, keep their paths.
func (a *app) installation(ctx context.Context, roots *config.RootOptions) (*installation, error) {
	state, err := a.StateDir()
	if err != nil {
		return nil, err
	}
	if err := a.CheckDirs(); err != nil {
		return nil, err
	}
	// Without git only sources that need it fail.
	git, _ := exec.LookPath("git")
	line := report.NewStatusLine(a.err)
	cfg := install.Config{
		State: state,
		// The credential helper of a desktop asks a keyring, by the bus and the display of the session.
		Git: install.Git{Path: git, User: a.environment("HOME", "USERPROFILE", "XDG_CONFIG_HOME",
			"XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY"),
			Env: a.environment("PATH", "SSH_AUTH_SOCK", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH",
				"SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR",
				"SYSTEMROOT", "TEMP", "http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy",
				"NO_PROXY", "all_proxy", "ALL_PROXY")},
		Proxy:    proxy,
		Login:    a.RegistryLogin(),
		Progress: line.Count,
		Located: func(given string, full install.Request) {
			line.Clear()
			a.notef("skillsd: note: %s", report.Printable(located(given, full)))
		},
		Waiting: func() {
			a.notef("skillsd: note: another skillsd is changing what is installed; waiting for it")
		},
	}
	cfg.Admit, err = a.Admit()
	if err != nil {
		return nil, err
	}
	if roots != nil {
		cfg.Taken, err = a.taken(ctx, roots)
		if err != nil {
			return nil, err
		}
	}
	cfg.Trees, err = store.Open(state)
	if err != nil {
		return nil, exit.Directory("state directory", "--state", err)
	}
	i, err := install.Open(ctx, cfg)
	if err != nil {
		return nil, errors.Join(installing.Failure(err), cfg.Trees.Close())
	}
	return &installation{i, state, cfg.Trees, line}, nil
}

func (i *installation) Close() error {
	i.line.Clear()
	return errors.Join(i.Installer.Close(), i.trees.Close())
}

// environment returns the set variables among names.
func (a *app) environment(names ...string) []string {
	var env []string
	for _, name := range names {
		if value, ok := a.Env(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// proxy returns the environment's proxy for a URL.
func proxy(at *url.URL) (*url.URL, error) {
	return http.ProxyFromEnvironment(&http.Request{URL: at})
}

// installOptions are the flags of install.
type installOptions struct {
	app          *app
	Roots        config.RootOptions
	Tier, SHA256 string
	request      install.Request
	access       config.AccessOptions
	Plugins      []string
	DryRun, JSON bool
	Yes          bool

	result  *report.Installation // of the plan
	missing int                  // how many skills of the plan lack a requirement
}

func newInstallCmd(a *app) *cobra.Command {
	opts := &installOptions{app: a}
	cmd := &cobra.Command{
		Use:   "install SOURCE [SKILL...]",
		Short: "Install skills from a repository, a site, a file or a directory",
		Long: "Install the skill of a source, the skills that you name, or with --all every skill. " +
			"skillsd checks and describes them, and runs none of their files. No script runs until you " +
			"allow it: see `skillsd allow`. A failure leaves nothing behind.\n\n" +
			"  skillsd install anthropics/skills pdf docx\n" +
			"  skillsd install https://github.com/anthropics/skills/tree/main/skills/pdf\n" +
			"  skillsd install npx skills add anthropics/skills --skill pdf\n" +
			"  skillsd install https://example.com/notes-1.2.tar.gz --sha256 9f86d081...\n" +
			"  skillsd install https://example.com/.well-known/agent-skills/index.json --all\n" +
			"  skillsd install oci://ghcr.io/example/notes:1.2\n" +
			"  skillsd install ./my-skills --all --tier user\n\n" +
			"SOURCE is what you would paste: OWNER/REPO of GitHub; the address of a repository or of " +
			"one of its pages, of a site that publishes skills, or of a SKILL.md; a git URL (https:// " +
			"or ssh://); the URL of a .tar.gz, .tgz, .tar or .zip archive; a reference to an image " +
			"registry (oci://); an MCP server that serves skills (mcp+https://HOST/mcp, " +
			"'mcp+stdio:PROGRAM ARGUMENT...'); an archive on this machine, or a directory.\n\n" +
			"A skill is named by its directory in the source; --name chooses another name. " +
			"skillsd.lock in the state directory has the source, the commit and the digest of every " +
			"file. With --keep-going the exit code is 3 if a skill was left out.\n\n" +
			"A skill with invisible text or other suspicious content needs your review first. On a " +
			"terminal you are asked; elsewhere it is installed and not served. The exit code is then 3; " +
			"with --all or --plugin it is 0. See `skillsd update --accept` and `skillsd help install`.",
		Args: cobra.MinimumNArgs(1),
		RunE: runE(opts.run),
	}
	opts.Roots.Register(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&opts.request.Ref, "ref", "",
		"branch, tag or commit of a git repository: `REF` (default: the repository's default branch)")
	flags.StringVar(&opts.SHA256, "sha256", "",
		"`DIGEST` that the bytes of the archive must have, now and at updates")
	flags.StringVar(&opts.request.Subdir, "subdir", "", "look in this `DIR` of the source only")
	flags.StringArrayVar(&opts.Plugins, "plugin", nil, "install the skills of this `PLUGIN` of the source")
	flags.StringVar(&opts.request.Name, "name", "", "`NAME` to install the skill under")
	flags.StringVar(&opts.Tier, "tier", skills.LeastTrusted().String(),
		"how far the skills are trusted: `TIER` is "+skills.TierList())
	flags.BoolVar(&opts.request.All, "all", false, "install every skill of the source")
	flags.BoolVar(&opts.request.KeepGoing, "keep-going", false,
		"with --all: install what can be installed, and report the rest")
	flags.BoolVar(&opts.request.WithRequirements, "with-requirements", false,
		"also install the skills of the source that it requires")
	opts.access.Register(flags, true)
	flags.BoolVar(&opts.DryRun, "dry-run", false, "fetch, check and report; install nothing")
	flags.BoolVarP(&opts.Yes, "yes", "y", false,
		"do not ask: a skill that needs your review is installed and not served")
	flags.BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *installOptions) run(ctx context.Context, args []string) error {
	o.request.Source, o.request.Skills = args[0], args[1:]
	if err := o.complete(); err != nil {
		return err
	}
	state, err := o.app.StateDir()
	if err != nil {
		return err
	}
	options := o.Roots.ScanOptions()
	if err := (&config.SkillOptions{Validation: "lenient"}).Apply(options, &o.app.Process); err != nil {
		return err
	}
	return o.app.carryOut(ctx, planned{
		roots: &o.Roots,
		dry:   o.DryRun,
		some:  o.isSome(),
		confirm: func(ctx context.Context, plan *install.Plan) error {
			return o.app.accept(ctx, plan, nil, !o.JSON && !o.Yes)
		},
		compute: func(i *install.Installer) (*install.Plan, error) {
			plan, err := i.Add(ctx, o.request)
			if err != nil {
				return nil, o.failure(err)
			}
			o.result, err = report.NewInstallation(ctx, plan, state, o.DryRun)
			if err != nil {
				return plan, err
			}
			o.missing = plan.Lacking + o.result.MarkMissing(plan, i.Lock(), options)
			return plan, nil
		},
		print: func(*install.Plan) error { return o.print() },
	})
}

// isSome reports whether the user named no skills.
func (o *installOptions) isSome() bool { return o.request.All || o.request.Plugin != "" }

// complete completes the request from the flags, and refuses flags that do not fit.
func (o *installOptions) complete() (err error) {
	if len(o.request.Skills) > 0 && o.request.All {
		return exit.Usagef("leave one of them out", "--all installs every skill, and skills are named too")
	}
	// Only the last one would be installed, and the result would not show that.
	if len(o.Plugins) > 1 {
		return exit.Usagef("run it once for each plugin, or install all with --all",
			"--plugin is given %d times, and one plugin is installed at a time", len(o.Plugins))
	}
	if len(o.Plugins) == 1 {
		o.request.Plugin = o.Plugins[0]
	}
	if o.SHA256 != "" {
		o.request.Digest = digest.Digest("sha256:" + strings.ToLower(strings.TrimPrefix(o.SHA256, "sha256:")))
	}
	o.request.Tier, err = skills.ParseTier(o.Tier)
	if err != nil {
		return exit.Flag("tier", err)
	}
	// In an agent's shell, a model would decide how far its own skill is trusted.
	if o.request.Tier != skills.LeastTrusted() && !o.DryRun {
		if err := o.app.byUser("--tier " + o.Tier); err != nil {
			return err
		}
	}
	o.request.Access, err = o.app.access(&o.access)
	return err
}

// print prints the result. It returns an error if a skill was left out, or if one cannot be used.
func (o *installOptions) print() error {
	o.result.MarkWaiting()
	var err error
	if o.JSON {
		err = report.WriteJSON(o.app.out, o.result)
	} else {
		o.result.Again = o.app.again
		err = o.result.Print(o.app.out, o.app.err, o.app.columns(o.app.out))
	}
	if err != nil {
		return err
	}
	if len(o.result.Refused) > 0 || o.missing > 0 && !(o.isSome() && o.result.Serves()) {
		return &exit.Error{Code: exit.Problems}
	}
	return nil
}

// access returns the access to sources. In an agent's shell only the configuration may name the trusted root
// of identities.
func (a *app) access(o *config.AccessOptions) (install.Access, error) {
	if o.TrustedRoot != "" {
		if err := a.byUser("--trusted-root"); err != nil {
			return install.Access{}, err
		}
	}
	return o.Access(&a.Process)
}

// located describes a source in full that was written in another form.
func located(given string, full install.Request) string {
	text := given + " is " + full.Source
	if full.Ref != "" {
		text += ", ref " + full.Ref
	}
	if full.Subdir != "" {
		text += ", directory " + full.Subdir
	}
	if len(full.Skills) > 0 {
		text += ", " + strings.Join(full.Skills, ", ")
	}
	return text
}

// printPlugins prints the plugins of a source, for a user who has to choose.
func (o *installOptions) printPlugins(several *install.SeveralError) {
	w := tabwriter.NewWriter(o.app.err, 0, 0, 2, ' ', 0)
	for _, row := range several.Plugins[:min(len(several.Plugins), report.MaxListed)] {
		skills := report.Plural(row.Skills, "skill")
		if row.Remote != "" {
			skills = "in " + row.Remote
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", report.Printable(row.Name), report.Printable(skills),
			report.OneLine(row.Description))
	}
	_ = w.Flush()
	if more := len(several.Plugins) - report.MaxListed; more > 0 {
		o.app.notef("and %d more", more)
	}
}

// failure adds a hint to the error for skills that cannot be installed.
func (o *installOptions) failure(err error) error {
	several, isSeveral := errors.AsType[*install.SeveralError](err)
	refused, isRefused := errors.AsType[*install.RefusedError](err)
	given := []string{"skillsd", "install", o.request.Source}
	switch {
	case isSeveral && len(several.Plugins) > 1:
		o.printPlugins(several)
		return exit.Errorf(exit.Usage, "give --plugin NAME, the names of skills, or --all: "+
			report.ShellLine(append(given, "--plugin", several.Plugins[0].Name)...),
			"the source has %d plugins and %d skills", len(several.Plugins), len(several.Paths))
	case isSeveral:
		one := append(given, path.Base(several.Paths[0]))
		return exit.Errorf(exit.Usage,
			"name those that you want, or give --all: "+report.ShellLine(one...),
			"%s", report.Printable(several.Error()))
	case isRefused && o.request.All:
		for _, r := range refused.Refused[:min(len(refused.Refused), report.MaxListed)] {
			o.app.notef("error: %s", report.Printable(report.JoinPath(r.Path, "")+": "+r.Reason))
		}
		hint := ""
		if refused.Others > 0 {
			hint = fmt.Sprintf("--keep-going installs the other %d: ", refused.Others) +
				report.ShellLine(append(given, "--all", "--keep-going")...)
		}
		return exit.Errorf(exit.Failure, hint, "%s cannot be installed, so none is",
			report.Plural(len(refused.Refused), "skill"))
	case isRefused:
		return exit.Errorf(exit.Failure, "", "%s", report.Printable(refused.Error()))
	}
	return err
}
