package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
)

// updateOptions are the flags of update.
type updateOptions struct {
	app      *app
	Preview  bool
	Insecure bool
	JSON     bool
}

func newUpdateCmd(a *app) *cobra.Command {
	opts := &updateOptions{app: a}
	cmd := &cobra.Command{
		Use:   "update [NAME...]",
		Short: "Update installed skills from where they came from",
		Long: "Fetch the sources of installed skills again, and replace the skills that changed there. What changes\n" +
			"is told: instructions and scripts as a diff, other files by name, allowed-tools and signals.\n" +
			"--preview tells it and changes nothing. A script that changed does not run before it is allowed\n" +
			"again; `skillsd rollback NAME` goes back.",
		RunE:              runE(opts.run),
		ValidArgsFunction: a.completeInstalled,
	}
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
	Diff   string `json:"diff,omitempty"` // of SKILL.md and of scripts
}

func (o *updateOptions) run(ctx context.Context, names []string) (err error) {
	installer, end, err := o.app.installer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
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
	o.app.notePins(changed, func(name string) *install.Entry { return after[name] })
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
		if err := writeJSON(o.app.out, rows); err != nil {
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
	for n := range updates.Skills {
		one := &updates.Skills[n]
		row := updateRow{Name: one.Before.Name, State: "unchanged", Before: &versionRow{one.Before.Origin.Commit, one.Before.Tree.String()}}
		switch {
		case one.Err != nil:
			row.State, row.Error = "failed", printable(one.Err.Error())
		case one.Changes():
			row.State, row.After = "changed", &versionRow{one.After.Origin.Commit, one.After.Tree.String()}
			row.Left = diagnosticRows(updates.Left[row.Name])
			if err := row.compare(ctx, updates.Old.Skill(row.Name), updates.New.Skill(row.Name)); err != nil {
				return nil, fmt.Errorf("%s: %w", row.Name, err)
			}
		}
		rows = append(rows, row)
	}
	return rows, ctx.Err()
}

// version is a skill as compare looks at it.
type version struct {
	sk    *skills.Skill // nil: it is no longer there
	index *skills.Index
}

func versionOf(ctx context.Context, sk *skills.Skill) (version, error) {
	if sk == nil {
		return version{index: &skills.Index{}}, nil
	}
	index, err := sk.Index(ctx)
	return version{sk, index}, err
}

// maxDiff is the longest file of which a diff is shown, in bytes.
const maxDiff = 256 << 10

// text is the content of a file that a diff can show.
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

// compare fills in what differs between two versions.
func (r *updateRow) compare(ctx context.Context, before, after *skills.Skill) error {
	was, err := versionOf(ctx, before)
	if err != nil {
		return err
	}
	is, err := versionOf(ctx, after)
	if err != nil {
		return err
	}
	old := map[string]string{}
	for _, f := range was.index.Files {
		old[f.Path] = f.Digest.String()
	}
	add := func(path, change string) {
		row := fileChange{Path: path, Change: change}
		resource := is.index.Resource(path)
		if resource == nil {
			resource = was.index.Resource(path)
		}
		row.Script = resource != nil && resource.Script != nil
		if row.Script || resource == nil {
			from, one := was.text(ctx, path)
			to, other := is.text(ctx, path)
			if one && other {
				row.Diff = string(diff.Diff("before/"+path, from, "after/"+path, to))
			}
		}
		r.Files = append(r.Files, row)
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
	slices.SortFunc(r.Files, func(a, b fileChange) int { return strings.Compare(a.Path, b.Path) })
	r.compareFacts(was, is)
	return nil
}

// compareFacts finds what a diff of files does not make plain: tools and signals that are new.
func (r *updateRow) compareFacts(was, is version) {
	var oldTools, newTools []string
	known := map[string]bool{}
	key := func(d skills.Diagnostic) string { return string(d.Code) + "\x00" + d.Path + "\x00" + d.Detail }
	if was.sk != nil {
		oldTools = was.sk.Frontmatter.AllowedTools
		for _, d := range slices.Concat(was.sk.Diagnostics, was.index.Diagnostics) {
			known[key(d)] = true
		}
	}
	newTools = is.sk.Frontmatter.AllowedTools
	missing := func(in, from []string) (found []string) {
		for _, tool := range from {
			if !slices.Contains(in, tool) {
				found = append(found, tool)
			}
		}
		return found
	}
	r.ToolsAdded, r.ToolsGone = missing(oldTools, newTools), missing(newTools, oldTools)
	for _, d := range slices.Concat(is.sk.Diagnostics, is.index.Diagnostics) {
		if !known[key(d)] {
			r.Signals = append(r.Signals, diagnosticRows([]skills.Diagnostic{d})...)
		}
	}
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
	for _, tool := range r.ToolsAdded {
		fmt.Fprintf(a.out, "  allowed-tools: + %s\n", printable(tool))
	}
	for _, tool := range r.ToolsGone {
		fmt.Fprintf(a.out, "  allowed-tools: - %s\n", printable(tool))
	}
	for _, d := range r.Signals {
		fmt.Fprintf(a.out, "  %s: %s\n", d.Severity, d.line())
	}
	for _, d := range r.Left {
		fmt.Fprintf(a.out, "  left out: %s\n", d.line())
	}
	for _, f := range r.Files {
		kind := ""
		if f.Script {
			kind = " (script)"
		}
		fmt.Fprintf(a.out, "  %s: %s%s\n", f.Change, printable(f.Path), kind)
		for n, line := range strings.Split(strings.TrimRight(f.Diff, "\n"), "\n") {
			// The first lines name the files once more.
			if n >= diffHead {
				fmt.Fprintf(a.out, "    %s\n", printable(line))
			}
		}
	}
}
