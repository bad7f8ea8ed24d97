package report

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/rogpeppe/go-internal/diff"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/compare"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
)

// Update is the effect of an update on a skill, as printed by update --json.
type Update struct {
	Name   string   `json:"name"`
	State  string   `json:"state"` // changed, unchanged, moved, removed, failed, or held until it is accepted
	Error  string   `json:"error,omitempty"`
	Before *Version `json:"before,omitempty"`
	After  *Version `json:"after,omitempty"`
	// Moved is the origin from now on, if it is another place of the source.
	Moved string `json:"moved,omitempty"`
	// Verdict is about the new content: look or refuse, empty for clean; Why has the reasons.
	Verdict policy.Verdict `json:"verdict,omitempty"`
	Why     string         `json:"why,omitempty"`
	Files   []FileChange   `json:"files,omitempty"`
	FactChanges
	Left []Diagnostic `json:"left,omitempty"`
	// Nested are the changed skills inside it, each served separately.
	Nested []NestedUpdate `json:"nested,omitempty"`
}

// NestedUpdate is the effect of an update on a nested skill; the row of the outer skill has its files.
type NestedUpdate struct {
	Path   string `json:"path"`   // it is served with
	Change string `json:"change"` // added, removed or changed
	FactChanges
}

// FactChanges are changes that a diff of files does not show clearly.
type FactChanges struct {
	ToolsAdded []string     `json:"allowedToolsAdded,omitempty"`
	ToolsGone  []string     `json:"allowedToolsRemoved,omitempty"`
	Signals    []Diagnostic `json:"signals,omitempty"`    // new ones
	Hosts      []string     `json:"hostsAdded,omitempty"` // not in any text before
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
	Diff   string `json:"diff,omitempty"` // of SKILL.md and of scripts, also of nested skills
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

// MarkHeld marks the rows of updates that wait to be accepted and are not made.
func MarkHeld(rows []Update, plan *install.Plan) {
	for _, c := range plan.Held {
		for i := range rows {
			if rows[i].Name == c.Name {
				rows[i].State = "held"
			}
		}
	}
}

func newVersion(e *install.Entry) *Version { return &Version{e.Origin.Commit, e.Tree.String()} }

// Print prints the changes of the skill, or nothing without changes.
func (r *Update) Print(out, stderr io.Writer) {
	switch r.State {
	case "failed":
		fmt.Fprintf(stderr, "failed: %s: %s\n", r.Name, r.Error)
		return
	case "unchanged":
		return
	case "removed":
		fmt.Fprintf(out, "%s: removed: its source no longer has it\n", r.Name)
		return
	case "moved":
		fmt.Fprintf(out, "%s: is from now on from %s\n", r.Name, Printable(r.Moved))
		return
	case "held":
		// The update was not made.
		out = stderr
	}
	shown := func(v *Version) string {
		if v.Commit != "" {
			return v.Commit[:12]
		}
		return v.Tree[:len("sha256:")+12]
	}
	if r.Before == nil {
		fmt.Fprintf(out, "%s: %s\n", r.Name, shown(r.After))
	} else {
		fmt.Fprintf(out, "%s: %s -> %s\n", r.Name, shown(r.Before), shown(r.After))
	}
	if r.Moved != "" {
		fmt.Fprintf(out, "  from %s\n", Printable(r.Moved))
	}
	r.FactChanges.print(out, "  ")
	for _, one := range r.Nested {
		fmt.Fprintf(out, "  nested skill %s: %s\n", one.Change, Printable(one.Path))
		one.FactChanges.print(out, "    ")
	}
	for _, d := range r.Left {
		fmt.Fprintf(out, "  left out: %s\n", d.Text())
	}
	for _, f := range r.Files {
		f.print(out)
	}
}

func (f *FileChange) print(w io.Writer) {
	kind := ""
	if f.Script {
		kind = " (script)"
	}
	fmt.Fprintf(w, "  %s: %s%s\n", f.Change, Printable(f.Path), kind)
	// The first lines of a diff repeat the names of the files.
	const head = 3
	lines := strings.Split(strings.TrimRight(f.Diff, "\n"), "\n")
	for _, line := range lines[min(head, len(lines)):] {
		// A user decides by these lines, and a terminal could hide a part of foreign text.
		fmt.Fprintf(w, "    %s\n", Visible(line))
	}
}

func (f *FactChanges) print(w io.Writer, indent string) {
	for _, tool := range f.ToolsAdded {
		fmt.Fprintf(w, "%sallowed-tools: + %s\n", indent, Printable(tool))
	}
	for _, tool := range f.ToolsGone {
		fmt.Fprintf(w, "%sallowed-tools: - %s\n", indent, Printable(tool))
	}
	for _, host := range f.Hosts {
		fmt.Fprintf(w, "%shosts: + %s\n", indent, Printable(host))
	}
	for _, d := range f.Signals {
		fmt.Fprintf(w, "%s%s: %s\n", indent, d.Severity, d.Text())
	}
}

// newUpdate describes the effect of an update on one skill and on its nested skills.
func newUpdate(ctx context.Context, plan *install.Plan, c *install.Change) (Update, error) {
	row := Update{Name: c.Name, State: "unchanged", Before: newVersion(c.Before)}
	switch {
	case c.After == nil:
		row.State = "removed"
		return row, nil
	case !c.Before.Origin.Same(c.After.Origin):
		row.State, row.Moved = "moved", OriginText(c.After)
	}
	if !c.NewContent() {
		return row, nil
	}
	row.State, row.After, row.Left = "changed", newVersion(c.After), Diagnostics(c.Left)
	row.Verdict, row.Why = c.After.Verdict, c.After.Why
	err := row.compare(ctx, plan.Old, plan.New)
	return row, err
}

// Arrived describes the whole content of an installed skill without a version before; snapshot has it.
func Arrived(ctx context.Context, snapshot *skills.Snapshot, e *install.Entry) (Update, error) {
	row := Update{Name: e.Name, State: "changed", After: newVersion(e), Verdict: e.Verdict, Why: e.Why}
	err := row.compare(ctx, nil, snapshot)
	return row, err
}

// compare adds the differences of the skill, and of the skills nested in it, between two snapshots. The first
// one may be nil.
func (r *Update) compare(ctx context.Context, old, new *skills.Snapshot) error {
	differences, err := compare.Skills(ctx, r.Name, old, new)
	if err != nil {
		return err
	}
	texts := map[string]bool{}
	for _, d := range differences {
		below := strings.TrimPrefix(strings.TrimPrefix(d.Path, r.Name), "/")
		addTexts(texts, below, d.Was)
		addTexts(texts, below, d.Is)
		facts := FactChanges{d.ToolsAdded, d.ToolsGone, Diagnostics(d.Signals), d.Hosts}
		if below == "" {
			r.FactChanges = facts
		} else if change := nestedChange(d); change != "" {
			r.Nested = append(r.Nested, NestedUpdate{d.Path, change, facts})
		}
	}
	r.Files = fileChanges(ctx, differences[0], texts)
	return nil
}

// addTexts adds the texts of a version of a skill: instructions (false) and scripts (true), by path. below is
// the path of a nested skill, whose files are files of the outer one too.
func addTexts(texts map[string]bool, below string, v compare.Content) {
	if v.Skill == nil {
		return
	}
	texts[path.Join(below, v.Skill.File)] = false
	for _, file := range v.Index.Resources {
		if file.Script != nil {
			texts[path.Join(below, file.Path)] = true
		}
	}
}

// nestedChange returns how a nested skill differs in one word, or "".
func nestedChange(d compare.Difference) string {
	switch {
	case d.Was.Skill == nil:
		return "added"
	case d.Is.Skill == nil:
		return "removed"
	case d.Was.Index.TreeDigest == d.Is.Index.TreeDigest:
		return ""
	}
	return "changed"
}

// fileChanges returns the files of a skill that differ, sorted by path. texts are as addTexts made them.
func fileChanges(ctx context.Context, d compare.Difference, texts map[string]bool) (changes []FileChange) {
	was, is := sumsOf(d.Was), sumsOf(d.Is)
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, file := range slices.Sorted(maps.Keys(all)) {
		script, isText := texts[file]
		change := FileChange{Path: file, Change: "changed", Script: script}
		switch before, after := was[file], is[file]; {
		case before == after:
			continue
		case before == "":
			change.Change = "added"
		case after == "":
			change.Change = "removed"
		}
		if isText {
			from, ok := textOf(ctx, d.Was, file)
			to, also := textOf(ctx, d.Is, file)
			if ok && also {
				change.Diff = string(diff.Diff("before/"+file, from, "after/"+file, to))
			}
		}
		changes = append(changes, change)
	}
	return changes
}

// sumsOf returns the digests of the files of a version, by path.
func sumsOf(v compare.Content) map[string]digest.Digest {
	sums := map[string]digest.Digest{}
	if v.Skill != nil {
		for _, f := range v.Index.Files {
			sums[f.Path] = f.Digest
		}
	}
	return sums
}

// textOf returns the content of a file for a diff, empty if the file does not exist. ok reports whether a
// diff can show the file.
func textOf(ctx context.Context, v compare.Content, path string) (data []byte, ok bool) {
	const longest = 256 << 10
	if v.Skill == nil {
		return nil, true
	}
	if r := v.Index.Resource(path); r == nil && path != v.Skill.File {
		return nil, true
	} else if r != nil && !r.Text {
		return nil, false
	}
	content, err := v.Skill.Read(ctx, path, longest)
	if err != nil {
		return nil, false
	}
	return content.Data, true
}
