package mcpserver

import (
	"context"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/skills"
)

// listMethods are the notifications of changed lists.
func listMethods() []string {
	return []string{
		mcp.MethodNotificationToolsListChanged,
		mcp.MethodNotificationResourcesListChanged,
		mcp.MethodNotificationPromptsListChanged,
	}
}

// changesFor begins to watch what lists show to the client of a request.
func (s *Server) changesFor(ctx context.Context) func(method string) bool {
	return s.changesOf(s.scopeOf(ctx))
}

// changesOf begins to watch what lists show in a scope. The function that it returns reports whether the
// lists changed since its last call with the same method: a client must not even learn that something changed
// that is hidden from it. For a client that sees all of the catalogue it does not look: such a client may
// learn of every change. It is safe for concurrent use.
func (s *Server) changesOf(sc scope) func(method string) bool {
	// shown is what the lists are made of.
	type shown struct {
		ready  bool
		skills []*skills.Skill
	}
	look := func() (now shown, whole bool) {
		snapshot := s.cfg.Sessions.Visible(sc.principal, sc.profile)
		if snapshot == s.cfg.Registry.Snapshot() {
			return shown{ready: s.isReady()}, true
		}
		return shown{s.isReady(), snapshot.Skills}, false
	}
	same := func(a, b *skills.Skill) bool { return a.Path == b.Path && !a.Differs(b) }
	first, _ := look()
	var mu sync.Mutex
	last := map[string]shown{}
	for _, method := range listMethods() {
		last[method] = first
	}
	return func(method string) bool {
		now, whole := look()
		mu.Lock()
		defer mu.Unlock()
		before := last[method]
		last[method] = now
		return whole || before.ready != now.ready || !slices.EqualFunc(before.skills, now.skills, same)
	}
}
