package wire

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/skillsd/skillsd/mcpserver/admit"
)

// HeaderSession is the header with the protocol session of a request of the older revisions.
const HeaderSession = "Mcp-Session-Id"

// maxSessionCalls and maxSessionListens are the maximum of concurrent requests and subscriptions of one
// protocol session.
const (
	maxSessionCalls   = 512
	maxSessionListens = 64
)

// httpSession is one protocol session of the revisions before 2026-07-28.
type httpSession struct {
	*session
	principal string
	calls     *callTable
	announcer *announcer // queues notifications for the GET stream
	base      context.Context
	end       context.CancelCauseFunc

	// Guarded by sessionTable.mu.
	used time.Time
	busy int // requests and streams
	room *admit.Claim

	mu        sync.Mutex
	supersede context.CancelFunc // ends the open GET stream
	streaming sync.Mutex         // held by the GET stream
}

func (h *HTTP) newSession(ctx context.Context, principal string, maxBytes int) *httpSession {
	s := &httpSession{
		session:   new(session),
		principal: principal,
		calls:     newCallTable(maxSessionCalls, maxSessionListens, maxBytes),
	}
	ctx = context.WithValue(context.WithoutCancel(ctx), sessionKey{}, s.session)
	s.announcer = newAnnouncer(h.dispatcher.changes(ctx))
	if h.opts.Spread != nil {
		// Other servers may ask the client too, and their ids must differ.
		s.asks.next = rand.Int64N(1 << 52)
	}
	s.base, s.end = context.WithCancelCause(h.base)
	return s
}

// takeStream makes the caller's GET stream the only one of the session. A client that reconnects has lost its
// earlier stream, even if the server has not noticed. end ends the caller's stream when it is superseded.
// leave releases the turn.
func (s *httpSession) takeStream(end context.CancelFunc) (leave func()) {
	s.mu.Lock()
	if s.supersede != nil {
		s.supersede()
	}
	s.supersede = end
	s.mu.Unlock()
	// Otherwise two streams could write for one announcer.
	s.streaming.Lock()
	return s.streaming.Unlock
}

// unused reports whether s has been idle since a time. The table's mu is held.
func (s *httpSession) unused(since time.Time) bool { return s.busy == 0 && s.used.Before(since) }

// sessionTable holds the protocol sessions. Safe for concurrent use.
type sessionTable struct {
	room  *admit.Quota
	ended func(*httpSession)
	ids   identities

	mu      sync.Mutex
	byID    map[string]*httpSession
	deleted map[string]bool // ids of sessions that their clients ended
}

func newSessionTable(room *admit.Quota, ended func(*httpSession)) *sessionTable {
	return &sessionTable{room: room, ended: ended, byID: make(map[string]*httpSession),
		deleted: make(map[string]bool)}
}

// add adds a session with an id. If there is no room, it ends an idle session. It returns false if every
// session is in use, or if the id is in use or its client has ended it.
func (t *sessionTable) add(s *httpSession) bool {
	t.mu.Lock()
	if t.byID[s.id] != nil || t.deleted[s.id] {
		t.mu.Unlock()
		return false
	}
	var idlest *httpSession
	s.room = t.room.Take(s.principal, 1)
	if s.room == nil {
		idlest = t.idlest(s.principal)
		if idlest == nil {
			t.mu.Unlock()
			return false
		}
		t.drop(idlest)
		s.room = t.room.Take(s.principal, 1)
	}
	s.used = time.Now()
	t.byID[s.id] = s
	t.mu.Unlock()
	if idlest != nil {
		t.ended(idlest)
	}
	return true
}

// idlest returns the session to end for a new one of principal, or nil: the longest idle session of the
// principal with the most. A principal never loses sessions to another one with more, so opening many
// sessions cannot end the sessions of others. t.mu is held.
func (t *sessionTable) idlest(principal string) (idlest *httpSession) {
	own, most := t.room.Held(principal), 0
	_, share := t.room.Most()
	for _, s := range t.byID {
		n := t.room.Held(s.principal)
		// After the exchange, the other principal must still have more sessions than this one.
		if s.busy > 0 || s.principal != principal && (own >= share || n < own+2) {
			continue
		}
		if idlest == nil || n > most || n == most && s.used.Before(idlest.used) {
			idlest, most = s, n
		}
	}
	return idlest
}

// enter returns the session with that id for a request or stream of principal, or nil. The caller must call
// leave.
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

// leave ends one use of s. It returns true if that was the last use and the client has ended s.
func (t *sessionTable) leave(s *httpSession) (over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.used = time.Now()
	s.busy--
	return s.busy == 0 && t.deleted[s.id]
}

// end ends the sessions for which over returns true; over is called with mu held.
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
	s.room.Release()
}
