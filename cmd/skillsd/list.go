package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/installing"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
	"github.com/skillsd/skillsd/skills"
)

// listOptions are the flags of list and show.
type listOptions struct {
	app          *app
	Reader       config.ReaderOptions
	AllowScripts []string
	JSON         bool

	Only string // for list only
}

func (o *listOptions) register(flags *pflag.FlagSet) {
	o.Reader.Register(flags)
	flags.StringArrayVar(&o.AllowScripts, "allow-skill-script", nil,
		"show this `SCRIPT` as allowed: SKILL:scripts/PATH (repeatable)")
	flags.BoolVar(&o.JSON, "json", false, "print JSON")
}

// judged returns the skills and the judge of what may run. It returns an error if there are no roots.
func (o *listOptions) judged(ctx context.Context) (*serve.Judge, *skills.Snapshot, error) {
	verdicts, err := serve.NewJudge(o.app.serveOptions(), o.AllowScripts)
	if err != nil {
		return nil, nil, err
	}
	snapshot, err := o.Reader.Scan(ctx, &o.app.Process)
	return verdicts, snapshot, err
}

// listStates are the states that list can be limited to. Broken skills have rows in JSON only.
var listStates = []string{
	string(skills.StateEnabled), string(skills.StateHidden), string(skills.StateDisabled),
	string(skills.StateUnavailable), report.StateQuarantined, report.StateBroken,
}

func newListCmd(a *app) *cobra.Command {
	opts := &listOptions{app: a}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List your skills, and what is wrong with them",
		Long: "List every skill with its state: ✓ enabled; ! enabled, and the line below it asks for a " +
			"look; ○ hidden from models, or disabled; ✗ " +
			"unavailable, or installed and not served because it needs a review (`skillsd update " +
			"--accept`). TRUST is how far it is trusted: builtin, org, user, or third-party for what " +
			"others wrote.\n\n" +
			"FORM is strict if `skillsd validate` accepts the skill, repaired if its frontmatter loads " +
			"only after a repair, else lenient. RUN is the number of scripts that you allowed, of all. " +
			"Problems are on stderr, each with a fix. The exit code is 1 if a directory that you named " +
			"cannot be read.",
		Args: cobra.NoArgs,
		RunE: runE(opts.run),
	}
	opts.register(cmd.Flags())
	cmd.Flags().StringVar(&opts.Only, "only", "",
		"only skills in this `STATE`: enabled, hidden, disabled, unavailable, waiting (for a review) or, "+
			"with --json, broken")
	return cmd
}

func (o *listOptions) run(ctx context.Context, _ []string) error {
	if o.Only == report.StateWaiting {
		o.Only = report.StateQuarantined
	}
	if o.Only != "" && !slices.Contains(listStates, o.Only) {
		return exit.Usagef("use enabled, hidden, disabled, unavailable, waiting or broken",
			"--only: unknown state %q", o.Only)
	}
	rows, snapshot, err := o.rows(ctx)
	if err != nil {
		return err
	}
	if o.Only != "" {
		rows = slices.DeleteFunc(rows, func(row report.SkillRow) bool { return row.State != o.Only })
	}
	found := report.Diagnostics(snapshot.Diagnostics)
	partial := o.app.partial(snapshot)
	if o.JSON {
		if err := report.AddViolations(ctx, rows); err != nil {
			return err
		}
		if err := report.WriteRows(ctx, o.app.out, rows); err != nil {
			return err
		}
		return cmp.Or(report.WriteDiagnostics(o.app.err, found, len(found)), partial,
			unreadable(&o.Reader, snapshot, true))
	}
	switch {
	case len(rows) > 0:
		err = report.PrintSkills(o.app.out, rows, o.app.columns(o.app.out),
			report.NewPaint(o.app.Env, o.app.out))
	case o.Only != "":
		o.app.printf("no skill is %s\n", report.StateWord(o.Only))
	case len(o.Reader.Roots.Specs) > 0:
		o.app.say("note", "there are no skills in the given directories")
	default:
		none := o.Reader.Roots.NoRoots(&o.app.Process)
		o.app.say("note", none.Error())
		o.app.say("hint", none.Hint)
	}
	if err != nil {
		return err
	}
	for i := range rows {
		found = append(found, report.Notable(rows[i].Path+"/", rows[i].Diagnostics)...)
	}
	return cmp.Or(report.WriteDiagnostics(o.app.err, found, maxOfCode), partial,
		unreadable(&o.Reader, snapshot, true))
}

// rows returns the skills of a scan, and the installed ones that are not served.
func (o *listOptions) rows(ctx context.Context) ([]report.SkillRow, *skills.Snapshot, error) {
	verdicts, err := serve.NewJudge(o.app.serveOptions(), o.AllowScripts)
	if err != nil {
		return nil, nil, err
	}
	// A list without roots is empty, or has skills that are installed and not served.
	snapshot, err := o.Reader.ScanAny(ctx, &o.app.Process)
	if err != nil {
		return nil, nil, err
	}
	rows, err := report.NewSkillRows(ctx, snapshot, verdicts.Allow, o.app.err)
	if err != nil {
		return nil, nil, err
	}
	verdicts.Mark(ctx, snapshot, rows)
	lock, err := o.app.markInstalled(ctx, rows, snapshot)
	if err != nil {
		return nil, nil, err
	}
	// --no-default-roots excludes installed skills, including disabled ones.
	if !o.Reader.Roots.NoDefaults {
		state, _ := o.app.StateDir() // without one the lock file is empty
		rows = installing.WithInstalled(rows, lock, state)
	}
	for i := range rows {
		for n, reason := range rows[i].Reasons {
			rows[i].Reasons[n] = o.app.again(reason)
		}
	}
	if o.JSON {
		rows = report.WithBroken(rows, snapshot)
	}
	return rows, snapshot, nil
}

// unreadable returns an error if a given root could not be read: a script must not take it for an empty one.
// The error has no text if the diagnostics with the text were printed.
func unreadable(reader *config.ReaderOptions, snapshot *skills.Snapshot, printed bool) error {
	at := slices.IndexFunc(snapshot.Diagnostics, func(d skills.Diagnostic) bool {
		return d.Code == skills.CodeUnreadableRoot && d.Severity == skills.Error
	})
	switch {
	// Default directories need not exist.
	case at < 0 || len(reader.Roots.Specs) == 0:
		return nil
	case printed:
		return &exit.Error{Code: exit.Failure}
	}
	d := &snapshot.Diagnostics[at]
	return exit.Errorf(exit.Failure, d.Fix(), "%s: %s", d.Path, d.Detail)
}

// maxOfCode is the maximum of diagnostics per code that list prints; --json has all.
const maxOfCode = 3

// partial warns that limits truncated the scan, before other output, and returns the command's error for that
// case.
func (a *app) partial(snapshot *skills.Snapshot) error {
	cut := snapshot.Cut()
	if len(cut) == 0 {
		return nil
	}
	for _, d := range cut {
		a.notef("skillsd: warning: skills may be missing below: %s",
			report.ProblemLine(d.Path, string(d.Code), d.Detail, ""))
	}
	return exit.Errorf(exit.Failure, cut[0].Fix(), "the scan was cut by a limit; skills may be missing")
}
