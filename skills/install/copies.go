package install

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/pattern"
)

// rank orders the places of a source at which copies of a skill lie: the first that has one is what its
// authors show.
func rank(at string) int {
	segments := strings.Split(at, "/")
	isCopy := slices.ContainsFunc(segments[:len(segments)-1], func(s string) bool {
		lower := strings.ToLower(s)
		return strings.HasPrefix(s, ".") || translation().MatchString(s) ||
			strings.Contains(lower, "backup") ||
			slices.Contains([]string{"archive", "archived", "deprecated", "old"}, lower)
	})
	switch {
	case isCopy:
		return copyRank
	case segments[0] == "skills":
		return 0
	case segments[0] == "plugins" || slices.Contains(segments, "skills"):
		return 1
	}
	return 2
}

const copyRank = 3

// translation is the name of a directory with texts in another language: ja-JP, zh_CN.
var translation = pattern.New(`^[a-z]{2}[-_]([A-Z]{2}|[A-Z][a-z]{3})$`)

// distinct gives each candidate a name of its own: PLUGIN/NAME for the skills of plugins. Of equal skills
// with one name, one is kept. Of different ones, the first by rank keeps the name, and the others get the
// name of their directory in front; but translations, backups and copies for single tools are left out beside
// it.
func (p *Plan) distinct(ctx context.Context, from *fetched, all []candidate) ([]candidate, error) {
	byName, order := map[string][]candidate{}, []string{}
	inPlugins := map[string]bool{} // names of skills in plugins, without the plugin
	var kept []candidate
	present := 0
	for _, c := range all {
		if c.skill == nil && c.isCopyOf(all) {
			// A broken backup does not stop what it is a backup of.
			p.LeftOut = append(p.LeftOut, c.refusal())
			continue
		}
		if c.skill == nil {
			kept = append(kept, c)
			continue
		}
		if e := p.i.lock.from(from.origin, c.path); e != nil {
			present++
			continue
		}
		name, err := from.name(c)
		if err != nil {
			c.skill, c.err = nil, err.Error()
			kept = append(kept, c)
			continue
		}
		c.name = name
		if c.plugin != nil && isName(c.plugin.Name) {
			c.name = c.plugin.Name + "/" + name
		}
		key := strings.ToLower(c.name)
		if c.name != name {
			inPlugins[strings.ToLower(name)] = true
		}
		if byName[key] == nil {
			order = append(order, key)
		}
		byName[key] = append(byName[key], c)
	}
	equal, copies := 0, []string{}
	for _, key := range order {
		// A skill outside of the plugins that has the name of one in a plugin is a version of it for another
		// tool.
		if group := byName[key]; !strings.Contains(key, "/") && inPlugins[key] {
			for _, c := range group {
				copies = append(copies, c.path)
			}
			continue
		}
		chosen, same, left, err := from.separated(ctx, byName[key])
		if err != nil {
			return nil, err
		}
		kept, equal, copies = append(kept, chosen...), equal+same, append(copies, left...)
	}
	// A plugin and a skill of one name would be one directory. The plugin keeps it.
	for n, c := range kept {
		below := strings.ToLower(c.name) + "/"
		isGroup := func(o candidate) bool { return strings.HasPrefix(strings.ToLower(o.name), below) }
		if c.skill != nil && slices.ContainsFunc(kept, isGroup) {
			kept[n].name = c.grouped(kept)
		}
	}
	if present > 0 {
		p.notef("%d of its skills are installed already; see `skillsd update`", present)
	}
	if equal > 0 {
		p.notef("%d equal copies of these skills are left out", equal)
	}
	if len(copies) > 0 {
		p.notef("%d other versions of these skills are left out: translations, backups or copies for one "+
			"tool, such as %s", len(copies), clip(copies[0]))
	}
	return kept, nil
}

// isCopyOf reports whether a candidate lies where copies do, and another one that loads has its name.
func (c *candidate) isCopyOf(all []candidate) bool {
	return rank(c.path) == copyRank && slices.ContainsFunc(all, func(o candidate) bool {
		return o.skill != nil && strings.EqualFold(path.Base(o.path), path.Base(c.path))
	})
}

// only returns the candidate that a name means among those that have it: the one in a plugin, or else the
// first by rank, if the others are equal to it or copies for one tool. It returns false if several are left.
func (f *fetched) only(ctx context.Context, named []candidate) (candidate, bool, error) {
	loadable := slices.DeleteFunc(slices.Clone(named), func(c candidate) bool { return c.skill == nil })
	inPlugin := slices.DeleteFunc(slices.Clone(loadable), func(c candidate) bool { return c.plugin == nil })
	switch {
	case len(inPlugin) > 0:
		loadable = inPlugin
	case len(loadable) == 0:
		return named[0], len(named) == 1, nil
	}
	chosen, _, _, err := f.separated(ctx, loadable)
	if err != nil {
		return candidate{}, false, err
	}
	return chosen[0], len(chosen) == 1, nil
}

// separated returns the candidates to install among those with one name, how many others are equal to one of
// them, and the paths of the others.
func (f *fetched) separated(
	ctx context.Context, named []candidate,
) (chosen []candidate, equal int, left []string, err error) {
	if len(named) == 1 {
		return named, 0, nil, nil
	}
	slices.SortStableFunc(named, func(a, b candidate) int { return rank(a.path) - rank(b.path) })
	seen := map[digest.Digest]bool{}
	for _, c := range named {
		files, err := f.linked(ctx, c.skill)
		if err != nil {
			return nil, 0, nil, fmt.Errorf("%s: %w", c.path, err)
		}
		switch {
		case seen[files.tree]:
			equal++
			continue
		case len(chosen) > 0 && rank(c.path) == copyRank:
			left = append(left, c.path)
			continue
		}
		seen[files.tree] = true
		if len(chosen) > 0 {
			c.name = c.grouped(chosen)
		}
		chosen = append(chosen, c)
	}
	return chosen, equal, left, nil
}

// grouped returns DIR/NAME for a candidate whose name others have: DIR is the closest directory above it that
// makes the name unique. A directory skills is taken last, since it tells nothing.
func (c *candidate) grouped(others []candidate) string {
	var dirs []string
	for dir := path.Dir(c.path); dir != "." && dir != "/"; dir = path.Dir(dir) {
		dirs = append(dirs, path.Base(dir))
	}
	slices.SortStableFunc(dirs, func(a, b string) int {
		switch {
		case (a == "skills") == (b == "skills"):
			return 0
		case a == "skills":
			return 1
		}
		return -1
	})
	for _, dir := range dirs {
		name := dir + "/" + path.Base(c.name)
		isUsed := slices.ContainsFunc(others, func(o candidate) bool { return clashes(o.name, name) })
		if isName(dir) && !isUsed {
			return name
		}
	}
	return c.name
}
