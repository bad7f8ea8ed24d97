package main

import (
	"context"
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
	Name   string       `json:"name"`
	State  string       `json:"state"` // changed, unchanged or failed
	Error  string       `json:"error,omitempty"`
	Before *versionRow  `json:"before,omitempty"`
	After  *versionRow  `json:"after,omitempty"`
	Files  []fileChange `json:"files,omitempty"`
	factChanges
	Left []diagnosticRow `json:"left,omitempty"`
	// Nested are the skills that lie in it and differ, each served by itself.
	Nested []nestedRow `json:"nested,omitempty"`
}

// nestedRow is what an update makes of a skill that lies in another, whose row has its files.
type nestedRow struct {
	Path   string `json:"path"`   // it is served under
	Change string `json:"change"` // added, removed or changed
	factChanges
}

// factChanges are what a diff of files does not make plain.
type factChanges struct {
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

func (o *updateOptions) run(ctx context.Context, names []string) error {
	taken, err := o.app.taken(ctx, &o.Roots)
	if err != nil {
		return err
	}
	var rows []updateRow
	return o.app.carryOut(ctx, &planned{
		taken: taken,
		dry:   o.Preview,
		compute: func(i *install.Installer) (*install.Plan, error) {
			return i.Update(ctx, names, o.Insecure)
		},
		describe: func(plan *install.Plan) error {
			rows, err = newUpdateRows(ctx, plan)
			return err
		},
		print: func(plan *install.Plan) error {
			o.app.printNotes(plan.Notes)
			return o.print(rows)
		},
	})
}

func (o *updateOptions) print(rows []updateRow) error {
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

// newUpdateRows describes an update. It reads the files of the skills that change.
func newUpdateRows(ctx context.Context, plan *install.Plan) ([]updateRow, error) {
	rows := make([]updateRow, 0, len(plan.Changes)+len(plan.Refused))
	for i := range plan.Changes {
		row, err := newUpdateRow(ctx, plan, &plan.Changes[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", plan.Changes[i].Name, err)
		}
		rows = append(rows, row)
	}
	for _, r := range plan.Refused {
		rows = append(rows, updateRow{Name: r.Name, State: "failed", Error: report.Printable(r.Reason), Before: newVersionRow(r.Before)})
	}
	slices.SortFunc(rows, func(a, b updateRow) int { return strings.Compare(a.Name, b.Name) })
	return rows, ctx.Err()
}

func newVersionRow(e *install.Entry) *versionRow {
	return &versionRow{e.Origin.Commit, e.Tree.String()}
}

// print prints what changes of one skill; one that does not change is not mentioned.
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
	r.factChanges.print(a.out, "  ")
	for _, one := range r.Nested {
		fmt.Fprintf(a.out, "  nested skill %s: %s\n", one.Change, report.Printable(one.Path))
		one.factChanges.print(a.out, "    ")
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
		const head = 3 // lines of a diff that name the files once more
		lines := strings.Split(strings.TrimRight(f.Diff, "\n"), "\n")
		for _, line := range lines[min(head, len(lines)):] {
			fmt.Fprintf(a.out, "    %s\n", report.Visible(line))
		}
	}
}

func (f *factChanges) print(w io.Writer, indent string) {
	for _, tool := range f.ToolsAdded {
		fmt.Fprintf(w, "%sallowed-tools: + %s\n", indent, report.Printable(tool))
	}
	for _, tool := range f.ToolsGone {
		fmt.Fprintf(w, "%sallowed-tools: - %s\n", indent, report.Printable(tool))
	}
	for _, d := range f.Signals {
		fmt.Fprintf(w, "%s%s: %s\n", indent, d.Severity, d.line())
	}
}
