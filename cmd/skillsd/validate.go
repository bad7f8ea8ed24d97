package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/frontmatter"
)

// validateOptions are the flags of validate.
type validateOptions struct {
	app     *app
	Roots   config.RootOptions
	Lenient bool
	JSON    bool
}

func newValidateCmd(a *app) *cobra.Command {
	opts := &validateOptions{app: a}
	cmd := &cobra.Command{
		Use:   "validate [DIR...]",
		Short: "Check skills by the strict rules and say what to mend",
		Long: "Check every skill in the given directories, or in the roots that would be served, by the rules of the\n" +
			"Agent Skills reference validator. DIR is a skill, its SKILL.md, or a folder with skills below.\n\n" +
			"Each problem is one line, DIR/SKILL.md:LINE: RULE: message (fix: ...). With --lenient the rules are those\n" +
			"of loading: what would not be served, and what is repaired or odd. The exit code is 3 when a skill is\n" +
			"invalid, with --lenient when one would not load.",
		RunE: runE(opts.run),
	}
	opts.Roots.Register(cmd.Flags())
	cmd.Flags().BoolVar(&opts.Lenient, "lenient", false, "say what would not load or is repaired, instead of the strict rules")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

// verdict is what was found of one skill, as validate --json prints it.
type verdict struct {
	Dir    string    `json:"dir"`
	File   string    `json:"file,omitempty"` // SKILL.md or skill.md; empty for what has none
	Valid  bool      `json:"valid"`
	Errors []problem `json:"errors"`

	place bool // no skill, but a place that may hide some
}

// problem is a rule that a skill breaks.
type problem struct {
	Rule     string `json:"rule"`
	Severity string `json:"severity,omitempty"` // with --lenient; the strict rules know errors only
	File     string `json:"file,omitempty"`     // when it is not the skill's SKILL.md
	Line     int    `json:"line,omitempty"`
	Message  string `json:"message"`
	Fix      string `json:"fix,omitempty"`
}

func (o *validateOptions) run(ctx context.Context, dirs []string) error {
	found, err := o.find(ctx, dirs)
	if err != nil {
		return err
	}
	result := &validateReport{all: []verdict{}, options: o}
	bar := newProgress(o.app.err, "skills checked", len(found))
	defer bar.clear()
	if len(found) == 0 {
		fmt.Fprintln(o.app.err, "note: the roots hold no skills")
	}
	// Thousands of skills are checked side by side and printed in order, a part at a time.
	const part = 512
	for done := 0; done < len(found); done += part {
		verdicts := make([]verdict, min(part, len(found)-done))
		err := each(ctx, len(verdicts), func(i int) {
			defer bar.step()
			verdicts[i] = found[done+i].check(ctx, o.Lenient)
		})
		if err != nil {
			return err
		}
		if report.IsTerminal(o.app.out) {
			bar.clear()
		}
		if err := result.add(verdicts); err != nil {
			return err
		}
	}
	bar.clear()
	return result.end()
}

// validateReport prints verdicts and counts them.
type validateReport struct {
	options          *validateOptions
	all              []verdict // for JSON
	skills, valid    int
	errors, warnings int
}

func (r *validateReport) add(verdicts []verdict) error {
	for i := range verdicts {
		v := &verdicts[i]
		r.count(v)
		if r.options.JSON {
			r.all = append(r.all, *v)
			continue
		}
		for _, p := range v.Errors {
			place := joinPath(v.Dir, v.File)
			if p.File != "" {
				place = joinPath(v.Dir, p.File)
			}
			if _, err := fmt.Fprintln(r.options.app.out, report.ProblemLine(report.PlaceAt(place, p.Line), p.Rule, p.Message, p.Fix)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *validateReport) count(v *verdict) {
	if !v.place {
		r.skills++
		if v.Valid {
			r.valid++
		}
	}
	for _, p := range v.Errors {
		if p.Severity == skills.Warning.String() {
			r.warnings++
		} else {
			r.errors++
		}
	}
}

// end prints the counts and chooses the exit code.
func (r *validateReport) end() error {
	if r.options.JSON {
		if err := report.WriteJSON(r.options.app.out, r.all); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("%d of %s strictly valid; %s", r.valid, report.Plural(r.skills, "skill"), report.Plural(r.errors, "problem"))
	if r.options.Lenient {
		text = fmt.Sprintf("%d of %s loadable; %s, %s", r.valid, report.Plural(r.skills, "skill"), report.Plural(r.errors, "error"), report.Plural(r.warnings, "warning"))
	}
	fmt.Fprintln(r.options.app.err, text)
	if r.errors > 0 {
		return &exitError{Code: exitProblems}
	}
	return nil
}

// joinPath puts a slash between two parts that are not empty. What the user gave stays as given.
func joinPath(dir, name string) string {
	if dir == "" || name == "" || strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}

// strictProblems are violations as problems.
func strictProblems(violations []frontmatter.Violation) []problem {
	problems := make([]problem, len(violations))
	for i, v := range violations {
		problems[i] = problem{Rule: v.Rule, Line: v.Line, Message: v.Message, Fix: v.Fix}
	}
	return problems
}
