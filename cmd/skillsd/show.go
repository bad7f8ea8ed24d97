package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
)

// showOptions are the flags of show.
type showOptions struct {
	app          *app
	Reader       config.ReaderOptions
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
	opts.Reader.Register(cmd.Flags())
	cmd.Flags().StringArrayVar(&opts.AllowScripts, "allow-skill-script", nil,
		"show this `SCRIPT` as allowed: SKILL:scripts/PATH (repeatable)")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

func (o *showOptions) run(ctx context.Context, name string) error {
	verdicts, err := serve.NewJudge(o.app.serveOptions(), o.AllowScripts)
	if err != nil {
		return err
	}
	snapshot, err := o.Reader.Scan(ctx, &o.app.Process)
	if err != nil {
		return err
	}
	sk, err := findSkill(snapshot, name)
	if err != nil {
		return o.app.offOr(name, lookupFailure(err))
	}
	rows := []skillRow{newSkillRow(ctx, snapshot, sk, verdicts.Allow)}
	markRefused(verdicts, snapshot, rows)
	if err := addViolations(ctx, rows); err != nil {
		return err
	}
	if _, err := o.app.markInstalled(rows); err != nil {
		return err
	}
	row := rows[0]
	for _, loser := range snapshot.Shadowed {
		if loser.Path == sk.Path {
			row.Shadows = append(row.Shadows, shadowRow{loser.Root.Dir, loser.Root.Tier.String()})
		}
	}
	for _, d := range snapshot.Diagnostics {
		if d.Path == sk.Path && d.Code != skills.CodeShadowed {
			found := skills.Diagnostic{Severity: d.Severity, Code: d.Code, Detail: d.Detail}
			row.Diagnostics = append(row.Diagnostics, report.Diagnostics([]skills.Diagnostic{found})...)
		}
	}
	if o.JSON {
		return report.WriteJSON(o.app.out, row)
	}
	return printSkill(o.app.out, &row)
}

// findSkill finds a skill as the server does, or else a withheld one.
//
// Errors: *skills.NotFoundError, *skills.AmbiguousError.
func findSkill(snapshot *skills.Snapshot, name string) (*skills.Skill, error) {
	sk, err := snapshot.Lookup(name)
	if _, missing := err.(*skills.NotFoundError); !missing {
		return sk, err
	}
	var named []*skills.Skill
	var paths []string
	for _, sk := range snapshot.Withheld {
		if sk.Path == name {
			return sk, nil
		}
		if sk.Name() == name || sk.Frontmatter.Name == name {
			named, paths = append(named, sk), append(paths, sk.Path)
		}
	}
	switch len(named) {
	case 0:
		return nil, err
	case 1:
		return named[0], nil
	}
	return nil, &skills.AmbiguousError{Name: name, Paths: paths}
}

// lookupFailure adds to the error of a lookup which skills there are.
func lookupFailure(err error) error {
	exit := &exitError{Code: exitFailure, Err: err}
	switch e := err.(type) {
	case *skills.NotFoundError:
		exit.Err = fmt.Errorf("no skill %q", e.Name)
		if e.Suggestion != "" {
			exit.Hint = "did you mean " + report.Printable(e.Suggestion) + "?"
		} else if len(e.Nearest) > 0 {
			exit.Hint = "skills are: " + report.Printable(strings.Join(e.Nearest, ", "))
		} else {
			exit.Hint = "`skillsd list` says what is served, and what could not be read"
		}
	case *skills.AmbiguousError:
		exit.Err = fmt.Errorf("%q names more than one skill", e.Name)
		exit.Hint = "use one of: " + report.Printable(strings.Join(e.Paths, ", "))
	}
	return exit
}

func printSkill(w io.Writer, row *skillRow) error {
	fact := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%-14s %s\n", name, report.Printable(value))
		}
	}
	fact("skill", row.Path)
	fact("name", row.Name)
	fact("description", report.OneLine(row.Description))
	fact("tier", row.Tier)
	fact("root", row.Root)
	fact("origin", row.Origin)
	fact("file", row.File)
	for _, shadow := range row.Shadows {
		fact("shadows", fmt.Sprintf("the one in %s (%s)", shadow.Root, shadow.Tier))
	}
	fact("state", row.mark()+" "+strings.Join(append([]string{row.State}, row.Reasons...), ", "))
	fact("verdict", row.Verdict.word())
	fact("publishable", fmt.Sprint(row.Verdict.Publishable))
	fact("license", row.License)
	fact("compatibility", row.Compatibility)
	fact("author", row.Author)
	fact("version", row.Version)
	fact("tags", strings.Join(row.Tags, ", "))
	fact("allowed tools", strings.Join(row.AllowedTools, ", "))
	if r := row.Requires; r != nil {
		fact("requires", strings.Join(append(slices.Clone(r.Commands), r.Env...), ", "))
	}
	fact("modified", row.LastModified)
	fact("digest", row.Digest.String())
	fact("tree", row.TreeDigest.String())
	printFiles(w, row)
	diagnostics := make([]report.Diagnostic, len(row.Diagnostics))
	for i, d := range row.Diagnostics {
		d.Path = row.Path + "/" + d.Path
		diagnostics[i] = d
	}
	if err := report.WriteDiagnostics(w, diagnostics, math.MaxInt); err != nil {
		return err
	}
	for _, v := range row.Violations {
		place := report.PlaceAt(row.Path+"/"+row.skill.File, v.Line)
		fmt.Fprintf(w, "strict: %s\n", report.ProblemLine(place, v.Rule, v.Message, v.Fix))
	}
	return nil
}

func printFiles(w io.Writer, row *skillRow) {
	const most = 60
	paths := 0
	for _, r := range row.Resources {
		paths = max(paths, min(report.Cells(report.Printable(r.Path)), most))
	}
	if len(row.Resources) > 0 {
		fmt.Fprintln(w, "files")
	}
	for _, r := range row.Resources {
		path := report.Pad(report.Printable(r.Path), paths)
		fmt.Fprintf(w, "  %s  %-9s %8d  %s\n", path, r.Kind, r.Size, r.Digest)
	}
	if len(row.Scripts) > 0 {
		fmt.Fprintln(w, "scripts")
	}
	for _, script := range row.Scripts {
		verdict := "may run"
		if !script.Allowed {
			verdict = "may not run: " + report.Printable(script.Reason)
		}
		path := report.Pad(report.Printable(script.Path), paths)
		fmt.Fprintf(w, "  %s  %-9s %s\n", path, script.Runtime, verdict)
	}
}
