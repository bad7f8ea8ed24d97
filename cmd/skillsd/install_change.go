package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/installing"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve/cluster"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
)

// inFull returns the names of installed skills as the lock file has them; other names stay.
func inFull(lock *install.Lock, names []string) []string {
	full := slices.Clone(names)
	for n, name := range full {
		if e := lock.Named(name); e != nil {
			full[n] = e.Name
		}
	}
	return full
}

// change is a command whose only arguments are names of installed skills.
type change struct {
	app  *app
	verb string // past participle, for messages
	do   func(*install.Installer, ...string) (*install.Plan, error)

	isFree   bool     // an agent may do it: nothing is lost
	isBack   bool     // it returns to earlier versions, which may need a review and are printed
	accepted []string // by isBack: digests of versions that need none
}

// newChangeCmds returns the commands whose only arguments are names of installed skills.
func newChangeCmds(a *app) []*cobra.Command {
	back := &change{app: a, verb: "rolled back", do: (*install.Installer).Rollback, isBack: true}
	rollback := &cobra.Command{
		Use:   "rollback NAME...",
		Short: "Return to the version of a skill before its last update",
		Long: "Return to the version of installed skills before their last update: of all that you " +
			"name, or of none. A second rollback undoes the first.\n\n" +
			"An earlier version that needs a review and had none does not replace the version that is " +
			"served. On a terminal you are asked; elsewhere --accept DIGEST accepts it.",
	}
	rollback.Flags().StringArrayVar(&back.accepted, "accept", nil,
		"serve the earlier version with this `DIGEST`, although it needs a review (repeatable)")
	remove := &change{app: a, verb: "removed", do: (*install.Installer).Remove}
	enable := &change{app: a, verb: "enabled", do: (*install.Installer).Enable}
	disable := &change{app: a, verb: "disabled", do: (*install.Installer).Disable, isFree: true}
	return []*cobra.Command{
		remove.runIn(&cobra.Command{
			Use:   "remove NAME...",
			Short: "Remove installed skills",
			Long: "Uninstall skills: all that you name, or none. They are removed from the lock file " +
				"and no longer served. Their files stay in the state directory while the log of a " +
				"session that loaded them is kept, or a server runs; the next command that changes " +
				"what is installed deletes them, and so does `skillsd session gc`.",
		}),
		enable.runIn(&cobra.Command{
			Use:   "enable NAME...",
			Short: "Serve disabled skills again",
		}),
		disable.runIn(&cobra.Command{
			Use: "disable NAME...", Short: "Stop serving installed skills without removing them",
			Long: "Stop serving installed skills. They stay in the lock file; `skillsd enable` serves them " +
				"again. For skills that are not installed there is `skillsd serve --disable-skill`.",
		}),
		back.runIn(rollback),
	}
}

// runIn makes a command run the change.
func (c *change) runIn(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.RunE = runE(func(ctx context.Context, names []string) error {
		if !c.isFree {
			if err := c.app.byUser("`skillsd " + cmd.Name() + "`"); err != nil {
				return err
			}
		}
		return c.run(ctx, names)
	})
	return cmd
}

// run changes the skills with the names in the lock file, and prints them.
func (c *change) run(ctx context.Context, names []string) error {
	work := planned{
		compute: func(i *install.Installer) (*install.Plan, error) {
			names = inFull(i.Lock(), names)
			return c.do(i, names...)
		},
		print: func(plan *install.Plan) error {
			to := map[string]string{}
			if c.isBack {
				for _, changed := range plan.Changes {
					to[changed.Name] = " to " + changed.After.Tree.String()
				}
			}
			for _, name := range names {
				c.app.printf("%s %s%s\n", c.verb, name, to[name])
			}
			return nil
		},
	}
	if c.isBack {
		work.confirm = c.confirm
	}
	return c.app.carryOut(ctx, work)
}

// confirm asks about the earlier versions that wait for a review and would replace served ones, except for
// those with accepted digests. If one is left, nothing is changed.
func (c *change) confirm(ctx context.Context, plan *install.Plan) error {
	waits := func() []*install.Change {
		return slices.DeleteFunc(plan.Waiting(), func(c *install.Change) bool { return !c.KeepsServed() })
	}
	if len(waits()) == 0 {
		return nil
	}
	if err := c.app.accept(ctx, plan, c.accepted, true); err != nil {
		return err
	}
	left := waits()
	if len(left) == 0 {
		return nil
	}
	first := left[0]
	hint := "`skillsd update` takes the newest version"
	if first.After.Verdict != policy.Refuse {
		hint = "review it, then: " + report.ShellLine("skillsd", "rollback", first.Name) + " --accept " +
			first.After.Tree.String()
	}
	return exit.Errorf(exit.Problems, hint, "%s was not %s: the version before %s", first.Name, c.verb,
		report.Printable(report.Reasons(first.After.Verdict, first.After.Why)))
}

// readLock reads the lock file without locking: it is always replaced as a whole.
func (a *app) readLock() (*install.Lock, error) {
	state, err := a.StateDir()
	if err != nil {
		return nil, err
	}
	return install.ReadLock(install.LockFile(state))
}

func newVerifyCmd(a *app) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:    "verify",
		Hidden: true, // doctor does it too
		Short:  "Compare every byte of the installed skills with the lock file",
		Long: "Compare every byte of the installed skills, where they are served and where they are " +
			"stored, with the digests in skillsd.lock, and find files among them that were not " +
			"installed. Each problem is one line, SKILL/FILE: what; the exit code is 3 if there is " +
			"one. `skillsd sync` repairs them.",
		Args: cobra.NoArgs,
		RunE: runE(func(ctx context.Context, _ []string) error { return a.verify(ctx, asJSON) }),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) verify(ctx context.Context, asJSON bool) (err error) {
	installed, err := a.installation(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, installed.Close()) }()
	problems, _, err := installed.Verify(ctx)
	if err != nil {
		return err
	}
	installed.line.Clear()
	if asJSON {
		// Without problems the output is [] and not null.
		if err := report.WriteJSON(a.out, append([]install.Problem{}, problems...)); err != nil {
			return err
		}
	}
	var strays, hints []string
	for _, p := range problems {
		if !asJSON {
			a.printf("%s\n", report.Printable(report.JoinPath(p.Name, p.Path)+": "+p.What))
		}
		if p.Kind == install.ProblemStray {
			strays = append(strays, filepath.Join(installed.state, filepath.FromSlash(p.Dir)))
		}
	}
	if len(problems) == 0 {
		a.notef("ok: %s", report.LockContent(installed.Lock()))
		return nil
	}
	if len(strays) < len(problems) {
		hints = append(hints, "`skillsd sync` restores the files of the lock file")
	}
	if len(strays) > 0 {
		hints = append(hints, "remove files that were not installed: "+
			report.ShellLine(append([]string{"rm", "-r"}, strays[:min(len(strays), 3)]...)...))
	}
	return exit.Errorf(exit.Problems, strings.Join(hints, "; "), "%s with what is installed",
		report.Plural(len(problems), "problem"))
}

// syncOptions are the flags of sync.
type syncOptions struct {
	app                *app
	Roots              config.RootOptions
	sync               install.Sync
	access             config.AccessOptions
	Check, Trust, JSON bool
	FromCluster        bool

	again []string         // arguments of the command in a hint
	found []install.Change // found by --check: content that no user has accepted
}

func newSyncCmd(a *app) *cobra.Command {
	opts := &syncOptions{app: a}
	cmd := &cobra.Command{
		Use:   "sync [LOCKFILE]",
		Short: "Make the installed skills equal to a lock file",
		Long: "Install exactly the versions of a lock file, such as the skillsd.lock of another " +
			"machine. Files come from the state directory, or else from the recorded sources at the " +
			"recorded commits, and each is compared with its digest. If one is missing, nothing is " +
			"changed. Without LOCKFILE your own installation is repaired: what was changed or lost is " +
			"restored.\n\n" +
			"  skillsd sync --frozen skillsd.lock\n" +
			"  skillsd sync --check\n\n" +
			"Skills that are not in LOCKFILE stay, unless --frozen removes them. --check changes " +
			"nothing, and exits with 3 if something would change, or if a skill needs a review that it " +
			"has not had: each stored content gets its verdict anew. Replaced skills can be rolled " +
			"back.\n\n" +
			"A tier above third-party is taken from LOCKFILE only for skills that have it here " +
			"already, with the same bytes from the same source, or whose signer the configuration " +
			"trusts as much. --trust-tiers takes it for all.\n\n" +
			"--from-cluster takes the lock file and the files that `skillsd publish` has put into " +
			"--cluster with the same --cluster-key. Only signed skills are fetched from their sources.\n\n" +
			"The version that `skillsd rollback` returns to is restored too. If it is missing, the " +
			"rest is repaired and the exit code is 3; --drop-earlier forgets it.",
		Args: cobra.MaximumNArgs(1),
		RunE: runE(opts.run),
	}
	opts.Roots.Register(cmd.Flags())
	cmd.Flags().BoolVar(&opts.sync.Exact, "frozen", false, "remove what is not in the lock file")
	cmd.Flags().BoolVar(&opts.Check, "check", false, "only print what would change")
	cmd.Flags().BoolVar(&opts.sync.DropEarlier, "drop-earlier", false,
		"forget the version to roll back to if it is damaged and its source has it no more")
	cmd.Flags().BoolVar(&opts.sync.TrustAccepted, "trust-accepted", false,
		"serve what was accepted in LOCKFILE, without a review here")
	cmd.Flags().BoolVar(&opts.Trust, "trust-tiers", false, "take tiers above third-party from LOCKFILE")
	cmd.Flags().BoolVar(&opts.FromCluster, "from-cluster", false, "install what was published in --cluster")
	a.cluster.Register(cmd.Flags(), "with --from-cluster, the NATS cluster of this `URL` (repeatable)", true)
	opts.access.Register(cmd.Flags(), false)
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *syncOptions) run(ctx context.Context, args []string) (err error) {
	if err := o.byUser(); err != nil {
		return err
	}
	o.sync.Access, err = o.app.access(&o.access)
	if err != nil {
		return err
	}
	o.again = args
	switch {
	case o.FromCluster && len(args) > 0:
		return exit.Usagef("leave one of them out", "--from-cluster takes the lock file from the cluster")
	case o.FromCluster:
		o.again = []string{"--from-cluster"}
		catalogue, err := cluster.OpenCatalogue(ctx, &o.app.cluster, false, o.app.logger())
		if err != nil {
			return err
		}
		defer catalogue.Close()
		o.sync.Lock, err = catalogue.Lock(ctx)
		if err != nil {
			return installing.Failure(err)
		}
		o.sync.Files = catalogue.File
	case o.app.Cfg.ClusterFlag() != "":
		return exit.Usagef("add --from-cluster", "--%s has no effect without --from-cluster",
			o.app.Cfg.ClusterFlag())
	case len(args) > 0:
		o.sync.Lock, err = install.Import(args[0])
		if err != nil {
			return exit.Usagef("give the skillsd.lock that `skillsd install` wrote on another machine; "+
				"without one the installation's own counts: skillsd sync", "lock file: %w", err)
		}
	}
	return o.app.carryOut(ctx, planned{
		roots: &o.Roots,
		dry:   o.Check,
		confirm: func(ctx context.Context, plan *install.Plan) error {
			return o.app.accept(ctx, plan, nil, !o.JSON)
		},
		compute: func(i *install.Installer) (*install.Plan, error) { return o.compute(ctx, i) },
		print:   o.print,
	})
}

// compute computes the plan that makes the installation equal to the lock file.
func (o *syncOptions) compute(ctx context.Context, i *install.Installer) (*install.Plan, error) {
	if o.sync.Lock != nil && !o.Trust {
		if err := installing.CheckTiers(&o.app.Process, o.again[0], i.Lock(), o.sync.Lock); err != nil {
			return nil, err
		}
	}
	plan, err := i.Sync(ctx, o.sync)
	if err != nil {
		return plan, err
	}
	if o.Check {
		o.found, err = plan.AssessAll(ctx, o.sync)
	}
	return plan, err
}

// byUser refuses, in an agent's shell, options that extend trust or remove installed skills.
func (o *syncOptions) byUser() error {
	switch {
	case o.Check:
		return nil
	case o.Trust:
		return o.app.byUser("--trust-tiers")
	case o.sync.TrustAccepted:
		return o.app.byUser("--trust-accepted")
	case o.sync.Exact:
		return o.app.byUser("--frozen")
	case o.sync.DropEarlier:
		return o.app.byUser("--drop-earlier")
	}
	return nil
}

// print prints the changes that were made, or would be. It returns an error if something is left to do.
func (o *syncOptions) print(plan *install.Plan) error {
	if o.JSON {
		all := append(append([]install.Change{}, plan.Changes...), o.found...)
		if err := report.WriteJSON(o.app.out, all); err != nil {
			return err
		}
	} else {
		o.printChanges(plan.Changes)
	}
	changed := 0
	var lost []string
	for _, c := range plan.Changes {
		if !c.Earlier || c.Lost == "" || c.Dropped {
			changed++
		}
		if c.Lost != "" && !c.Dropped {
			lost = append(lost, c.Name)
		}
	}
	count := report.Plural(changed, "skill")
	switch {
	case len(plan.Changes) == 0 && len(o.found) > 0:
		return exit.Errorf(exit.Problems, "review them, then: skillsd update --accept NAME",
			"%s not accepted yet", report.Plural(len(o.found), "skill"))
	case len(plan.Changes) == 0:
		o.app.notef("ok: nothing to do")
	case o.Check:
		again := []string{"skillsd", "sync"}
		if o.sync.Exact {
			again = append(again, "--frozen")
		}
		return exit.Errorf(exit.Problems, "to change them: "+report.ShellLine(append(again, o.again...)...),
			"%s would change", count)
	case len(lost) > 0:
		return exit.Errorf(exit.Problems, "bring the source back and `skillsd sync`, "+
			"or forget the earlier version: `skillsd sync --drop-earlier`",
			"changed %s; %s cannot be rolled back", count, strings.Join(lost[:min(len(lost), 10)], ", "))
	default:
		o.app.notef("changed %s", count)
	}
	return nil
}

// printChanges prints a line for each change, and for each content that --check found.
func (o *syncOptions) printChanges(changes []install.Change) {
	for _, c := range changes {
		text := c.Name + ": " + c.What
		if !o.Check {
			text = c.Name + ": " + c.Done()
		}
		switch {
		case c.Dropped:
			text += "; the earlier version is forgotten: " + c.Lost
		case c.Lost != "":
			text += "; the earlier version is missing: " + c.Lost
		}
		o.app.printf("%s\n", report.Printable(text))
	}
	for _, c := range o.found {
		o.app.printf("%s\n", report.Printable(c.Name+" "+report.Reasons(c.Verdict, c.Why)))
	}
}

// updateOptions are the flags of update.
type updateOptions struct {
	app           *app
	Roots         config.RootOptions
	access        config.AccessOptions
	Accept        []string // digests, or waiting
	Preview, JSON bool
	Yes           bool
	moves         install.Moves
}

// waiting is the value of --accept without a digest: the skills that are named.
const waiting = "waiting"

func newUpdateCmd(a *app) *cobra.Command {
	opts := &updateOptions{app: a}
	cmd := &cobra.Command{
		Use:   "update [NAME...]",
		Short: "Update installed skills from where they came from",
		Long: "Fetch the sources of the installed skills that you name, or of all, and replace what " +
			"changed there. The changes are printed: instructions and scripts as a diff, other files " +
			"by name, allowed-tools and signals. --preview prints them and changes nothing. A changed " +
			"script does not run until you allow it again. `skillsd rollback NAME` returns to the " +
			"version before.\n\n" +
			"  skillsd update --preview\n" +
			"  skillsd update --accept notes\n\n" +
			"A version that needs a review, such as one with new scripts or hosts, does not replace " +
			"the version that is served. On a terminal you are asked; elsewhere --accept DIGEST " +
			"accepts exactly the version that was printed, and without it the exit code is 3.\n\n" +
			"--accept NAME serves an installed skill that needs a review and is not served yet. The " +
			"reasons are printed, with its instructions and scripts and the place of the files, and " +
			"you are asked; --yes does not ask. " +
			"With NAME@DIGEST any other content is refused. A skill with the verdict refuse cannot be " +
			"accepted.\n\n" +
			"A skill that is no longer where it came from keeps its version, and the exit code is 3. " +
			"--follow takes it from where it is now, --prune removes it.",
		RunE: runE(opts.run),
	}
	opts.Roots.Register(cmd.Flags())
	cmd.Flags().BoolVar(&opts.Preview, "preview", false, "print what would change, and change nothing")
	cmd.Flags().StringArrayVar(&opts.Accept, "accept", nil,
		"serve the skill, or its version with this `DIGEST`, although it needs a review (repeatable)")
	cmd.Flags().Lookup("accept").NoOptDefVal = waiting
	cmd.Flags().BoolVar(&opts.Yes, "yes", false, "with --accept NAME, do not ask")
	cmd.Flags().BoolVar(&opts.moves.Follow, "follow", false,
		"update skills that moved in their source, or whose branch is gone, from their new place")
	cmd.Flags().BoolVar(&opts.moves.Prune, "prune", false, "remove skills that their source no longer has")
	opts.access.Register(cmd.Flags(), true)
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

// accepted separates the arguments after --accept: digests of trees, names of installed skills in
// quarantine, and others.
func (o *updateOptions) accepted(args []string) (quarantined, names []string, err error) {
	isNamed := slices.Contains(o.Accept, waiting)
	o.Accept = slices.DeleteFunc(o.Accept, func(value string) bool { return value == waiting })
	if !isNamed {
		return nil, args, nil
	}
	if len(args) == 0 {
		return nil, nil, exit.Usagef("`skillsd list --only waiting` lists them",
			"--accept takes the names of skills, or the digest of a version")
	}
	lock, err := o.app.readLock()
	if err != nil {
		return nil, nil, err
	}
	for _, arg := range args {
		name, tree, hasTree := strings.Cut(arg, "@")
		e := lock.Named(name)
		switch {
		case strings.HasPrefix(arg, "sha256:"):
			o.Accept = append(o.Accept, arg)
		case e != nil && e.Quarantined():
			quarantined = append(quarantined, arg)
		default:
			names = append(names, name)
			if hasTree {
				o.Accept = append(o.Accept, tree)
			}
		}
	}
	return quarantined, names, nil
}

func (o *updateOptions) run(ctx context.Context, args []string) error {
	quarantined, names, err := o.accepted(args)
	if err != nil {
		return err
	}
	if len(quarantined) > 0 && !o.Preview {
		err = o.app.acceptInstalled(ctx, quarantined, o.Yes)
		if err != nil || len(names) == 0 && len(o.Accept) == 0 {
			return err
		}
	}
	access, err := o.app.access(&o.access)
	if err != nil {
		return err
	}
	if err := o.byUser(access); err != nil {
		return err
	}
	var rows []report.Update
	isShown := false
	return o.app.carryOut(ctx, planned{
		roots: &o.Roots,
		dry:   o.Preview,
		confirm: func(ctx context.Context, plan *install.Plan) error {
			// A question about changes comes after the changes.
			isShown = len(plan.Waiting()) > 0 && !o.JSON && report.IsTerminal(o.app.err)
			if isShown {
				o.show(rows)
			}
			return o.app.accept(ctx, plan, o.Accept, !o.JSON)
		},
		compute: func(i *install.Installer) (*install.Plan, error) {
			plan, err := i.Update(ctx, inFull(i.Lock(), names), o.moves, access)
			if err != nil {
				return plan, err
			}
			rows, err = report.Updates(ctx, plan)
			return plan, err
		},
		print: func(plan *install.Plan) error {
			report.PrintNotes(o.app.err, plan.Notes)
			report.MarkHeld(rows, plan)
			if !o.JSON && !isShown {
				o.show(rows)
			}
			return o.print(rows)
		},
	})
}

// byUser refuses, in an agent's shell, options that decide in place of the user. A preview decides nothing.
func (o *updateOptions) byUser(access install.Access) error {
	switch {
	case o.Preview:
		return nil
	case len(o.Accept) > 0:
		return o.app.byUser("--accept")
	case access.SignedBy != "":
		return o.app.byUser("--signed-by")
	case o.moves.Prune:
		return o.app.byUser("--prune")
	}
	return nil
}

// show prints the changes.
func (o *updateOptions) show(rows []report.Update) {
	for i := range rows {
		rows[i].Print(o.app.out, o.app.err)
	}
}

// print prints how many skills changed.
func (o *updateOptions) print(rows []report.Update) error {
	if o.JSON {
		if err := report.WriteJSON(o.app.out, rows); err != nil {
			return err
		}
	}
	count := map[string]int{}
	for i := range rows {
		count[rows[i].State]++
	}
	verb := "updated"
	if o.Preview {
		verb = "would change"
	}
	held := ""
	if count["held"] > 0 {
		held = fmt.Sprintf(", held %d", count["held"])
	}
	if count["removed"] > 0 {
		held += fmt.Sprintf(", removed %d", count["removed"])
	}
	o.app.notef("%s %d, unchanged %d, failed %d%s", verb, count["changed"]+count["moved"], count["unchanged"],
		count["failed"], held)
	if count["failed"] > 0 {
		return &exit.Error{Code: exit.Problems}
	}
	return nil
}
