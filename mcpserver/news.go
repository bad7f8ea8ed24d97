package mcpserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

// Bounds of the news of a server.
const (
	maxChanges   = 4096 // of skills, remembered
	maxListeners = 4096
	maxNamed     = 8 // skills of each kind that a line names
)

// news tracks what changed since clients listed the tools: many clients never list them again. It is safe for
// concurrent use.
type news struct {
	mu    sync.Mutex
	of    *skills.Snapshot // changes are known up to this snapshot; nil before the first list
	log   []change
	first int            // number of the first change in log
	heard map[string]int // number of the next change for each listener
}

// change is the change of one skill between two snapshots.
type change struct {
	path    string
	was, is *skills.Skill // nil if the skill did not, or does not, exist; hidden skills are excluded
}

// catchUp adds the changes up to a snapshot since its last call. n.mu is held.
func (n *news) catchUp(now *skills.Snapshot) (next int) {
	if n.of != nil && n.of != now {
		n.log = append(n.log, changes(n.of, now)...)
	}
	n.of = now
	if over := len(n.log) - maxChanges; over > 0 {
		n.log, n.first = append([]change{}, n.log[over:]...), n.first+over
	}
	return n.first + len(n.log)
}

// changes returns the differences between two snapshots for a model that chooses from a list.
func changes(was, is *skills.Snapshot) (all []change) {
	offered := func(s *skills.Snapshot, path string) *skills.Skill {
		if sk := s.Skill(path); sk != nil && !sk.Hidden() {
			return sk
		}
		return nil
	}
	for i, sk := range is.Skills {
		if i < len(was.Skills) && was.Skills[i] == sk || sk.Hidden() {
			continue
		}
		if old := offered(was, sk.Path); old == nil || old != sk && old.Digest != sk.Digest {
			all = append(all, change{sk.Path, old, sk})
		}
	}
	for _, sk := range was.Skills {
		if !sk.Hidden() && offered(is, sk.Path) == nil {
			all = append(all, change{sk.Path, sk, nil})
		}
	}
	return all
}

// listed records that a listener gets the list of the current snapshot. A listener that keeps its first list
// gets all changes since that one. current is called with n.mu held: snapshots must come in their order.
func (n *news) listed(listener string, keeps bool, current func() *skills.Snapshot) {
	n.mu.Lock()
	defer n.mu.Unlock()
	next := n.catchUp(current())
	if _, known := n.heard[listener]; !known || !keeps {
		n.note(listener, next)
	}
}

// note records up to where a listener has been notified. n.mu is held.
func (n *news) note(listener string, next int) {
	if n.heard == nil {
		n.heard = map[string]int{}
	}
	if _, known := n.heard[listener]; !known && len(n.heard) >= maxListeners {
		for other := range n.heard {
			// The forgotten client gets the changes from its next call on.
			delete(n.heard, other)
			break
		}
	}
	n.heard[listener] = next
}

// since returns what changed up to the current snapshot since a listener was last notified, each skill once,
// and marks it as sent. cut reports whether earlier changes are lost. current is called with n.mu held:
// after a later snapshot, an earlier one would take back what a concurrent call has reported.
func (n *news) since(listener string, current func() *skills.Snapshot) (all []change, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := current()
	from, known := n.heard[listener]
	// This is nearly always so.
	if known && n.of == now && from == n.first+len(n.log) {
		return nil, false
	}
	next := n.catchUp(now)
	n.note(listener, next)
	if !known || from == next {
		return nil, false
	}
	at := map[string]int{}
	for _, c := range n.log[max(0, from-n.first):] {
		i, again := at[c.path]
		if !again {
			at[c.path] = len(all)
			all = append(all, c)
			continue
		}
		all[i].is = c.is
	}
	same := func(c change) bool {
		return c.was == nil && c.is == nil || c.was != nil && c.is != nil && c.was.Digest == c.is.Digest
	}
	return slices.DeleteFunc(all, same), from < n.first
}

// listener names the receiver of changes: the process that started the server, a protocol session, or the
// session that a request names. It is empty if nothing connects a request with a later one.
func listener(ctx context.Context, sc scope, meta map[string]any) string {
	client := wire.ClientOf(ctx)
	_, remote := principalOf(ctx)
	name := ""
	switch {
	case !remote:
	case !client.Modern:
		name = client.SessionID
	default:
		name = conversationOf(meta)
		if name == "" {
			return ""
		}
	}
	return strings.Join([]string{sc.principal.Name, sc.profile, policy.Clip(name)}, "\x00")
}

// noteListed records that the client of a request gets the list of tools.
func (s *Server) noteListed(ctx context.Context, r *request) {
	if to := listener(ctx, r.scope, r.Meta); to != "" {
		s.news.listed(to, clientOf(ctx).keeps, s.listable)
	}
}

// addNews adds one line to a result about the skills that changed since the client listed the tools. Programs
// do not get it.
func (s *Server) addNews(ctx context.Context, request *mcp.CallToolRequest, result *mcp.CallToolResult) {
	meta := request.Params.Meta.AdditionalFields
	profile, err := s.profileOf(meta)
	if wanted, _ := meta[metaRecords].(bool); err != nil || wanted || result.ResultType != "" ||
		s.cfg.NoCatalog || !s.isReady() {
		return
	}
	principal, _ := principalOf(ctx)
	sc := scope{principal, profile}
	to := listener(ctx, sc, meta)
	if to == "" {
		return
	}
	all, cut := s.news.since(to, s.cfg.Registry.Snapshot)
	if len(all) == 0 {
		return
	}
	line := s.cfg.Sessions.Secrets().Text(s.newsLine(sc, all, cut))
	switch {
	case line == "":
	// The text of an error must end with its object.
	case result.IsError:
		result.Content = slices.Insert(result.Content, 0, mcp.Content(mcp.NewTextContent(line+"\n")))
	default:
		result.Content = append(result.Content, mcp.NewTextContent(line))
	}
}

// newsLine returns the changes that a scope may see, in one line; empty without any. Names and descriptions
// are texts of skill authors.
func (s *Server) newsLine(sc scope, all []change, cut bool) string {
	paths, everything := s.cfg.Sessions.Policy().Visible(sc.principal, []string{sc.profile})
	visible := map[string]bool{}
	for _, path := range paths {
		visible[path] = true
	}
	c := s.visible(sc).catalogue()
	nameOnly := map[string]bool{}
	for _, path := range c.options.NameOnly {
		nameOnly[path] = true
	}
	var added, changed, removed []string
	for _, of := range all {
		name := strconv.Quote(oneLine(policy.Clip(of.path)))
		switch {
		case !everything && !visible[of.path]:
		case of.is == nil:
			removed = append(removed, name)
		case of.was != nil:
			changed = append(changed, name)
		case nameOnly[of.path]:
			added = append(added, name)
		default:
			added = append(added, name+" ("+fault.Quote(oneLine(of.is.Description()))+")")
		}
	}
	more := ""
	if c.searchable && s.offersOf(sc).searches {
		more = "; search_skills finds them"
	}
	parts := slices.Concat(newsOf("added", added, more), newsOf("changed", changed, ""),
		newsOf("removed", removed, ""))
	if len(parts) == 0 {
		return ""
	}
	opening := "Skills changed since your list of them"
	if cut {
		opening += ", these last"
	}
	return fmt.Sprintf("[%s: %s]", opening, strings.Join(parts, "; "))
}

// newsOf returns the part of a line about the skills with one kind of change, or none. more follows the
// number of skills that are not named.
func newsOf(kind string, names []string, more string) []string {
	if len(names) == 0 {
		return nil
	}
	part := kind + " " + strings.Join(names[:min(len(names), maxNamed)], ", ")
	if left := len(names) - maxNamed; left > 0 {
		part += fmt.Sprintf(" and %d more%s", left, more)
	}
	return []string{part}
}

// listable returns the snapshot for lists: before the end of the first scan, the snapshot of an earlier
// process.
func (s *Server) listable() *skills.Snapshot {
	if s.isReady() {
		return s.cfg.Registry.Snapshot()
	}
	return cmp.Or(s.last(), &skills.Snapshot{})
}

// listed returns the skills that a scope may choose from, in the last snapshot or, before the end of the
// first scan, in the last snapshot of an earlier process; nil without one.
func (s *Server) listed(sc scope) *visible {
	if s.isReady() {
		return s.visible(sc)
	}
	last := s.last()
	if last == nil {
		return nil
	}
	part := last
	if paths, all := s.cfg.Sessions.Policy().Visible(sc.principal, []string{sc.profile}); !all {
		part = last.Only(paths)
	}
	key := visibleKey{rules: s.cfg.Sessions.Replacements(), snapshot: part, offers: s.offersOf(sc)}
	return s.part(last, key)
}
