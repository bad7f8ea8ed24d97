package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/catalog"
)

// promptOptions are the flags of prompt.
type promptOptions struct {
	app      *app
	Reader   config.ReaderOptions
	Format   string
	Budget   int
	Location string
}

func newPromptCmd(a *app) *cobra.Command {
	opts := &promptOptions{app: a}
	cmd := &cobra.Command{
		Use:   "prompt",
		Short: "Print the list of skills for a system prompt",
		Long: "Print the skills that a model may see, for a system prompt: as xml an element " +
			"<available_skills> with the name, description and location of each, escaped, or as text " +
			"one line for each. If a budget is given and not all of it fits, descriptions are " +
			"shortened first and names are left out last.",
		Args: cobra.NoArgs,
		RunE: runE(func(ctx context.Context, _ []string) error { return opts.run(ctx) }),
	}
	opts.Reader.Register(cmd.Flags())
	cmd.Flags().StringVar(&opts.Format, "format", "xml", "`FORMAT`: xml or text")
	cmd.Flags().IntVar(&opts.Budget, "budget", 0, "most characters to print; 0 for no limit")
	cmd.Flags().StringVar(&opts.Location, "location", "path",
		"`PLACE` that xml gives as location: path, of SKILL.md on this machine, or uri, the skill:// one")
	return cmd
}

func (o *promptOptions) run(ctx context.Context) error {
	format := catalog.Format(o.Format)
	switch {
	case format != catalog.FormatXML && format != catalog.FormatText:
		return exit.Usagef("use xml or text", "--format: unknown format %q", o.Format)
	case o.Budget < 0:
		return exit.Usagef("give a number from 0", "--budget: %d is negative", o.Budget)
	case o.Location != "path" && o.Location != "uri":
		return exit.Usagef("use path or uri", "--location: unknown location %q", o.Location)
	}
	snapshot, err := o.Reader.Scan(ctx, &o.app.Process)
	if err != nil {
		return err
	}
	all, render := catalog.Offered(snapshot)
	render.Format, render.Budget = format, o.Budget
	if o.Budget == 0 {
		render.Budget = math.MaxInt
	}
	render.Tail = func(n int) string { return fmt.Sprintf("and %d more", n) }
	if o.Location == "uri" && format == catalog.FormatXML {
		render.Location = func(sk *skills.Skill) string { return sk.URI(sk.File) }
	}
	text := catalog.Render(all, render)
	if text == "" && len(all) > 0 {
		return exit.Usagef("give more, or leave it out",
			"--budget: not even the count of the skills fits %d characters", o.Budget)
	}
	if text != "" {
		text += "\n"
	}
	if _, err := fmt.Fprint(o.app.out, text); err != nil {
		return err
	}
	// Warnings are left out, because a program usually reads the output of this command.
	missing := slices.DeleteFunc(report.Diagnostics(snapshot.Diagnostics), func(d report.Diagnostic) bool {
		return d.Severity != skills.Error
	})
	return cmp.Or(report.WriteDiagnostics(o.app.err, missing, report.MaxListed),
		unreadable(&o.Reader, snapshot, true))
}
