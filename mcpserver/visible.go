package mcpserver

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// skillFile is the name of every skill's file in the Skills extension.
const skillFile = "SKILL.md"

// scope is the principal and the profile of a request. They alone decide which part of the catalogue is
// visible; earlier calls never do.
type scope struct {
	principal policy.Principal
	profile   string // of the request; empty restricts nothing
}

// scopeOf returns the scope of a request without a profile of its own.
func (s *Server) scopeOf(ctx context.Context) scope {
	principal, _ := principalOf(ctx)
	return scope{principal: principal}
}

// clientOf returns the properties of the client of a request. On 2026-07-28 each request names its client.
func clientOf(ctx context.Context) client { return clients[wire.ClientOf(ctx).Info.Name] }

// maxVisible is the maximum number of cached parts of a snapshot.
const maxVisible = 64

// visibleCache caches the part of one snapshot that each scope sees. It is safe for concurrent use.
type visibleCache struct {
	mu    sync.Mutex
	of    *skills.Snapshot // the registry's snapshot of the parts
	parts map[visibleKey]*visible
}

// visibleKey has everything that visible depends on.
type visibleKey struct {
	rules    int // how often the rules were replaced
	snapshot *skills.Snapshot
	offers   offers
}

// offers are the tools that a scope is offered; reads includes the resource methods.
type offers struct{ loads, reads, searches, runs bool }

func (s *Server) offersOf(sc scope) offers {
	to := func(tool string) bool {
		return s.cfg.Sessions.Policy().OffersTo(tool, sc.principal, []string{sc.profile})
	}
	return offers{loads: to(ToolLoad), reads: to(ToolRead), searches: to(ToolSearch), runs: to(ToolRun)}
}

// visible is the part of one snapshot that a scope sees. Lists are sliced from it, so that a page costs only
// its own entries. Each field is computed at its first use. It is safe for concurrent use.
type visible struct {
	visibleKey
	entries func() []listedSkill // in byte order of URI
	prompts func() []prompt      // in byte order of name

	catalogue func() *catalogue
	toolLists [4]func() []mcp.Tool // by the properties of a client that the descriptions depend on, see tools
}

// visible returns the part of the registry's current snapshot that a scope sees.
func (s *Server) visible(sc scope) *visible {
	return s.part(s.cfg.Registry.Snapshot(), visibleKey{
		rules:    s.cfg.Sessions.Replacements(),
		snapshot: s.cfg.Sessions.Visible(sc.principal, sc.profile),
		offers:   s.offersOf(sc),
	})
}

// part returns the part of a snapshot for a key.
func (s *Server) part(all *skills.Snapshot, key visibleKey) *visible {
	// Parts of an older snapshot are dropped, because they keep all of its skills in memory.
	c := &s.seen
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of != all || len(c.parts) >= maxVisible {
		c.of, c.parts = all, map[visibleKey]*visible{}
	}
	v := c.parts[key]
	if v == nil {
		v = &visible{
			visibleKey: key,
			entries: sync.OnceValue(func() []listedSkill {
				listed := make([]listedSkill, len(key.snapshot.Skills))
				for i, sk := range key.snapshot.Skills {
					listed[i] = listedSkill{skill: sk, uri: sk.URI(sk.File), made: new(atomic.Pointer[entry])}
				}
				slices.SortFunc(listed, func(a, b listedSkill) int { return strings.Compare(a.uri, b.uri) })
				return listed
			}),
			prompts: sync.OnceValue(func() []prompt { return promptsOf(key.snapshot.Skills) }),
		}
		v.catalogue = sync.OnceValue(func() *catalogue { return s.catalog(key) })
		for i := range v.toolLists {
			v.toolLists[i] = sync.OnceValue(func() []mcp.Tool {
				return s.describe(key.offers, v.catalogue(), client{cuts: i&1 != 0, names: i&2 != 0})
			})
		}
		c.parts[key] = v
	}
	return v
}

// tools returns the descriptions of the tools for a client.
func (v *visible) tools(to client) []mcp.Tool {
	i := 0
	if to.cuts {
		i |= 1
	}
	if to.names {
		i |= 2
	}
	return v.toolLists[i]()
}

// listedSkill is a skill with its entry for the Skills extension, which is made at its first use.
type listedSkill struct {
	skill *skills.Skill
	uri   string // of its SKILL.md
	made  *atomic.Pointer[entry]
}

func uriOf(l listedSkill) string { return l.uri }

// at returns the skill whose SKILL.md a URI names, in any spelling, or nil.
func (v *visible) at(uri string) *listedSkill {
	sk, file := locate(v.snapshot, uri)
	if sk == nil || file != sk.File || strings.HasSuffix(uri, "/") {
		return nil
	}
	all := v.entries()
	i, found := position(all, sk.URI(sk.File), uriOf)
	if !found {
		return nil
	}
	return &all[i]
}

// locate returns the skill that contains a URI and the rest of the path, empty for the skill's own directory;
// nil without such a skill. Unlike [skills.Snapshot.Resolve] it does not search for similar names, which
// takes time proportional to the number of skills.
func locate(snapshot *skills.Snapshot, uri string) (sk *skills.Skill, file string) {
	path, err := skills.ParseURI(uri)
	for at := path; err == nil && at != ""; at = at[:max(strings.LastIndexByte(at, '/'), 0)] {
		if sk := snapshot.Skill(at); sk != nil {
			return sk, strings.TrimPrefix(path[len(at):], "/")
		}
	}
	return nil, ""
}
