package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/authoring"
	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
)

// validateOptions are the flags of validate.
type validateOptions struct {
	app           *app
	Roots         config.RootOptions
	Lenient, JSON bool
	Format        string
}

func newValidateCmd(a *app) *cobra.Command {
	opts := &validateOptions{app: a}
	cmd := &cobra.Command{
		Use:   "validate [DIR...]",
		Short: "Check skills by the strict rules, with a fix for each problem",
		Long: "Check every skill in the given directories, or all that would be served, by the rules " +
			"of the Agent Skills reference validator. DIR is a skill, its SKILL.md, or a folder with " +
			"skills below.\n\n" +
			"Each problem is one line, DIR/SKILL.md:LINE: RULE: message (fix: ...). --lenient reports " +
			"what would not be served, what is repaired or odd, and what makes an installation wait " +
			"for a review, instead. The exit code is 3 if a skill is invalid, with --lenient if one " +
			"would not load.",
		RunE: runE(opts.run),
	}
	opts.Roots.Register(cmd.Flags())
	opts.Roots.RegisterCache(cmd.Flags())
	cmd.Flags().BoolVar(&opts.Lenient, "lenient", false,
		"report what would not load or is repaired, instead of the strict rules")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&opts.Format, "format", formatText,
		"print `WORD`: text, or sarif for programs that show problems in the source, with warnings about "+
			"what makes an installation wait for a look")
	cmd.MarkFlagsMutuallyExclusive("json", "format")
	return cmd
}

// The words of --format.
const formatText, formatSARIF = "text", "sarif"

func (o *validateOptions) run(ctx context.Context, dirs []string) error {
	if !slices.Contains([]string{formatText, formatSARIF}, o.Format) {
		return exit.Usagef("give --format text or --format sarif", "--format %s is unknown", o.Format)
	}
	search := &authoring.Search{Process: &o.app.Process, Roots: &o.Roots, Notef: o.app.notef}
	found, err := search.Find(ctx, dirs)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		o.app.notef("note: there are no skills")
	}
	line := report.NewStatusLine(o.app.err)
	var checked atomic.Int64
	err = report.Each(ctx, len(found), func(i int) {
		found[i].Check(ctx, o.Lenient, o.Lenient || o.Format == formatSARIF)
		line.Count("skills checked", int(checked.Add(1)), len(found))
	})
	line.Clear()
	if err != nil {
		return err
	}
	findings := findingsOf(found)
	if err := o.print(found, findings); err != nil {
		return err
	}
	return o.summary(found, findings)
}

// findingsOf returns all problems of verdicts, each with its place.
func findingsOf(found []authoring.Verdict) (findings []report.Finding) {
	for _, v := range found {
		for _, p := range v.Errors {
			path := report.JoinPath(v.Dir, cmp.Or(p.File, v.File))
			findings = append(findings, report.Finding{Path: path, Problem: p})
		}
	}
	return findings
}

// print prints the verdicts in the form that the flags ask for.
func (o *validateOptions) print(found []authoring.Verdict, findings []report.Finding) error {
	switch {
	case o.JSON:
		return report.WriteJSON(o.app.out, append([]authoring.Verdict{}, found...))
	case o.Format == formatSARIF:
		return report.WriteSARIF(o.app.out, readBuild().Version, findings)
	}
	for _, f := range findings {
		location := report.Location(f.Path, f.Line)
		o.app.printf("%s\n", report.ProblemLine(location, f.Rule, f.Message, f.Fix))
	}
	return nil
}

// summary prints how many skills are valid, and returns an error if there is a problem other than a warning.
func (o *validateOptions) summary(found []authoring.Verdict, findings []report.Finding) error {
	all, valid := 0, 0
	for _, v := range found {
		if v.IsSkill() {
			all++
		}
		if v.IsSkill() && v.Valid {
			valid++
		}
	}
	errors, warnings := 0, 0
	for _, f := range findings {
		if f.Severity == skills.Warning.String() {
			warnings++
		} else {
			errors++
		}
	}
	of := fmt.Sprintf("%d of %s", valid, report.Plural(all, "skill"))
	if o.Lenient {
		o.app.notef("%s loadable; %s, %s", of, report.Plural(errors, "error"),
			report.Plural(warnings, "warning"))
	} else {
		o.app.notef("%s strictly valid; %s", of, report.Plural(errors, "problem"))
	}
	if errors > 0 {
		return &exit.Error{Code: exit.Problems}
	}
	return nil
}
