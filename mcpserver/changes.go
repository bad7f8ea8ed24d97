package mcpserver

import (
	"context"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/skills"
)

// changes tells whether lists differ for those who see a part of the catalogue. When something
// changes that is hidden from them they must not learn even that. It is safe for concurrent use.
type changes struct {
	server *Server
	scope  scope

	mu   sync.Mutex
	told map[string]listing // by method of the notification
}

// listing is what lists are made of for those who see a part.
type listing struct {
	ready  bool // the first scan is done
	skills []*skills.Skill
}

func (l listing) equal(other listing) bool {
	return l.ready == other.ready && slices.EqualFunc(l.skills, other.skills, func(a, b *skills.Skill) bool {
		return a.Path == b.Path && !a.Differs(b)
	})
}

// changesFor begins to watch what lists show to the client of a request. What it returns reports
// whether that differs from what it was when it was asked for the same notification before. For those
// who see all of the catalogue it does not look: every change is theirs.
func (s *Server) changesFor(ctx context.Context) func(method string) bool {
	return s.changesOf(s.scopeOf(ctx)).since
}

func (s *Server) changesOf(sc scope) *changes {
	c := &changes{server: s, scope: sc, told: map[string]listing{}}
	now, _ := c.listing()
	for _, method := range listMethods() {
		c.told[method] = now
	}
	return c
}

// listMethods are the notifications of changed lists.
func listMethods() []string {
	return []string{mcp.MethodNotificationToolsListChanged, mcp.MethodNotificationResourcesListChanged, mcp.MethodNotificationPromptsListChanged}
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
	before := c.told[method]
	c.told[method] = now
	return whole || !before.equal(now)
}
