package install

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// wholeOf widens an origin to the whole source if required skills must be found in it. It returns the part of
// the source with the requested skills.
func (r *Request) wholeOf(origin *Origin) (part string, err error) {
	if !r.WithRequirements {
		return "", nil
	}
	if kinds[origin.Kind].single() {
		return "", refuse("--all installs every skill of it",
			"--with-requirements is for sources that are fetched as a whole")
	}
	part = origin.Subdir
	origin.Path, origin.Subdir = ".", ""
	return part, nil
}

// inPart returns the candidates at and below a path, or all if it is empty.
func inPart(part string, all []candidate) []candidate {
	return slices.DeleteFunc(slices.Clone(all), func(c candidate) bool {
		return part != "" && !skills.InDir(part, c.path)
	})
}

// required returns the chosen skills and the skills of the same source that they require, directly or not,
// unless installed. A required skill that the source lacks is noted: the skill that requires it stays
// unavailable until then.
func (p *Plan) required(ctx context.Context, from *fetched, chosen []candidate) []candidate {
	all := from.candidates()
	asking := slices.Concat(p.present, chosen)
	for n := 0; n < len(asking); n++ {
		for _, name := range asking[n].skill.Frontmatter.Requires.Skills {
			known := func(c candidate) bool {
				return c.name == name || c.skill != nil && c.called(name)
			}
			if slices.ContainsFunc(asking, known) || p.i.lock.clash(name) != nil {
				continue
			}
			at := slices.IndexFunc(all, func(c candidate) bool { return c.skill != nil && known(c) })
			if at < 0 {
				p.Lacking++
				p.notef("%q requires the skill %q, which the source does not contain: "+
					"install it from where it is", clip(asking[n].path), clip(name))
				continue
			}
			if p.i.lock.from(from.origin, all[at].path) != nil {
				continue
			}
			c, err := p.nameFor(ctx, all[at], "", from, all, chosen)
			if err != nil {
				p.Refused = append(p.Refused, Refusal{Path: c.path, Reason: err.Error()})
				// Several skills may require it, and one refusal of it is enough.
				all[at].skill = nil
				continue
			}
			chosen, asking = append(chosen, c), append(asking, c)
		}
	}
	return chosen
}

// mentioned notes the skills of the source that the instructions of a chosen skill mention by name, and that
// are not installed with it: a set of skills often works only together.
func (p *Plan) mentioned(ctx context.Context, from *fetched, chosen []candidate) error {
	// A copy of a chosen skill is not missing.
	isChosen := func(c candidate) bool {
		return slices.ContainsFunc(chosen, func(o candidate) bool {
			return path.Base(o.path) == path.Base(c.path)
		})
	}
	var others []candidate
	for _, c := range from.candidates() {
		name := path.Base(c.path)
		isThere := p.i.lock.clash(name) != nil || p.i.lock.from(from.origin, c.path) != nil
		// A short name is a word of every text.
		if c.skill != nil && len(name) > 3 && !isChosen(c) && !isThere {
			others = append(others, c)
		}
	}
	if len(others) == 0 {
		return nil
	}
	var found []string
	for _, c := range chosen {
		content, err := c.skill.Read(ctx, c.skill.File, skills.MaxSkillFile)
		if err != nil {
			return fmt.Errorf("%s: %w", c.path, err)
		}
		for _, other := range others {
			name := path.Base(other.path)
			if mentions(string(content.Data), name) && !slices.Contains(found, name) {
				found = append(found, name)
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.Sort(found)
	p.notef("the instructions mention skills of the same source that are not installed: %s",
		listed(found, ""))
	return nil
}

// mentions reports whether a text names a skill: in code or bold type, as "the NAME skill", or by its file.
func mentions(text, name string) bool {
	for _, form := range []string{"`" + name + "`", "**" + name + "**", name + " skill", "skill " + name,
		"/" + name + "/SKILL.md", "`/" + name + "`", ":" + name + "`"} {
		if strings.Contains(text, form) {
			return true
		}
	}
	return false
}
