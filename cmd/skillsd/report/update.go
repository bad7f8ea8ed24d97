package report

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
)

// Update is what an update makes of a skill, as update --json prints it.
type Update struct {
	Name   string       `json:"name"`
	State  string       `json:"state"` // changed, unchanged or failed
	Error  string       `json:"error,omitempty"`
	Before *Version     `json:"before,omitempty"`
	After  *Version     `json:"after,omitempty"`
	Files  []FileChange `json:"files,omitempty"`
	FactChanges
	Left []Diagnostic `json:"left,omitempty"`
	// Nested are the skills that lie in it and differ, each served by itself.
	Nested []NestedUpdate `json:"nested,omitempty"`
}

// NestedUpdate is what an update makes of a skill that lies in another, whose row has its files.
type NestedUpdate struct {
	Path   string `json:"path"`   // it is served under
	Change string `json:"change"` // added, removed or changed
	FactChanges
}

// FactChanges are what a diff of files does not make plain.
type FactChanges struct {
	ToolsAdded []string     `json:"allowedToolsAdded,omitempty"`
	ToolsGone  []string     `json:"allowedToolsRemoved,omitempty"`
	Signals    []Diagnostic `json:"signals,omitempty"` // that were not there before
}

// Version is the content of a skill before or after an update.
type Version struct {
	Commit string `json:"commit,omitempty"`
	Tree   string `json:"tree"`
}

// FileChange is a file that differs between two versions.
type FileChange struct {
	Path   string `json:"path"`
	Change string `json:"change"` // added, removed or changed
	Script bool   `json:"script,omitempty"`
	Diff   string `json:"diff,omitempty"` // of SKILL.md and of scripts, those of nested skills too
}

// Updates describes the plan of an update. It reads the files of the skills that change.
func Updates(ctx context.Context, plan *install.Plan) ([]Update, error) {
	rows := make([]Update, 0, len(plan.Changes)+len(plan.Refused))
	for i := range plan.Changes {
		row, err := newUpdate(ctx, plan, &plan.Changes[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", plan.Changes[i].Name, err)
		}
		rows = append(rows, row)
	}
	for _, r := range plan.Refused {
		rows = append(rows, Update{Name: r.Name, State: "failed", Error: Printable(r.Reason),
			Before: newVersion(r.Before)})
	}
	slices.SortFunc(rows, func(a, b Update) int { return strings.Compare(a.Name, b.Name) })
	return rows, ctx.Err()
}

func newVersion(e *install.Entry) *Version {
	return &Version{e.Origin.Commit, e.Tree.String()}
}

// Print prints what changes of the skill: nothing if it does not change.
func (r *Update) Print(out, stderr io.Writer) {
	switch r.State {
	case "failed":
		fmt.Fprintf(stderr, "failed: %s: %s\n", r.Name, r.Error)
		return
	case "unchanged":
		return
	}
	shown := func(v *Version) string {
		if v.Commit != "" {
			return v.Commit[:12]
		}
		return v.Tree[:len("sha256:")+12]
	}
	fmt.Fprintf(out, "%s: %s -> %s\n", r.Name, shown(r.Before), shown(r.After))
	r.FactChanges.print(out, "  ")
	for _, one := range r.Nested {
		fmt.Fprintf(out, "  nested skill %s: %s\n", one.Change, Printable(one.Path))
		one.FactChanges.print(out, "    ")
	}
	for _, d := range r.Left {
		fmt.Fprintf(out, "  left out: %s\n", d.Text())
	}
	for _, f := range r.Files {
		kind := ""
		if f.Script {
			kind = " (script)"
		}
		fmt.Fprintf(out, "  %s: %s%s\n", f.Change, Printable(f.Path), kind)
		const head = 3 // lines of a diff that name the files once more
		lines := strings.Split(strings.TrimRight(f.Diff, "\n"), "\n")
		for _, line := range lines[min(head, len(lines)):] {
			fmt.Fprintf(out, "    %s\n", Visible(line))
		}
	}
}

func (f *FactChanges) print(w io.Writer, indent string) {
	for _, tool := range f.ToolsAdded {
		fmt.Fprintf(w, "%sallowed-tools: + %s\n", indent, Printable(tool))
	}
	for _, tool := range f.ToolsGone {
		fmt.Fprintf(w, "%sallowed-tools: - %s\n", indent, Printable(tool))
	}
	for _, d := range f.Signals {
		fmt.Fprintf(w, "%s%s: %s\n", indent, d.Severity, d.Text())
	}
}

// side is a skill before or after an update. Without a skill it has no files.
type side struct {
	sk    *skills.Skill
	index *skills.Index
}

// sideOf returns the side of the skill that a snapshot has at a path.
func sideOf(ctx context.Context, snapshot *skills.Snapshot, at string) (side, error) {
	sk := snapshot.Skill(at)
	if sk == nil {
		return side{index: &skills.Index{}}, nil
	}
	index, err := sk.Index(ctx)
	return side{sk, index}, err
}

// newUpdate describes what an update makes of one skill, and of the skills that lie in it.
func newUpdate(ctx context.Context, plan *install.Plan, c *install.Change) (Update, error) {
	row := Update{Name: c.Name, State: "unchanged", Before: newVersion(c.Before)}
	if !c.NewContent() {
		return row, nil
	}
	row.State, row.After, row.Left = "changed", newVersion(c.After), Diagnostics(c.Left)
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
	var was, is side
	for _, at := range slices.Compact(paths) {
		from, err := sideOf(ctx, plan.Old, at)
		if err != nil {
			return row, err
		}
		to, err := sideOf(ctx, plan.New, at)
		if err != nil {
			return row, err
		}
		below := strings.TrimPrefix(strings.TrimPrefix(at, c.Name), "/")
		for _, v := range []side{from, to} {
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
		nested := NestedUpdate{Path: at, Change: "changed", FactChanges: facts}
		switch {
		case below == "":
			row.FactChanges, was, is = facts, from, to
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
func compareFiles(ctx context.Context, was, is side, scripts, instructions map[string]bool) []FileChange {
	var changes []FileChange
	add := func(path, change string) {
		row := FileChange{Path: path, Change: change, Script: scripts[path]}
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
	slices.SortFunc(changes, func(a, b FileChange) int { return strings.Compare(a.Path, b.Path) })
	return changes
}

// maxDiff is the longest file of which a diff is shown, in bytes.
const maxDiff = 256 << 10

// text returns the content of a file for a diff, nothing if there is no such file. It reports whether a
// diff can show the file.
func (v side) text(ctx context.Context, path string) (data []byte, ok bool) {
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
func compareFacts(was, is side) (changes FactChanges) {
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
				changes.Signals = append(changes.Signals, Diagnostics([]skills.Diagnostic{d})...)
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
