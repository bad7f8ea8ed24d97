package requires

import (
	"fmt"
	"slices"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// Skill is a skill among others: the names by which others refer to it, and the names of skills that it
// requires.
type Skill struct{ Names, Needs []string }

// Lacking returns the skills that lack a required skill, by their index in all, with a phrase for each
// missing name. A skill that lacks one does not satisfy the requirements of others. The time is proportional
// to the number of names and needs.
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
	var lost []string // required names without a skill
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
