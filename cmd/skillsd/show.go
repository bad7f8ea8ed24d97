package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/environments"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
)

func newShowCmd(a *app) *cobra.Command {
	opts := &listOptions{app: a}
	cmd := &cobra.Command{
		Use:   "show SKILL",
		Short: "Show one skill: files, scripts, and whether each may run",
		Args:  cobra.ExactArgs(1),
		RunE:  runE(opts.show),
	}
	opts.register(cmd.Flags())
	return cmd
}

func (o *listOptions) show(ctx context.Context, args []string) error {
	name := args[0]
	verdicts, snapshot, err := o.judged(ctx)
	if err != nil {
		return err
	}
	sk, err := findSkill(snapshot, name)
	missing := unreadable(&o.Reader, snapshot, false)
	if err != nil {
		return cmp.Or(missing, report.BrokenError(exit.Failure, snapshot, name),
			o.app.offOr(name, report.LookupError(exit.Failure, "", err)))
	}
	rows := []report.SkillRow{report.NewSkillRow(ctx, snapshot, sk, verdicts.Allow)}
	verdicts.Mark(ctx, snapshot, rows)
	if err := report.AddViolations(ctx, rows); err != nil {
		return err
	}
	if _, err := o.app.markInstalled(ctx, rows, snapshot); err != nil {
		return err
	}
	row := rows[0]
	for _, d := range snapshot.Diagnostics {
		if d.Path == sk.Path && d.Code != skills.CodeShadowed {
			found := skills.Diagnostic{Severity: d.Severity, Code: d.Code, Detail: d.Detail}
			row.Diagnostics = append(row.Diagnostics, report.Diagnostics([]skills.Diagnostic{found})...)
		}
	}
	if o.JSON {
		return cmp.Or(report.WriteJSON(o.app.out, row), missing)
	}
	if err := report.PrintSkill(o.app.out, &row); err != nil {
		return err
	}
	o.warnScripts(ctx, sk, &row, verdicts.Allow.Entries())
	return cmp.Or(ctx.Err(), missing)
}

// warnScripts warns of what keeps the allowed scripts of a skill from running here, and names the packages
// that its author asks for.
func (o *listOptions) warnScripts(
	ctx context.Context, sk *skills.Skill, row *report.SkillRow, allowed []policy.Entry,
) {
	looker := &environments.Looker{Process: &o.app.Process, Sandbox: o.app.Cfg.Keys.Sandbox}
	inSandbox := false
	for _, entry := range allowed {
		if entry.Skill != sk.Path {
			continue
		}
		inSandbox = inSandbox || entry.Target != policy.TargetHost
		at := slices.IndexFunc(row.Scripts, func(s report.ScriptRow) bool { return s.Path == entry.Path })
		if at >= 0 {
			runtime := script.Runtime(row.Scripts[at].Runtime)
			in, err := looker.Interpreter(ctx, entry, runtime)
			if lacks, hint := environments.Lacking(runtime, in, err); lacks != "" {
				o.app.notef("skillsd: warning: %s cannot run: %s\nskillsd: hint: %s",
					report.Printable(entry.Path), report.Printable(lacks), hint)
			}
		}
		// doctor reports an error here.
		if found, err := looker.Look(ctx, sk, entry); err == nil && found.Text() != "" {
			o.app.notef("skillsd: warning: %s %s\nskillsd: hint: %s", report.Printable(found.Script),
				report.Printable(found.Text()), found.Hint())
		}
	}
	if inSandbox {
		o.app.warnSandbox(ctx)
	}
	if offer := looker.Offer(sk, allowed); offer != "" {
		o.app.notef("skillsd: note: its author names packages; this provides them: %s", offer)
	}
}

// findSkill finds a skill like the server, or else a withheld one.
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
