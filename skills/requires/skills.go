package requires

import (
	"fmt"
	"slices"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// Skill is a skill among others: the names under which others know it, and the names of those it requires.
type Skill struct{ Names, Needs []string }

// Lacking returns the skills that lack one that they require, by their places in all, with a phrase for each
// that is lacking. A skill that lacks one does not count for the skills that require it. The time is
// proportional to the names and needs.
func Lacking(all []Skill) map[int][]string {
	offered, requiring := map[string]int{}, map[string][]int{}
	names := func(i int) []string { return slices.Compact(slices.Sorted(slices.Values(all[i].Names))) }
	for i := range all {
		for _, name := range names(i) {
			offered[name]++
		}
		for _, name := range all[i].Needs {
			requiring[name] = append(requiring[name], i)
		}
	}
	var lost []string // names that are required and that nobody has
	for name := range requiring {
		if offered[name] == 0 {
			lost = append(lost, name)
		}
	}
	slices.Sort(lost)
	lacking := map[int][]string{}
	for ; len(lost) > 0; lost = lost[1:] {
		reason := fmt.Sprintf("requires the skill %q, which is not served",
			frontmatter.Clip(lost[0], frontmatter.MaxName))
		for _, i := range slices.Compact(requiring[lost[0]]) {
			if lacking[i] == nil {
				for _, name := range names(i) {
					offered[name]--
					if offered[name] == 0 && requiring[name] != nil {
						lost = append(lost, name)
					}
				}
			}
			if len(lacking[i]) < MaxMissing {
				lacking[i] = append(lacking[i], reason)
			}
		}
	}
	return lacking
}
