package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// showOptions are the flags of show.
type showOptions struct {
	app          *app
	Roots        rootOptions
	AllowScripts []string
	JSON         bool
}

func newShowCmd(a *app) *cobra.Command {
	opts := &showOptions{app: a}
	cmd := &cobra.Command{
		Use:   "show SKILL",
		Short: "Show one skill: facts, files, scripts and whether each may run",
		Args:  cobra.ExactArgs(1),
		RunE:  runE(func(ctx context.Context, args []string) error { return opts.run(ctx, args[0]) }),
	}
	opts.Roots.register(cmd.Flags())
	cmd.Flags().StringArrayVar(&opts.AllowScripts, "allow-skill-script", nil, "show this script as allowed: SKILL:scripts/PATH (repeatable)")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *showOptions) run(ctx context.Context, name string) error {
	allow, err := policy.ParseAllowlist(o.AllowScripts)
	if err != nil {
		return flagError("allow-skill-script", err)
	}
	snapshot, err := o.Roots.scan(ctx, o.app)
	if err != nil {
		return err
	}
	sk, err := snapshot.Lookup(name)
	if err != nil {
		return lookupFailure(err)
	}
	row, err := newSkillRow(ctx, sk, allow)
	if err != nil {
		return err
	}
	if o.JSON {
		return writeJSON(o.app.out, row)
	}
	return printSkill(o.app.out, &row)
}

// lookupFailure says which skills there are.
func lookupFailure(err error) error {
	exit := &exitError{Code: exitFailure, Err: err}
	switch e := err.(type) {
	case *skills.NotFoundError:
		exit.Err = fmt.Errorf("no skill %q", e.Name)
		if e.Suggestion != "" {
			exit.Hint = "did you mean " + e.Suggestion + "?"
		} else if len(e.Nearest) > 0 {
			exit.Hint = "skills are: " + strings.Join(e.Nearest, ", ")
		}
	case *skills.AmbiguousError:
		exit.Hint = "use one of: " + strings.Join(e.Paths, ", ")
	}
	return exit
}

func printSkill(w io.Writer, row *skillRow) error {
	fact := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%-14s %s\n", name, printable(value))
		}
	}
	fact("skill", row.Path)
	fact("name", row.Name)
	fact("description", row.Description)
	fact("tier", row.Tier)
	fact("root", row.Root)
	fact("state", strings.Join(append([]string{row.State}, row.Reasons...), ", "))
	fact("publishable", fmt.Sprint(row.Verdict.Publishable))
	fact("license", row.License)
	fact("compatibility", row.Compatibility)
	fact("digest", row.Digest.String())
	fact("tree", row.TreeDigest.String())
	if len(row.Resources) > 0 {
		fmt.Fprintln(w, "files")
	}
	for _, r := range row.Resources {
		fmt.Fprintf(w, "  %-40s %-9s %8d  %s\n", printable(r.Path), r.Kind, r.Size, r.Digest)
	}
	if len(row.Scripts) > 0 {
		fmt.Fprintln(w, "scripts")
	}
	for _, script := range row.Scripts {
		verdict := "may run"
		if !script.Allowed {
			verdict = "may not run: " + printable(script.Reason)
		}
		fmt.Fprintf(w, "  %-40s %-9s %s\n", printable(script.Path), script.Runtime, verdict)
	}
	return printDiagnostics(w, row.Path+"/", row.Diagnostics)
}
