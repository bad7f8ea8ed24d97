package mcpserver

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/skills"
)

// toolsEvery is the minimum interval of notifications of changed tools to one client. A client that reloads
// tools sends all of them to its model again, which invalidates the provider's prompt cache.
const toolsEvery = time.Minute

// listMethods are the notifications of changed lists.
func listMethods() []string {
	return []string{
		mcp.MethodNotificationToolsListChanged,
		mcp.MethodNotificationResourcesListChanged,
		mcp.MethodNotificationPromptsListChanged,
	}
}

// shown is the state that the lists of a client are made from.
type shown struct {
	ready   bool
	whole   bool            // the client sees all of the catalogue
	skills  []*skills.Skill // if the client does not see all of it
	tools   string          // their names
	texts   [sha256.Size]byte
	prompts [sha256.Size]byte
}

// changesFor begins to watch the lists of the client of ctx. The returned function reports whether a list has
// changed for the client since its last call with the same method. Tools and prompts have changed if their
// names or descriptions have; for a client that keeps descriptions, only if the set of tools has. For a
// client that sees the whole catalogue, resources may be reported without a change. It is safe for concurrent
// use.
func (s *Server) changesFor(ctx context.Context) func(method string) bool {
	sc := s.scopeOf(ctx)
	var mu sync.Mutex
	first, last, told := s.shown(sc), map[string]shown{}, time.Time{}
	for _, method := range listMethods() {
		last[method] = first
	}
	return func(method string) bool {
		// A client must not learn even the fact of a change that is hidden from it.
		now := s.shown(sc)
		mu.Lock()
		defer mu.Unlock()
		before, news := last[method], false
		switch method {
		case mcp.MethodNotificationToolsListChanged:
			news = before.tools != now.tools || before.texts != now.texts && !clientOf(ctx).keeps
			if wait := s.toolsEvery - time.Since(told); news && wait > 0 {
				// The list has not been announced, so the later announcement finds the same change.
				s.broadcastAfter(wait)
				return false
			}
			if news {
				told = time.Now()
			}
		case mcp.MethodNotificationPromptsListChanged:
			news = before.prompts != now.prompts
		default:
			same := func(a, b *skills.Skill) bool { return a.Path == b.Path && !a.Differs(b) }
			news = now.whole || !slices.EqualFunc(before.skills, now.skills, same)
		}
		last[method] = now
		return news || before.ready != now.ready
	}
}

// shown returns the current state for a scope.
func (s *Server) shown(sc scope) shown {
	if !s.isReady() {
		return shown{}
	}
	v := s.visible(sc)
	now := shown{ready: true, whole: v.snapshot == s.cfg.Registry.Snapshot()}
	if !now.whole {
		now.skills = v.snapshot.Skills
	}
	var names, texts, prompts strings.Builder
	for _, tool := range v.tools(client{}) {
		names.WriteString(tool.Name + "\n")
		texts.WriteString(tool.Description + "\x00")
	}
	for _, p := range v.prompts() {
		prompts.WriteString(p.name + "\x00" + p.skill.Description() + "\x00")
	}
	now.tools = names.String()
	now.texts, now.prompts = sha256.Sum256([]byte(texts.String())), sha256.Sum256([]byte(prompts.String()))
	return now
}

// Publish notifies clients of the lists that have changed for them. The tools describe the registry's current
// snapshot even without it.
func (s *Server) Publish() {
	for _, method := range listMethods() {
		s.wire.Announce(method)
	}
}

// broadcastAfter announces after a delay that tools may have changed.
func (s *Server) broadcastAfter(wait time.Duration) {
	if s.asksLater.CompareAndSwap(false, true) {
		time.AfterFunc(wait, func() {
			s.asksLater.Store(false)
			s.wire.Announce(mcp.MethodNotificationToolsListChanged)
		})
	}
}
