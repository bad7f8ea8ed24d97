package main

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
)

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
	row.State, row.After, row.Left = "changed", newVersionRow(c.After), diagnosticRows(c.Left)
	var paths []string
	for _, snapshot := range []*skills.Snapshot{plan.Old, plan.New} {
		for _, sk := range snapshot.Skills {
			if sk.Path == c.Name || strings.HasPrefix(sk.Path, c.Name+"/") {
				paths = append(paths, sk.Path)
			}
		}
	}
	slices.Sort(paths)
	// What is a script or an instruction of a nested skill is only a file of the one that is updated.
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
				changes.Signals = append(changes.Signals, diagnosticRows([]skills.Diagnostic{d})...)
			}
		}
	}
	missing := func(in, from []string) []string {
		return slices.DeleteFunc(slices.Clone(from), func(tool string) bool { return slices.Contains(in, tool) })
	}
	changes.ToolsAdded, changes.ToolsGone = missing(oldTools, newTools), missing(newTools, oldTools)
	return changes
}
