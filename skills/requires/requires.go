// Package requires finds the requirements of a skill that a host lacks: commands, variables, a platform. They
// come from the frontmatter, see [frontmatter.Requires]. Tools of other MCP servers cannot be checked here;
// they are up to the client.
package requires

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// Host describes a host. Fields that are nil or empty are not checked.
type Host struct {
	HasCommand, HasEnv func(name string) bool
	Platform           string // a GOOS
}

// MaxMissing is the maximum number of reasons per skill.
const MaxMissing = 20

// Missing returns the requirements of a skill that the host lacks, a phrase each. Names that no command and
// no variable can have are ignored: real skills also list sentences, which no host can satisfy.
func (h *Host) Missing(r *frontmatter.Requires) (missing []string) {
	add := func(format, what string) {
		if len(missing) < MaxMissing {
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
func (h *Host) isPlatform(word string) bool {
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
