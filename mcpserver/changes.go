package mcpserver

import (
	"context"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/skills"
)

// changes reports whether lists differ for clients that see a part of the catalogue. Such a client must not
// even learn that something changed that is hidden from it. It is safe for concurrent use.
type changes struct {
	server *Server
	scope  scope

	mu   sync.Mutex
	last map[string]listing // by method of the notification
}

// listing is what the lists of a client are made of.
type listing struct {
	ready  bool // the first scan is done
	skills []*skills.Skill
}

func (l listing) equal(other listing) bool {
	return l.ready == other.ready && slices.EqualFunc(l.skills, other.skills, func(a, b *skills.Skill) bool {
		return a.Path == b.Path && !a.Differs(b)
	})
}

// changesFor begins to watch what lists show to the client of a request. The function that it returns reports
// whether the lists changed since its last call with the same method. For a client that sees all of the
// catalogue it does not look: such a client may learn of every change.
func (s *Server) changesFor(ctx context.Context) func(method string) bool {
	return s.changesOf(s.scopeOf(ctx)).since
}

func (s *Server) changesOf(sc scope) *changes {
	c := &changes{server: s, scope: sc, last: map[string]listing{}}
	now, _ := c.listing()
	for _, method := range listMethods() {
		c.last[method] = now
	}
	return c
}

// listMethods are the notifications of changed lists.
func listMethods() []string {
	return []string{
		mcp.MethodNotificationToolsListChanged,
		mcp.MethodNotificationResourcesListChanged,
		mcp.MethodNotificationPromptsListChanged,
	}
}

func (c *changes) listing() (now listing, whole bool) {
	snapshot := c.server.cfg.Sessions.Visible(c.scope.principal, c.scope.profile)
	if snapshot == c.server.cfg.Registry.Snapshot() {
		return listing{ready: c.server.isReady()}, true
	}
	return listing{c.server.isReady(), snapshot.Skills}, false
}

func (c *changes) since(method string) bool {
	now, whole := c.listing()
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.last[method]
	c.last[method] = now
	return whole || !before.equal(now)
}
