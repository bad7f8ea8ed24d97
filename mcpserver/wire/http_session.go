package wire

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// HeaderSession names the protocol session of an HTTP request of the older revisions.
const HeaderSession = "Mcp-Session-Id"

// maxSessionCalls is how many requests of one protocol session may be under way, maxSessionListens how
// many of its subscriptions at the same time.
const (
	maxSessionCalls   = 512
	maxSessionListens = 64
)

// httpSession is one protocol session of the revisions before 2026-07-28.
type httpSession struct {
	*session
	principal string
	calls     *callTable
	announcer *announcer // holds what the GET stream is to carry
	base      context.Context
	end       context.CancelCauseFunc

	used time.Time // guarded by sessionTable.mu
	busy int       // requests and streams; guarded by sessionTable.mu

	mu        sync.Mutex
	supersede context.CancelFunc // ends the GET stream that is open
	streaming sync.Mutex         // held by the GET stream
}

func (h *HTTP) newSession(ctx context.Context, principal string, maxBytes int) *httpSession {
	s := &httpSession{
		session:   new(session),
		principal: principal,
		calls:     newCallTable(maxSessionCalls, maxSessionListens, maxBytes),
	}
	ctx = withSession(context.WithoutCancel(ctx), s.session)
	s.announcer = newAnnouncer(h.dispatcher.changes(ctx))
	if h.opts.Spread != nil {
		s.asks.next = rand.Int64N(1 << 52) // other servers may ask the client too
	}
	s.base, s.end = context.WithCancelCause(h.base)
	return s
}

// takeStream makes the caller's GET stream the only one of the session: a client that
// connects again has lost the one before, whether or not the server knows. end ends the
// caller's stream when it is superseded. leave gives the turn back.
func (s *httpSession) takeStream(end context.CancelFunc) (leave func()) {
	s.mu.Lock()
	if s.supersede != nil {
		s.supersede()
	}
	s.supersede = end
	s.mu.Unlock()
	// Two streams would write for one announcer at the same time.
	s.streaming.Lock()
	return s.streaming.Unlock
}

// unused reports whether nothing has used s since a time. The table's mu is held.
func (s *httpSession) unused(since time.Time) bool { return s.busy == 0 && s.used.Before(since) }

// sessionTable holds the protocol sessions. Safe for concurrent use.
type sessionTable struct {
	room  *quota
	ended func(*httpSession)
	ids   identities

	mu      sync.Mutex
	byID    map[string]*httpSession
	deleted map[string]bool // ids of sessions that their clients ended
}

func newSessionTable(room *quota, ended func(*httpSession)) *sessionTable {
	return &sessionTable{room: room, ended: ended, byID: make(map[string]*httpSession),
		deleted: make(map[string]bool)}
}

// add adds a session, which has an id. If there is no room, an unused session ends. It reports false if every
// session is in use, and if the id is in use or belonged to a session that its client ended.
func (t *sessionTable) add(s *httpSession) bool {
	t.mu.Lock()
	if t.byID[s.id] != nil || t.deleted[s.id] {
		t.mu.Unlock()
		return false
	}
	var idlest *httpSession
	if !t.room.take(s.principal, 1) {
		idlest = t.idlest(s.principal)
		if idlest == nil {
			t.mu.Unlock()
			return false
		}
		t.drop(idlest)
		t.room.take(s.principal, 1)
	}
	s.used = time.Now()
	t.byID[s.id] = s
	t.mu.Unlock()
	if idlest != nil {
		t.ended(idlest)
	}
	return true
}

// idlest returns the session that ends for a new one of principal, or nil: the longest unused one of whoever
// has the most. Another principal is left with no fewer than this one then has, so that nobody can end the
// sessions of others by opening many. t.mu is held.
func (t *sessionTable) idlest(principal string) (idlest *httpSession) {
	own, most := t.room.taken(principal), 0
	for _, s := range t.byID {
		n := t.room.taken(s.principal)
		if s.busy > 0 || s.principal != principal && (own >= t.room.mostEach || n < own+2) {
			continue
		}
		if idlest == nil || n > most || n == most && s.used.Before(idlest.used) {
			idlest, most = s, n
		}
	}
	return idlest
}

// enter returns the session of that id for a request or stream of principal, or nil. leave must follow.
func (t *sessionTable) enter(id, principal string) *httpSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byID[id]
	if s == nil || s.principal != principal {
		return nil
	}
	s.used = time.Now()
	s.busy++
	return s
}

// leave reports whether nothing uses s any more, which its client has ended.
func (t *sessionTable) leave(s *httpSession) (over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.used = time.Now()
	s.busy--
	return s.busy == 0 && t.deleted[s.id]
}

// end ends the sessions that are over; over is called with mu held.
func (t *sessionTable) end(over func(*httpSession) bool) {
	var gone []*httpSession
	t.mu.Lock()
	for _, s := range t.byID {
		if over(s) {
			gone = append(gone, s)
			t.drop(s)
		}
	}
	t.mu.Unlock()
	for _, s := range gone {
		t.ended(s)
	}
}

// forget ends a session for its client: its id is not accepted again.
func (t *sessionTable) forget(id string) {
	t.mu.Lock()
	if len(t.deleted) >= maxDeleted {
		clear(t.deleted)
	}
	t.deleted[id] = true
	t.mu.Unlock()
	t.end(func(s *httpSession) bool { return s.id == id })
}

func (t *sessionTable) drop(s *httpSession) {
	delete(t.byID, s.id)
	t.room.leave(s.principal, 1)
}
