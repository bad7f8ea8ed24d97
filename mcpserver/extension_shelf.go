package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// skillFile is the name the Skills extension gives every skill's file.
const skillFile = "SKILL.md"

// scope is who asks and how they narrow themselves: what decides which part of the catalogue they see.
// Earlier calls never do.
type scope struct {
	principal policy.Principal
	profile   string // of the request; empty narrows nothing
}

// scopeOf is the scope of a request without one of its own.
func (s *Server) scopeOf(ctx context.Context) scope {
	principal, _ := principalOf(ctx)
	return scope{principal: principal}
}

// scoped is the scope of a request with _meta.
func (s *Server) scoped(ctx context.Context, meta map[string]any) (scope, error) {
	sc := s.scopeOf(ctx)
	var err error
	sc.profile, err = s.profileOf(meta)
	return sc, err
}

// maxShelves bounds the shelves that are kept beside that of the whole catalogue.
const maxShelves = 64

// shelves holds the shelf of each scope. It is safe for concurrent use.
type shelves struct {
	whole atomic.Pointer[shelf] // that of a scope which narrows nothing

	mu   sync.Mutex
	of   *skills.Snapshot // the one that the parts are of
	part map[shelfKey]*shelf
}

// shelfKey is what a shelf is made of.
type shelfKey struct {
	snapshot *skills.Snapshot
	runs     bool
}

// shelf holds what lists are cut from and tools say of one snapshot, so that a page costs what is on
// it. Each is computed when it is first asked for. It is safe for concurrent use.
type shelf struct {
	snapshot *skills.Snapshot
	runs     bool                      // run_skill_script is offered
	books    func() []book             // in byte order of URI
	groups   func() [][]*skills.Skill  // see groups
	prompts  func() []prompt           // in byte order of name
	byPrompt func() map[string]*prompt // by name
	view     func() *view
}

// shelf returns that of what a scope sees of the registry's current snapshot.
func (s *Server) shelf(sc scope) *shelf {
	snapshot, all := s.cfg.Sessions.Visible(sc.principal, sc.profile), s.cfg.Registry.Snapshot()
	runs := s.cfg.Policy.OffersTo(ToolRun, sc.principal, []string{sc.profile})
	whole := snapshot == all && runs == s.cfg.Policy.Offers(ToolRun)
	if current := s.shelves.whole.Load(); whole && current != nil && current.snapshot == snapshot {
		return current
	}
	fresh := s.newShelf(snapshot, runs)
	if whole {
		s.shelves.whole.Store(fresh)
		return fresh
	}
	return s.shelves.partOf(all, fresh)
}

// partOf returns the shelf that is kept in the place of one just made, which it keeps if there is none.
// Those of another snapshot than all are kept no longer.
func (p *shelves) partOf(all *skills.Snapshot, fresh *shelf) *shelf {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := shelfKey{fresh.snapshot, fresh.runs}
	if p.of != all {
		p.of, p.part = all, nil
	}
	if kept := p.part[key]; kept != nil {
		return kept
	}
	if p.part == nil || len(p.part) >= maxShelves {
		p.part = map[shelfKey]*shelf{}
	}
	p.part[key] = fresh
	return fresh
}

func (s *Server) newShelf(snapshot *skills.Snapshot, runs bool) *shelf {
	sh := &shelf{snapshot: snapshot, runs: runs}
	sh.view = sync.OnceValue(func() *view { return s.describe(sh) })
	sh.books = sync.OnceValue(func() []book { return booksOf(snapshot.Skills) })
	sh.groups = sync.OnceValue(func() [][]*skills.Skill { return groups(snapshot.Skills) })
	sh.prompts = sync.OnceValue(func() []prompt { return promptsOf(snapshot.Skills) })
	sh.byPrompt = sync.OnceValue(func() map[string]*prompt {
		all := sh.prompts()
		named := make(map[string]*prompt, len(all))
		for i := range all {
			named[all[i].name] = &all[i]
		}
		return named
	})
	return sh
}

// book is a skill with its entry of the Skills extension, which is made when it is first asked for.
type book struct {
	skill *skills.Skill
	uri   string // of its SKILL.md
	made  *atomic.Pointer[entry]
}

func booksOf(all []*skills.Skill) []book {
	books, made := make([]book, len(all)), make([]atomic.Pointer[entry], len(all))
	for i, sk := range all {
		books[i] = book{skill: sk, uri: sk.URI(sk.File), made: &made[i]}
	}
	slices.SortFunc(books, func(a, b book) int { return strings.Compare(a.uri, b.uri) })
	return books
}

// book returns the skill whose SKILL.md a URI names, in any spelling, or nil.
func (sh *shelf) book(uri string) *book {
	sk, file := locate(sh.snapshot, uri)
	if sk == nil || file != sk.File || strings.HasSuffix(uri, "/") {
		return nil
	}
	books := sh.books()
	at, found := slices.BinarySearchFunc(books, sk.URI(sk.File), func(b book, uri string) int { return strings.Compare(b.uri, uri) })
	if !found {
		return nil
	}
	return &books[at]
}

// locate returns the skill that a URI lies in and the rest of its path, empty for the skill's own
// directory; nil when it lies in none. Unlike [skills.Snapshot.Resolve] it looks for no similar
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
	json     json.RawMessage
	unlisted string // why skills/list leaves it out, empty when it does not
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
// Errors: those of [skills.Registry.Index].
func (s *Server) entry(ctx context.Context, b *book) (*entry, error) {
	if made := b.made.Load(); made != nil {
		return made, nil
	}
	sk, index, err := s.indexOf(ctx, b.skill)
	if err != nil {
		return nil, err
	}
	shown := skillEntry{URI: b.uri, Frontmatter: sk.Frontmatter.JSON, Resources: make([]skillResource, len(index.Files))}
	for i := range index.Files {
		file := &index.Files[i]
		shown.Resources[i] = skillResource{URI: sk.URI(file.Path), Digest: file.Digest, Size: file.Size}
	}
	raw, err := json.Marshal(shown)
	if err != nil {
		return nil, fmt.Errorf("marshal the entry of %s: %w", b.skill.Path, err)
	}
	made := &entry{json: raw, unlisted: unlisted(sk)}
	if made.unlisted == "" && !index.Publishable {
		made.unlisted = reason(index.Diagnostics)
	}
	b.made.Store(made)
	return made, nil
}

// unlisted says why skills/list leaves a skill out, as far as its SKILL.md tells; empty when
// nothing in it does.
func unlisted(sk *skills.Skill) string {
	switch {
	case sk.Hidden():
		return "disable-model-invocation is set"
	case sk.File != skillFile:
		return "its file is not named " + skillFile
	case !sk.Verdict.Publishable:
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
