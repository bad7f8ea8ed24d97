package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills/install"
)

// updateOptions are the flags of update.
type updateOptions struct {
	app      *app
	Roots    config.RootOptions
	Preview  bool
	Insecure bool
	JSON     bool
}

func newUpdateCmd(a *app) *cobra.Command {
	opts := &updateOptions{app: a}
	cmd := &cobra.Command{
		Use:   "update [NAME...]",
		Short: "Update installed skills from where they came from",
		Long: "Fetch the sources of installed skills again, those named or all, and replace the skills that changed there. What\n" +
			"changes is told: instructions and scripts as a diff, other files by name, allowed-tools and signals.\n" +
			"--preview tells it and changes nothing. A script that changed does not run before it is allowed\n" +
			"again; `skillsd rollback NAME` goes back.",
		RunE:              runE(opts.run),
		ValidArgsFunction: a.completeInstalled,
	}
	opts.Roots.Register(cmd.Flags())
	cmd.Flags().BoolVar(&opts.Preview, "preview", false, "tell what would change, and change nothing")
	cmd.Flags().BoolVar(&opts.Insecure, "insecure-transport", false, "accept http:// and git:// URLs of other machines")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}

// updateRow is what an update makes of a skill, as update --json prints it.
type updateRow struct {
	Name       string          `json:"name"`
	State      string          `json:"state"` // changed, unchanged or failed
	Error      string          `json:"error,omitempty"`
	Before     *versionRow     `json:"before,omitempty"`
	After      *versionRow     `json:"after,omitempty"`
	Files      []fileChange    `json:"files,omitempty"`
	ToolsAdded []string        `json:"allowedToolsAdded,omitempty"`
	ToolsGone  []string        `json:"allowedToolsRemoved,omitempty"`
	Signals    []diagnosticRow `json:"signals,omitempty"` // that were not there before
	Left       []diagnosticRow `json:"left,omitempty"`
	// Nested are the skills that lie in it and differ, each served by itself.
	Nested []nestedRow `json:"nested,omitempty"`
}

// nestedRow is what an update makes of a skill that lies in another. Its files are among those of that.
type nestedRow struct {
	Path       string          `json:"path"`   // it is served under
	Change     string          `json:"change"` // added, removed or changed
	ToolsAdded []string        `json:"allowedToolsAdded,omitempty"`
	ToolsGone  []string        `json:"allowedToolsRemoved,omitempty"`
	Signals    []diagnosticRow `json:"signals,omitempty"` // that were not there before
}

type versionRow struct {
	Commit string `json:"commit,omitempty"`
	Tree   string `json:"tree"`
}

// fileChange is a file that differs between two versions.
type fileChange struct {
	Path   string `json:"path"`
	Change string `json:"change"` // added, removed or changed
	Script bool   `json:"script,omitempty"`
	Diff   string `json:"diff,omitempty"` // of SKILL.md and of scripts, those of nested skills too
}

func (o *updateOptions) run(ctx context.Context, names []string) (err error) {
	taken, err := o.app.taken(ctx, &o.Roots)
	if err != nil {
		return err
	}
	installer, end, err := o.app.installer(ctx, taken)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	before := installer.Lock()
	updates, err := installer.Update(ctx, slices.Compact(slices.Sorted(slices.Values(names))), o.Insecure)
	if err != nil {
		return sourceFailure(err)
	}
	rows, err := newUpdateRows(ctx, updates)
	if err == nil && !o.Preview {
		err = updates.Apply(ctx)
	}
	if err := errors.Join(err, updates.Close()); err != nil {
		return err
	}
	o.app.endProgress()
	o.app.printNotes(updates.Notes)
	report := o.report(rows)
	after := map[string]*install.Entry{}
	var changed []string
	for _, one := range updates.Skills {
		if one.Changes() {
			changed = append(changed, one.After.Name)
			after[one.After.Name] = one.After
		}
	}
	o.app.notePins(changed, before.Find, func(name string) *install.Entry { return after[name] })
	if !o.Preview {
		o.app.collectTrees(ctx, installer)
	}
	return report
}

func (o *updateOptions) report(rows []updateRow) error {
	count := map[string]int{}
	for i := range rows {
		count[rows[i].State]++
		if !o.JSON {
			rows[i].print(o.app)
		}
	}
	if o.JSON {
		if err := report.WriteJSON(o.app.out, rows); err != nil {
			return err
		}
	}
	verb := "updated"
	if o.Preview {
		verb = "would change"
	}
	fmt.Fprintf(o.app.err, "%s %d, unchanged %d, failed %d\n", verb, count["changed"], count["unchanged"], count["failed"])
	if count["failed"] > 0 {
		return &exitError{Code: exitProblems}
	}
	return nil
}

// newUpdateRows describes updates. It reads the files of the skills that change.
func newUpdateRows(ctx context.Context, updates *install.Updates) ([]updateRow, error) {
	rows := make([]updateRow, 0, len(updates.Skills))
	nested, err := nestedPairs(ctx, updates)
	if err != nil {
		return nil, err
	}
	for n := range updates.Skills {
		one := &updates.Skills[n]
		row := updateRow{Name: one.Before.Name, State: "unchanged", Before: &versionRow{one.Before.Origin.Commit, one.Before.Tree.String()}}
		switch {
		case one.Err != nil:
			row.State, row.Error = "failed", report.Printable(one.Err.Error())
		case one.Changes():
			row.State, row.After = "changed", &versionRow{one.After.Origin.Commit, one.After.Tree.String()}
			row.Left = diagnosticRows(updates.Left[row.Name])
			if err := row.compare(ctx, updates.Old.Skill(row.Name), updates.New.Skill(row.Name), nested[row.Name]); err != nil {
				return nil, fmt.Errorf("%s: %w", row.Name, err)
			}
		}
		rows = append(rows, row)
	}
	return rows, ctx.Err()
}

// diffHead is how many lines of a diff stand before what differs.
const diffHead = 3

// print tells of one skill what changes; one that does not is not mentioned.
func (r *updateRow) print(a *app) {
	switch r.State {
	case "failed":
		fmt.Fprintf(a.err, "failed: %s: %s\n", r.Name, r.Error)
		return
	case "unchanged":
		return
	}
	shown := func(v *versionRow) string {
		if v.Commit != "" {
			return v.Commit[:12]
		}
		return v.Tree[:len("sha256:")+12]
	}
	fmt.Fprintf(a.out, "%s: %s -> %s\n", r.Name, shown(r.Before), shown(r.After))
	printFactChanges(a.out, "  ", r.ToolsAdded, r.ToolsGone, r.Signals)
	for _, one := range r.Nested {
		fmt.Fprintf(a.out, "  nested skill %s: %s\n", one.Change, report.Printable(one.Path))
		printFactChanges(a.out, "    ", one.ToolsAdded, one.ToolsGone, one.Signals)
	}
	for _, d := range r.Left {
		fmt.Fprintf(a.out, "  left out: %s\n", d.line())
	}
	for _, f := range r.Files {
		kind := ""
		if f.Script {
			kind = " (script)"
		}
		fmt.Fprintf(a.out, "  %s: %s%s\n", f.Change, report.Printable(f.Path), kind)
		for n, line := range strings.Split(strings.TrimRight(f.Diff, "\n"), "\n") {
			// The first lines name the files once more.
			if n >= diffHead {
				fmt.Fprintf(a.out, "    %s\n", report.Visible(line))
			}
		}
	}
}

// printFactChanges tells of tools and signals.
func printFactChanges(w io.Writer, indent string, added, gone []string, signals []diagnosticRow) {
	for _, tool := range added {
		fmt.Fprintf(w, "%sallowed-tools: + %s\n", indent, report.Printable(tool))
	}
	for _, tool := range gone {
		fmt.Fprintf(w, "%sallowed-tools: - %s\n", indent, report.Printable(tool))
	}
	for _, d := range signals {
		fmt.Fprintf(w, "%s%s: %s\n", indent, d.Severity, d.line())
	}
}
