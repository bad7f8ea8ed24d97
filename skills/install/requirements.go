package install

import (
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
		return part != "" && c.path != part && !strings.HasPrefix(c.path, part+"/")
	})
}

// required returns the chosen skills and the skills of the same source that they require, directly or not,
// unless installed. A required skill that the source lacks is noted: the skill that requires it stays
// unavailable until then.
func (p *Plan) required(from *fetched, chosen []candidate) []candidate {
	all := from.candidates()
	for n := 0; n < len(chosen); n++ {
		for _, name := range chosen[n].skill.Frontmatter.Requires.Skills {
			known := func(c candidate) bool {
				return c.name == name || c.skill != nil && called(c.path, c.skill, name)
			}
			if slices.ContainsFunc(chosen, known) || p.i.lock.clash(name) != nil {
				continue
			}
			at := slices.IndexFunc(all, func(c candidate) bool { return c.skill != nil && known(c) })
			if at < 0 {
				p.Notes = append(p.Notes, chosen[n].name+" requires the skill "+clip(name)+
					", which the source does not contain")
				continue
			}
			c, err := p.nameFor(all[at], "", from, chosen)
			if err != nil {
				p.Refused = append(p.Refused, Refusal{Path: c.path, Reason: err.Error()})
				all[at].skill = nil // refuse it only once
				continue
			}
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// called reports whether a name is the name of the skill or of its directory.
func called(at string, sk *skills.Skill, name string) bool {
	return path.Base(at) == name || sk.Frontmatter.Name == name
}
