package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
)

// verifyOptions are the flags of verify.
type verifyOptions struct {
	app  *app
	JSON bool
}

func newVerifyCmd(a *app) *cobra.Command {
	opts := &verifyOptions{app: a}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Hold every byte of the installed skills to the lock file",
		Long: "Compare every byte of the installed skills, where they are served and where they are stored, with\n" +
			"the digests in skillsd.lock, and find what lies among them and was not installed. Each problem is\n" +
			"one line, SKILL/FILE: what; the exit code is 3 when there is one. `skillsd sync` mends them.",
		Args: cobra.NoArgs,
		RunE: runE(func(ctx context.Context, _ []string) error { return opts.run(ctx) }),
	}
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *verifyOptions) run(ctx context.Context) (err error) {
	installer, end, err := o.app.installer(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	problems, err := installer.Verify(ctx)
	if err != nil {
		return err
	}
	o.app.endProgress()
	files := 0
	for _, e := range installer.Lock().Skills {
		files += len(e.Files)
	}
	if o.JSON {
		if err := report.WriteJSON(o.app.out, append([]install.Problem{}, problems...)); err != nil {
			return err
		}
	}
	for _, p := range problems {
		if o.JSON {
			break
		}
		if _, err := fmt.Fprintln(o.app.out, report.Printable(joinPath(p.Name, p.Path)+": "+p.What)); err != nil {
			return err
		}
	}
	if len(problems) == 0 {
		fmt.Fprintf(o.app.err, "ok: %s, %s\n", report.Plural(len(installer.Lock().Skills), "skill"), report.Plural(files, "file"))
		return nil
	}
	return &exitError{Code: exitProblems, Err: fmt.Errorf("%s with what is installed", report.Plural(len(problems), "problem")), Hint: o.hint(problems)}
}

// hint says what mends the problems.
func (o *verifyOptions) hint(problems []install.Problem) string {
	state, err := o.app.stateDir()
	if err != nil {
		return ""
	}
	var hints, strays []string
	for _, p := range problems {
		if p.Kind == install.ProblemStray {
			strays = append(strays, filepath.Join(state, filepath.FromSlash(p.Dir)))
		}
	}
	if len(strays) < len(problems) {
		hints = append(hints, "`skillsd sync` restores what the lock file says")
	}
	if len(strays) > 0 {
		hints = append(hints, "what nobody installed goes with: "+shellLine(append([]string{"rm", "-r"}, strays[:min(len(strays), 3)]...)))
	}
	return strings.Join(hints, "; ")
}

// syncOptions are the flags of sync.
type syncOptions struct {
	app      *app
	Roots    config.RootOptions
	Frozen   bool
	Check    bool
	Trust    bool
	Drop     bool
	Insecure bool
	JSON     bool
}

func newSyncCmd(a *app) *cobra.Command {
	opts := &syncOptions{app: a}
	cmd := &cobra.Command{
		Use:   "sync [LOCKFILE]",
		Short: "Make the installed skills what a lock file says",
		Long: "Install exactly the versions of a lock file, such as the skillsd.lock of another machine: from the\n" +
			"store, or else from the recorded sources at the recorded commits, every file held to its digest.\n" +
			"Where one cannot be had nothing is changed. Without LOCKFILE the installation's own lock file\n" +
			"counts: what was changed or lost since is brought back.\n\n" +
			"Skills that are not in LOCKFILE stay, but with --frozen they are removed: what is installed is then\n" +
			"what the file says and nothing else. --check changes nothing and exits 3 when something would change.\n\n" +
			"A tier above third-party is taken from LOCKFILE only for what has it here already, with the same bytes\n" +
			"from the same source; --trust-tiers takes it for all. What is replaced can be rolled back to.\n\n" +
			"The version that `skillsd rollback` goes back to is brought back too. Where it cannot be had the rest\n" +
			"is mended and the exit code is 3; --drop-earlier forgets it.",
		Args: cobra.MaximumNArgs(1),
		RunE: runE(opts.run),
	}
	opts.Roots.Register(cmd.Flags())
	cmd.Flags().BoolVar(&opts.Frozen, "frozen", false, "remove what is not in the lock file")
	cmd.Flags().BoolVar(&opts.Check, "check", false, "only tell what would change")
	cmd.Flags().BoolVar(&opts.Drop, "drop-earlier", false, "forget the version to roll back to where it is damaged and cannot be had again")
	cmd.Flags().BoolVar(&opts.Trust, "trust-tiers", false, "take tiers above third-party from LOCKFILE")
	cmd.Flags().BoolVar(&opts.Insecure, "insecure-transport", false, "accept http:// and git:// URLs of other machines")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *syncOptions) run(ctx context.Context, args []string) error {
	sync := install.Sync{Exact: o.Frozen, DropEarlier: o.Drop, Insecure: o.Insecure}
	if len(args) > 0 {
		lock, err := install.Import(args[0])
		if err != nil {
			return &exitError{
				Code: exitUsage,
				Err:  fmt.Errorf("lock file: %w", err),
				Hint: "give the skillsd.lock that `skillsd install` wrote on another machine; " +
					"without one the installation's own counts: skillsd sync",
			}
		}
		sync.Lock = lock
	}
	taken, err := o.app.taken(ctx, &o.Roots)
	if err != nil {
		return err
	}
	return o.app.carryOut(ctx, &planned{
		taken: taken,
		dry:   o.Check,
		compute: func(i *install.Installer) (*install.Plan, error) {
			if sync.Lock != nil && !o.Trust {
				if err := checkTiers(args[0], i.Lock(), sync.Lock); err != nil {
					return nil, err
				}
			}
			return i.Sync(ctx, sync)
		},
		failure: func(err error) error {
			if _, usage := errors.AsType[*exitError](err); usage {
				return err
			}
			return installFailure(err)
		},
		print: func(plan *install.Plan) error { return o.print(plan, args) },
	})
}

// print prints what was changed, or would be.
func (o *syncOptions) print(plan *install.Plan, args []string) error {
	if o.JSON {
		if err := report.WriteJSON(o.app.out, append([]install.Change{}, plan.Changes...)); err != nil {
			return err
		}
	}
	changed := 0
	var lost []string
	for _, c := range plan.Changes {
		text := c.Name + ": " + c.What
		switch {
		case c.Dropped:
			text += "; the earlier version is forgotten: " + c.Lost
		case c.Lost != "":
			text += "; the earlier version cannot be had again: " + c.Lost
			lost = append(lost, c.Name)
		}
		if !c.Earlier || c.Lost == "" || c.Dropped {
			changed++
		}
		if o.JSON {
			continue
		}
		if _, err := fmt.Fprintln(o.app.out, report.Printable(text)); err != nil {
			return err
		}
	}
	switch {
	case len(plan.Changes) == 0:
		fmt.Fprintln(o.app.err, "ok: nothing to do")
	case o.Check:
		again := []string{"skillsd", "sync"}
		if o.Frozen {
			again = append(again, "--frozen")
		}
		return &exitError{
			Code: exitProblems,
			Err:  fmt.Errorf("%s would change", report.Plural(changed, "skill")),
			Hint: "to change them: " + shellLine(append(again, args...)),
		}
	case len(lost) > 0:
		return &exitError{
			Code: exitProblems,
			Err: fmt.Errorf("changed %s; %s cannot be rolled back",
				report.Plural(changed, "skill"), strings.Join(lost[:min(len(lost), 10)], ", ")),
			Hint: "bring the source back and `skillsd sync`, or forget the earlier version: `skillsd sync --drop-earlier`",
		}
	default:
		fmt.Fprintf(o.app.err, "changed %s\n", report.Plural(changed, "skill"))
	}
	return nil
}

// checkTiers refuses a lock file that would have skills trusted more than they are here. What is trusted
// here is the content and where it comes from: a name says nothing, and a file may claim any source for
// what the store has, and any commit for a source.
func checkTiers(file string, here, there *install.Lock) error {
	for _, e := range there.Skills {
		known := here.Find(e.Name)
		if e.Tier != skills.LeastTrusted() && (known == nil || known.Tier > e.Tier || known.Tree != e.Tree || !known.Origin.Same(e.Origin)) {
			return usageError("with --trust-tiers it is: "+shellLine([]string{"skillsd", "sync", "--trust-tiers", file}), "%s is not to be trusted as %s because a file says so", e.Name, e.Tier)
		}
	}
	return nil
}
