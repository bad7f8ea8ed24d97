package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/install"
)

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
func (r *updateRow) compare(ctx context.Context, before, after *skills.Skill, nested map[string]*pair) error {
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
	executable, instructions := marked(r.Name, nested)
	add := func(path, change string) {
		row := fileChange{Path: path, Change: change}
		resource := is.index.Resource(path)
		if resource == nil {
			resource = was.index.Resource(path)
		}
		row.Script = resource != nil && resource.Script != nil || executable[path]
		if row.Script || resource == nil || instructions[path] {
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
	r.ToolsAdded, r.ToolsGone, r.Signals = compareFacts(was, is)
	for _, at := range slices.Sorted(maps.Keys(nested)) {
		if row := nested[at].row(at); row != nil {
			r.Nested = append(r.Nested, *row)
		}
	}
	return nil
}

// compareFacts finds what a diff of files does not make plain: tools and signals that are new.
func compareFacts(was, is version) (toolsAdded, toolsGone []string, signals []diagnosticRow) {
	var oldTools, newTools []string
	known := map[string]bool{}
	key := func(d skills.Diagnostic) string { return string(d.Code) + "\x00" + d.Path + "\x00" + d.Detail }
	if was.sk != nil {
		oldTools = was.sk.Frontmatter.AllowedTools
		for _, d := range slices.Concat(was.sk.Diagnostics, was.index.Diagnostics) {
			known[key(d)] = true
		}
	}
	if is.sk != nil {
		newTools = is.sk.Frontmatter.AllowedTools
	}
	missing := func(in, from []string) (found []string) {
		for _, tool := range from {
			if !slices.Contains(in, tool) {
				found = append(found, tool)
			}
		}
		return found
	}
	toolsAdded, toolsGone = missing(oldTools, newTools), missing(newTools, oldTools)
	if is.sk != nil {
		for _, d := range slices.Concat(is.sk.Diagnostics, is.index.Diagnostics) {
			if !known[key(d)] {
				signals = append(signals, diagnosticRows([]skills.Diagnostic{d})...)
			}
		}
	}
	return toolsAdded, toolsGone, signals
}

// pair is a nested skill before and after an update.
type pair struct{ was, is version }

// nestedPairs are the skills that lie in those that change, by the name of that and their path.
func nestedPairs(ctx context.Context, updates *install.Updates) (map[string]map[string]*pair, error) {
	found := map[string]map[string]*pair{}
	for _, snapshot := range []*skills.Snapshot{updates.Old, updates.New} {
		for name, all := range nestedSkills(snapshot) {
			if found[name] == nil {
				found[name] = map[string]*pair{}
			}
			for _, sk := range all {
				v, err := versionOf(ctx, sk)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", sk.Path, err)
				}
				if found[name][sk.Path] == nil {
					none, _ := versionOf(ctx, nil)
					found[name][sk.Path] = &pair{none, none}
				}
				if snapshot == updates.Old {
					found[name][sk.Path].was = v
				} else {
					found[name][sk.Path].is = v
				}
			}
		}
	}
	return found, nil
}

// marked are the files of a skill that are scripts and instructions of those nested in it, before or
// after.
func marked(name string, nested map[string]*pair) (executable, instructions map[string]bool) {
	executable, instructions = map[string]bool{}, map[string]bool{}
	for at, both := range nested {
		dir := strings.TrimPrefix(at, name+"/") + "/"
		for _, v := range []version{both.was, both.is} {
			if v.sk == nil {
				continue
			}
			instructions[dir+v.sk.File] = true
			for _, resource := range v.index.Resources {
				if resource.Script != nil {
					executable[dir+resource.Path] = true
				}
			}
		}
	}
	return executable, instructions
}

// row is what becomes of a nested skill, nil when it is the same.
func (p *pair) row(at string) *nestedRow {
	row := &nestedRow{Path: at, Change: "changed"}
	switch {
	case p.was.sk == nil:
		row.Change = "added"
	case p.is.sk == nil:
		row.Change = "removed"
	case p.was.index.TreeDigest == p.is.index.TreeDigest:
		return nil
	}
	row.ToolsAdded, row.ToolsGone, row.Signals = compareFacts(p.was, p.is)
	return row
}
