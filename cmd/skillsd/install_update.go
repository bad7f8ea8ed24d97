package main

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills"
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
		Long: "Fetch the sources of the named installed skills, or of all, and replace the skills\n" +
			"that changed there. The changes are printed: instructions and scripts as a diff, other\n" +
			"files by name, allowed-tools and signals. --preview prints them and changes nothing. A\n" +
			"script that changed does not run before it is allowed again; `skillsd rollback NAME`\n" +
			"returns to the version before.",
		RunE:              runE(opts.run),
		ValidArgsFunction: a.completeInstalled,
	}
	opts.Roots.Register(cmd.Flags())
	cmd.Flags().BoolVar(&opts.Preview, "preview", false, "print what would change, and change nothing")
	cmd.Flags().BoolVar(&opts.Insecure, "insecure-transport", false,
		"accept http:// and git:// URLs of other machines")
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
	Left []report.Diagnostic `json:"left,omitempty"`
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
	ToolsAdded []string            `json:"allowedToolsAdded,omitempty"`
	ToolsGone  []string            `json:"allowedToolsRemoved,omitempty"`
	Signals    []report.Diagnostic `json:"signals,omitempty"` // that were not there before
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
	fmt.Fprintf(o.app.err, "%s %d, unchanged %d, failed %d\n", verb, count["changed"], count["unchanged"],
		count["failed"])
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
		rows = append(rows, updateRow{Name: r.Name, State: "failed", Error: report.Printable(r.Reason),
			Before: newVersionRow(r.Before)})
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
		fmt.Fprintf(a.out, "  left out: %s\n", d.Text())
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
		fmt.Fprintf(w, "%s%s: %s\n", indent, d.Severity, d.Text())
	}
}

// version is a skill before or after an update. Without a skill it has no files.
type version struct {
	sk    *skills.Skill
	index *skills.Index
}

// versionOf returns the version of the skill that a snapshot has at a path.
func versionOf(ctx context.Context, snapshot *skills.Snapshot, at string) (version, error) {
	sk := snapshot.Skill(at)
	if sk == nil {
		return version{index: &skills.Index{}}, nil
	}
	index, err := sk.Index(ctx)
	return version{sk, index}, err
}

// newUpdateRow describes what an update makes of one skill, and of the skills that lie in it.
func newUpdateRow(ctx context.Context, plan *install.Plan, c *install.Change) (updateRow, error) {
	row := updateRow{Name: c.Name, State: "unchanged", Before: newVersionRow(c.Before)}
	if !c.NewContent() {
		return row, nil
	}
	row.State, row.After, row.Left = "changed", newVersionRow(c.After), report.Diagnostics(c.Left)
	var paths []string
	for _, snapshot := range []*skills.Snapshot{plan.Old, plan.New} {
		for _, sk := range snapshot.Skills {
			if sk.Path == c.Name || strings.HasPrefix(sk.Path, c.Name+"/") {
				paths = append(paths, sk.Path)
			}
		}
	}
	slices.Sort(paths)
	// Scripts and instructions of nested skills are only files of the skill that is updated.
	scripts, instructions := map[string]bool{}, map[string]bool{}
	var was, is version
	for _, at := range slices.Compact(paths) {
		from, err := versionOf(ctx, plan.Old, at)
		if err != nil {
			return row, err
		}
		to, err := versionOf(ctx, plan.New, at)
		if err != nil {
			return row, err
		}
		below := strings.TrimPrefix(strings.TrimPrefix(at, c.Name), "/")
		for _, v := range []version{from, to} {
			if v.sk == nil {
				continue
			}
			instructions[path.Join(below, v.sk.File)] = true
			for _, r := range v.index.Resources {
				if r.Script != nil {
					scripts[path.Join(below, r.Path)] = true
				}
			}
		}
		facts := compareFacts(from, to)
		nested := nestedRow{Path: at, Change: "changed", factChanges: facts}
		switch {
		case below == "":
			row.factChanges, was, is = facts, from, to
			continue
		case from.sk == nil:
			nested.Change = "added"
		case to.sk == nil:
			nested.Change = "removed"
		case from.index.TreeDigest == to.index.TreeDigest:
			continue
		}
		row.Nested = append(row.Nested, nested)
	}
	row.Files = compareFiles(ctx, was, is, scripts, instructions)
	return row, nil
}

// compareFiles returns the files that differ, with a diff of scripts and instructions.
func compareFiles(ctx context.Context, was, is version, scripts, instructions map[string]bool) []fileChange {
	var changes []fileChange
	add := func(path, change string) {
		row := fileChange{Path: path, Change: change, Script: scripts[path]}
		if row.Script || instructions[path] {
			from, one := was.text(ctx, path)
			to, other := is.text(ctx, path)
			if one && other {
				row.Diff = string(diff.Diff("before/"+path, from, "after/"+path, to))
			}
		}
		changes = append(changes, row)
	}
	old := map[string]string{}
	for _, f := range was.index.Files {
		old[f.Path] = f.Digest.String()
	}
	for _, f := range is.index.Files {
		switch sum, known := old[f.Path]; {
		case !known:
			add(f.Path, "added")
		case sum != f.Digest.String():
			add(f.Path, "changed")
		}
		delete(old, f.Path)
	}
	for path := range old {
		add(path, "removed")
	}
	slices.SortFunc(changes, func(a, b fileChange) int { return strings.Compare(a.Path, b.Path) })
	return changes
}

// maxDiff is the longest file of which a diff is shown, in bytes.
const maxDiff = 256 << 10

// text returns the content of a file for a diff, nothing if there is no such file. It reports whether a
// diff can show the file.
func (v version) text(ctx context.Context, path string) (data []byte, ok bool) {
	if v.sk == nil {
		return nil, true
	}
	if r := v.index.Resource(path); r == nil && path != v.sk.File {
		return nil, true
	} else if r != nil && !r.Text {
		return nil, false
	}
	content, err := v.sk.Read(ctx, path, maxDiff)
	if err != nil {
		return nil, false
	}
	return content.Data, true
}

// compareFacts finds the tools that differ and the signals that are new.
func compareFacts(was, is version) (changes factChanges) {
	var oldTools, newTools []string
	known := map[skills.Diagnostic]bool{}
	// The place of a diagnostic in its file may differ between versions.
	bare := func(d skills.Diagnostic) skills.Diagnostic {
		return skills.Diagnostic{Code: d.Code, Path: d.Path, Detail: d.Detail}
	}
	if was.sk != nil {
		oldTools = was.sk.Frontmatter.AllowedTools
		for _, d := range slices.Concat(was.sk.Diagnostics, was.index.Diagnostics) {
			known[bare(d)] = true
		}
	}
	if is.sk != nil {
		newTools = is.sk.Frontmatter.AllowedTools
		for _, d := range slices.Concat(is.sk.Diagnostics, is.index.Diagnostics) {
			if !known[bare(d)] {
				changes.Signals = append(changes.Signals, report.Diagnostics([]skills.Diagnostic{d})...)
			}
		}
	}
	missing := func(in, from []string) []string {
		return slices.DeleteFunc(slices.Clone(from),
			func(tool string) bool { return slices.Contains(in, tool) })
	}
	changes.ToolsAdded, changes.ToolsGone = missing(oldTools, newTools), missing(newTools, oldTools)
	return changes
}
