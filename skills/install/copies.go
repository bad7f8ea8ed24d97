package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/pattern"
)

// rank orders the places of a source at which copies of a skill lie. Authors show the copy at the first one.
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

func compareRanks(a, b candidate) int { return rank(a.path) - rank(b.path) }

// translation is the name of a directory with texts in another language: ja-JP, zh_CN.
var translation = pattern.New(`^[a-z]{2}[-_]([A-Z]{2}|[A-Z][a-z]{3})$`)

// fullName returns the name of a candidate without regard to others: PLUGIN/NAME for a skill of a plugin, as
// clients have it, unless it is a whole plugin with its own name.
func (f *fetched) fullName(c candidate) string {
	name := f.name(c)
	if c.plugin == nil || !isName(c.plugin.Name) ||
		c.path == c.plugin.Dir && strings.EqualFold(name, c.plugin.Name) {
		return name
	}
	return c.plugin.Name + "/" + name
}

// inFull returns the candidates, and those that load have their full names.
func (f *fetched) inFull(all []candidate) []candidate {
	all = slices.Clone(all)
	for n := range all {
		if all[n].skill != nil {
			all[n].name = f.fullName(all[n])
		}
	}
	return all
}

// nameAmong returns a candidate with the name that distinct gives it among all.
func (f *fetched) nameAmong(ctx context.Context, c candidate, all []candidate) (candidate, error) {
	name := f.fullName(c)
	c.name = name
	// Another name than the one that --all gives the skill would install it a second time.
	all = f.inFull(all)
	group := slices.DeleteFunc(slices.Clone(all), func(o candidate) bool {
		return o.skill == nil || !strings.EqualFold(o.name, name)
	})
	chosen, _, err := f.separated(ctx, group)
	if err != nil {
		return c, err
	}
	at := slices.IndexFunc(chosen, func(o candidate) bool { return o.path == c.path })
	if at >= 0 {
		c.name = chosen[at].name
	}
	return c.besideGroup(all), nil
}

// besideGroup returns a candidate with another name if its own is the directory of others. A plugin keeps its
// directory.
func (c candidate) besideGroup(others []candidate) candidate {
	below := strings.ToLower(c.name) + "/"
	isGroup := func(o candidate) bool { return strings.HasPrefix(strings.ToLower(o.name), below) }
	if c.skill != nil && slices.ContainsFunc(others, isGroup) {
		c.name = c.grouped(others)
	}
	return c
}

// distinct gives each candidate a name of its own: PLUGIN/NAME for the skills of plugins. Of equal skills
// with one name, one is kept. Of different ones, the first by rank keeps the name, and the others get the
// name of their directory in front; but translations, backups and copies for single tools are left out, and
// so are versions of skills in plugins.
func (p *Plan) distinct(ctx context.Context, from *fetched, all []candidate) ([]candidate, error) {
	var kept, loadable []candidate
	for _, c := range from.inFull(all) {
		switch {
		case c.skill != nil:
			loadable = append(loadable, c)
		// A broken backup does not stop what it is a backup of.
		case c.isCopyOf(all):
			p.LeftOut = append(p.LeftOut, c.refusal())
		default:
			kept = append(kept, c)
		}
	}
	groups, inPlugins := byName(loadable)
	var left []copyOf
	for _, group := range groups {
		chosen, copies, err := from.installable(ctx, group, inPlugins[nameKey(group[0])])
		if err != nil {
			return nil, err
		}
		kept, left = append(kept, chosen...), append(left, copies...)
	}
	for n, c := range kept {
		kept[n] = c.besideGroup(kept)
	}
	kept = p.withoutPresent(from, kept, left)
	p.noteCopies(left)
	return kept, nil
}

// nameKey returns the name of a candidate as a key: names become directories, and file systems may ignore
// case.
func nameKey(c candidate) string { return strings.ToLower(c.name) }

// byName groups candidates that have their full names by these, in their order. inPlugins are the skills of
// plugins, by the keys of their names without the plugin.
func byName(all []candidate) (groups [][]candidate, inPlugins map[string][]candidate) {
	at := map[string]int{}
	inPlugins = map[string][]candidate{}
	for _, c := range all {
		key := nameKey(c)
		if c.plugin != nil {
			own := path.Base(key)
			inPlugins[own] = append(inPlugins[own], c)
		}
		n, known := at[key]
		if !known {
			n = len(groups)
			at[key], groups = n, append(groups, nil)
		}
		groups[n] = append(groups[n], c)
	}
	return groups, inPlugins
}

// installable returns the candidates to install among those with one name, and the others. inPlugins are the
// skills of plugins that have the name too.
func (f *fetched) installable(
	ctx context.Context, group, inPlugins []candidate,
) (chosen []candidate, left []copyOf, err error) {
	// A skill outside of the plugins with the name of one in a plugin may be a version of it.
	if group[0].plugin == nil && len(inPlugins) > 0 {
		left, group, err = f.copiesOf(ctx, inPlugins, group)
		if err != nil || len(group) == 0 {
			return nil, left, err
		}
	}
	chosen, copies, err := f.separated(ctx, group)
	return chosen, append(left, copies...), err
}

// withoutPresent returns the candidates that are not installed, and notes how many are. A skill is there if
// an equal copy is, under the name of the copy.
func (p *Plan) withoutPresent(from *fetched, all []candidate, left []copyOf) []candidate {
	present := map[string]bool{}
	for _, c := range left {
		present[c.taken] = present[c.taken] || c.equal && p.i.lock.from(from.origin, c.path) != nil
	}
	kept := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool {
		return c.skill != nil && (present[c.path] || p.i.lock.from(from.origin, c.path) != nil)
	})
	p.there = len(all) - len(kept)
	if p.there > 0 {
		p.notef("%d of its skills are installed already; see `skillsd update`", p.there)
	}
	return kept
}

// copyOf is a skill that is left out because another one with its name was taken.
type copyOf struct {
	path, taken string
	equal       bool // byte for byte
}

// noteCopies notes the skills that are left out because others were taken.
func (p *Plan) noteCopies(left []copyOf) {
	for _, equal := range []bool{true, false} {
		some := slices.DeleteFunc(slices.Clone(left), func(c copyOf) bool { return c.equal != equal })
		if len(some) == 0 {
			continue
		}
		what, many := "another version", "other versions"
		if equal {
			what, many = "an equal copy", "equal copies"
		}
		text, such := what+" of these skills is left out", ":"
		if len(some) > 1 {
			text, such = fmt.Sprintf("%d %s of these skills are left out", len(some), many), ", such as"
		}
		p.notef("%s%s %q; %q is taken", text, such, clip(some[0].path), clip(some[0].taken))
	}
}

// isCopyOf reports whether a candidate lies where copies do, and another one that loads has its name.
func (c *candidate) isCopyOf(all []candidate) bool {
	return rank(c.path) == copyRank && slices.ContainsFunc(all, func(o candidate) bool {
		return o.skill != nil && strings.EqualFold(path.Base(o.path), path.Base(c.path))
	})
}

// only returns the candidate that a name means among those that have it: the one in a plugin, or else the
// first by rank. Those that are neither equal to it nor copies for one tool are the others.
func (f *fetched) only(
	ctx context.Context, named []candidate,
) (one candidate, others []candidate, err error) {
	loadable := slices.DeleteFunc(slices.Clone(named), func(c candidate) bool { return c.skill == nil })
	inPlugin := slices.DeleteFunc(slices.Clone(loadable), func(c candidate) bool { return c.plugin == nil })
	switch {
	case len(inPlugin) > 0:
		loadable = inPlugin
	case len(loadable) == 0:
		return named[0], named[1:], nil
	}
	chosen, _, err := f.separated(ctx, loadable)
	if err != nil {
		return candidate{}, nil, err
	}
	return chosen[0], chosen[1:], nil
}

// copiesOf returns the candidates of a group that are copies or versions of skills in plugins, and the
// others: different ones at the place where authors show skills, if the plugins are elsewhere.
func (f *fetched) copiesOf(
	ctx context.Context, taken, group []candidate,
) (copies []copyOf, others []candidate, err error) {
	trees := map[digest.Digest]string{}
	for _, c := range taken {
		files, err := f.linked(ctx, c.skill)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", c.path, err)
		}
		trees[files.tree] = c.path
	}
	for _, c := range group {
		files, err := f.linked(ctx, c.skill)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", c.path, err)
		}
		equal, ok := trees[files.tree]
		of := cmp.Or(equal, taken[0].path)
		isAhead := !slices.ContainsFunc(taken, func(t candidate) bool { return rank(t.path) <= rank(c.path) })
		if !ok && isAhead {
			of, err = f.versionOf(ctx, taken, files)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", c.path, err)
			}
		}
		if of == "" {
			others = append(others, c)
			continue
		}
		copies = append(copies, copyOf{c.path, of, ok})
	}
	return copies, others, nil
}

// versionOf returns the path of the candidate that a skill with the same name is another version of, or "":
// the two have one description, or most lines of the smaller one.
func (f *fetched) versionOf(ctx context.Context, taken []candidate, c *contents) (string, error) {
	var all []surveyed
	for _, t := range taken {
		if t.skill.Frontmatter.Description == c.skill.Frontmatter.Description {
			return t.path, nil
		}
		files, err := f.linked(ctx, t.skill)
		if err != nil {
			return "", err
		}
		all = append(all, surveyed{t, files})
	}
	l := newLikeness(all)
	for _, t := range all {
		if err := l.addSkill(ctx, t.files); err != nil {
			return "", err
		}
	}
	found, err := l.search(c.files(), l.reader(ctx, c))
	if err != nil && !errors.Is(err, errTooMuch) {
		return "", err
	}
	for n, t := range all {
		if err != nil || l.ofSmaller(found, n) >= leastAlike {
			return t.path, nil
		}
	}
	return "", nil
}

// separated returns the candidates to install among those with one name, and the others, which are copies of
// these.
func (f *fetched) separated(
	ctx context.Context, named []candidate,
) (chosen []candidate, left []copyOf, err error) {
	if len(named) == 1 {
		return named, nil, nil
	}
	slices.SortStableFunc(named, compareRanks)
	seen := map[digest.Digest]string{}
	for _, c := range named {
		files, err := f.linked(ctx, c.skill)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", c.path, err)
		}
		equal, isEqual := seen[files.tree]
		if isEqual || len(chosen) > 0 && rank(c.path) == copyRank {
			left = append(left, copyOf{c.path, cmp.Or(equal, named[0].path), isEqual})
			continue
		}
		seen[files.tree] = c.path
		if len(chosen) > 0 {
			c.name = c.grouped(chosen)
		}
		chosen = append(chosen, c)
	}
	return chosen, left, nil
}

// grouped returns DIR/NAME for a candidate whose name others have: DIR is the closest directory above it that
// makes the name unique.
func (c *candidate) grouped(others []candidate) string {
	var dirs []string
	for dir := path.Dir(c.path); dir != "." && dir != "/"; dir = path.Dir(dir) {
		dirs = append(dirs, path.Base(dir))
	}
	// Most sources have a directory skills, so its name does not distinguish one skill from another.
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
		if !isName(dir) {
			dir = derived(dir)
		}
		name := dir + "/" + path.Base(c.name)
		isUsed := slices.ContainsFunc(others, func(o candidate) bool { return clashes(o.name, name) })
		if !isUsed {
			return name
		}
	}
	return c.name
}
