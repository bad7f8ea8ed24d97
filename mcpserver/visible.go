package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// skillFile is the name the Skills extension gives every skill's file.
const skillFile = "SKILL.md"

// scope is who asks and how they narrow themselves: it decides which part of the catalogue they see.
// Earlier calls never do.
type scope struct {
	principal policy.Principal
	profile   string // of the request; empty narrows nothing
}

// scopeOf returns the scope of a request without one of its own.
func (s *Server) scopeOf(ctx context.Context) scope {
	principal, _ := principalOf(ctx)
	return scope{principal: principal}
}

// clientOf returns what is known of the client of a request. In the revision 2026-07-28 each request names
// it.
func clientOf(ctx context.Context) client { return clients[wire.ClientOf(ctx).Info.Name] }

// maxVisible bounds the parts of a snapshot that are kept.
const maxVisible = 64

// visibleCache holds what each scope sees of one snapshot. It is safe for concurrent use.
type visibleCache struct {
	mu    sync.Mutex
	of    *skills.Snapshot // the registry's, which the parts are of
	parts map[visibleKey]*visible
}

// visibleKey is all that visible is made of.
type visibleKey struct {
	rules    int // how often rules were replaced before
	snapshot *skills.Snapshot
	offers   offers
}

// offers is what a scope is offered besides the part of the catalogue that it sees: each tool, and reads, the
// methods of resources with read_skill_resource.
type offers struct{ loads, reads, searches, runs bool }

func (s *Server) offersOf(sc scope) offers {
	to := func(tool string) bool {
		return s.cfg.Sessions.Policy().OffersTo(tool, sc.principal, []string{sc.profile})
	}
	return offers{loads: to(ToolLoad), reads: to(ToolRead), searches: to(ToolSearch), runs: to(ToolRun)}
}

// visible is what a scope sees of one snapshot. The lists are cut from it and the tools are described by it,
// so that a page costs only its own entries. Each part is computed at its first use. It is safe for
// concurrent use.
type visible struct {
	visibleKey
	entries func() []listedSkill // in byte order of URI
	prompts func() []prompt      // in byte order of name

	catalogue func() *catalogue
	toolLists [4]func() []mcp.Tool // by what of a client the descriptions depend on, see tools
}

// visible returns what a scope sees of the registry's current snapshot.
func (s *Server) visible(sc scope) *visible {
	return s.part(s.cfg.Registry.Snapshot(), visibleKey{
		rules:    s.cfg.Sessions.Replacements(),
		snapshot: s.cfg.Sessions.Visible(sc.principal, sc.profile),
		offers:   s.offersOf(sc),
	})
}

// part returns what a key of a snapshot stands for.
func (s *Server) part(all *skills.Snapshot, key visibleKey) *visible {
	// Parts of an older snapshot are dropped, because they hold all of its skills in memory.
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

// tools returns the tools as they are described to a client.
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

// listedSkill is a skill with its entry of the Skills extension, which is made when it is first asked for.
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

// locate returns the skill that a URI lies in and the rest of its path, empty for the skill's own
// directory; nil if it lies in none. Unlike [skills.Snapshot.Resolve] it looks for no similar
// name, which costs as much as there are skills.
func locate(snapshot *skills.Snapshot, uri string) (sk *skills.Skill, file string) {
	path, err := skills.ParseURI(uri)
	for at := path; err == nil && at != ""; at = at[:max(strings.LastIndexByte(at, '/'), 0)] {
		if sk := snapshot.Skill(at); sk != nil {
			return sk, strings.TrimPrefix(path[len(at):], "/")
		}
	}
	return nil, ""
}

// entry is what the Skills extension says of one skill.
type entry struct {
	skill    *skills.Skill
	json     json.RawMessage
	unlisted string // why skills/list leaves it out; empty if it does not
}

// skillEntry is the extension's Skill.
type skillEntry struct {
	URI         string          `json:"uri"`
	Frontmatter json.RawMessage `json:"frontmatter"`
	Resources   []skillResource `json:"resources"`
}

// skillResource is the extension's SkillResource.
type skillResource struct {
	URI    string        `json:"uri"`
	Digest digest.Digest `json:"digest"`
	Size   int64         `json:"size"`
}

// entry returns the skill's entry, which is made once. Making it reads the skill's files.
//
// Errors: the errors of [skills.Registry.Index].
func (s *Server) entry(ctx context.Context, b *listedSkill) (*entry, error) {
	if made := b.made.Load(); made != nil {
		return made, nil
	}
	sk, index, err := s.cfg.Registry.Index(ctx, b.skill)
	if err != nil {
		return nil, err
	}
	shown := skillEntry{URI: b.uri, Frontmatter: sk.Frontmatter.JSON, Resources: []skillResource{}}
	snapshot := s.cfg.Registry.Snapshot()
	nested := func(by *skills.Skill) bool { return by.Path != sk.Path }
	for _, file := range index.Files {
		// The files of a skill that is nested in this one and hidden from models cannot be read by all.
		if !slices.ContainsFunc(snapshot.HiddenBy(sk, file.Path), nested) {
			shown.Resources = append(shown.Resources,
				skillResource{URI: sk.URI(file.Path), Digest: file.Digest, Size: file.Size})
		}
	}
	raw, err := json.Marshal(shown)
	if err != nil {
		return nil, fmt.Errorf("marshal the entry of %s: %w", b.skill.Path, err)
	}
	made := &entry{skill: sk, json: raw, unlisted: unlisted(sk)}
	if made.unlisted == "" && !index.Publishable {
		made.unlisted = reason(index.Diagnostics)
	}
	b.made.Store(made)
	return made, nil
}

// unlisted says why skills/list leaves a skill out, as far as its SKILL.md decides it; empty if nothing in it
// does.
func unlisted(sk *skills.Skill) string {
	switch {
	case sk.Hidden():
		return "disable-model-invocation is set"
	case sk.File != skillFile:
		return "its file is not named " + skillFile
	case !sk.Form.Publishable:
		return reason(sk.Diagnostics)
	}
	return ""
}

func reason(diagnostics []skills.Diagnostic) string {
	for _, d := range diagnostics {
		if d.Code == skills.CodeNotPublishable {
			return d.Detail
		}
	}
	return "the Skills extension does not allow it"
}
