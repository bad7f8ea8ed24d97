package skills

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// requirementsHost finds the requirements of a skill that a host lacks: commands, variables, a platform. They
// come from the frontmatter, see [frontmatter.Requires]. Tools of other MCP servers cannot be checked here;
// they are up to the client. Fields that are nil or empty are not checked.
type requirementsHost struct {
	HasCommand, HasEnv func(name string) bool
	Platform           string // a GOOS
}

// maxMissing is the maximum number of reasons per skill.
const maxMissing = 20

// Missing returns the requirements of a skill that the host lacks, a phrase each. Names that no command and
// no variable can have are ignored: real skills also list sentences, which no host can satisfy.
func (h *requirementsHost) Missing(r *frontmatter.Requires) (missing []string) {
	add := func(format, what string) {
		if len(missing) < maxMissing {
			missing = append(missing, fmt.Sprintf(format, frontmatter.Clip(what, frontmatter.MaxName)))
		}
	}
	need := func(names []string, has func(string) bool, format string) {
		for _, name := range names {
			if has != nil && isName(name) && !has(name) {
				add(format, name)
			}
		}
	}
	need(r.Commands, h.HasCommand, "requires the command %q, which is not on PATH")
	for _, group := range r.AnyCommands {
		names := strings.Fields(group)
		// A name that is ignored satisfies its group.
		if h.HasCommand != nil && !slices.ContainsFunc(names, func(name string) bool {
			return !isName(name) || h.HasCommand(name)
		}) {
			add("requires one of the commands %q, none of which is on PATH", group)
		}
	}
	need(r.Env, h.HasEnv, "requires the environment variable %q, which is not set")
	if h.Platform != "" && len(r.Platforms) > 0 && !slices.ContainsFunc(r.Platforms, h.isPlatform) {
		add("requires the platform %q, which this is not", strings.Join(r.Platforms, " or "))
	}
	return missing
}

// platforms maps a GOOS to the words that skills use for it, in lower case.
var platforms = map[string][]string{
	"darwin":  {"darwin", "macos", "mac", "osx"},
	"windows": {"windows", "win32", "win"},
}

// isPlatform reports whether a word in a skill means the platform of the host, or any.
func (h *requirementsHost) isPlatform(word string) bool {
	word = strings.ToLower(word)
	return slices.Contains([]string{h.Platform, "any", "all", "*"}, word) ||
		slices.Contains(platforms[h.Platform], word)
}

// isName reports whether a text may be the name of a command or a variable.
func isName(name string) bool {
	odd := func(r rune) bool {
		return r <= ' ' || r >= 0x80 ||
			strings.ContainsRune("()[]{}<>,;:\"'`|&=*?!", r)
	}
	return name != "" && len(name) <= frontmatter.MaxName && !strings.ContainsFunc(name, odd)
}

// requiring is a skill among others: the names by which others refer to it, and the names of skills that it
// requires.
type requiring struct{ Names, Needs []string }

// lacking returns the skills that lack a required skill, by their index in all, with a phrase for each
// missing name. A skill that lacks one does not satisfy the requirements of others. The time is proportional
// to the number of names and needs.
func lacking(all []requiring) map[int][]string {
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
			// Only the first reason takes the names away, since later ones would count them down again.
			if lacking[i] == nil {
				for _, name := range names(i) {
					offered[name]--
					if offered[name] == 0 && requiring[name] != nil {
						lost = append(lost, name)
					}
				}
			}
			if len(lacking[i]) < maxMissing {
				lacking[i] = append(lacking[i], reason)
			}
		}
	}
	return lacking
}
