package install

import (
	"path"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// wholeOf changes an origin to the whole of its source if the skills that others require are to be found
// there, and returns the part in which the request looks for its own.
func (r *Request) wholeOf(origin *Origin) (part string, err error) {
	if !r.WithRequirements {
		return "", nil
	}
	if origin.Kind == KindIndex || origin.Kind == KindMCP {
		return "", refuse("--all installs every skill of it",
			"--with-requirements is for sources that are fetched as a whole")
	}
	part = origin.Subdir
	origin.Path, origin.Subdir = ".", ""
	return part, nil
}

// inPart returns the candidates at a path and below it; of an empty path all.
func inPart(part string, all []candidate) []candidate {
	return slices.DeleteFunc(slices.Clone(all), func(c candidate) bool {
		return part != "" && c.path != part && !strings.HasPrefix(c.path, part+"/")
	})
}

// required returns the skills that were chosen with those of the same source that they require, directly or
// not, and that are not installed. What the source does not have either is noted: the skill then waits for
// it, unavailable.
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
					", which the source does not have")
				continue
			}
			c, err := all[at], error(nil)
			c.name, err = from.name(c)
			if err == nil {
				err = p.i.free(c, from, chosen)
			}
			if err != nil {
				p.Refused = append(p.Refused, Refusal{Path: c.path, Reason: err.Error()})
				all[at].skill = nil // it is refused once
				continue
			}
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// called reports whether a skill is known under a name: that of its directory, or its own.
func called(at string, sk *skills.Skill, name string) bool {
	return path.Base(at) == name || sk.Frontmatter.Name == name
}
