package wire

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

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

	mu     sync.Mutex
	asks   map[*asks]struct{} // of calls under way
	stream *turn              // the open GET stream
}

// turn is the time a GET stream may write for its session.
type turn struct {
	end  context.CancelFunc
	done chan struct{}
}

func (h *HTTP) newSession(principal string, maxBytes int) *httpSession {
	s := &httpSession{
		session:   &session{level: mcp.LoggingLevelError},
		principal: principal,
		calls:     newCallTable(maxSessionCalls, maxSessionListens, maxBytes),
		announcer: newAnnouncer(nil),
		asks:      make(map[*asks]struct{}),
	}
	s.announcer.initialize()
	s.announcer.open()
	s.base, s.end = context.WithCancelCause(h.base)
	return s
}

// route gives a response of the client to the call that waits for it.
func (s *httpSession) route(m *message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.asks {
		a.route(m)
	}
}

func (s *httpSession) addAsks(a *asks) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asks[a] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.asks, a)
	}
}

// takeStream makes the caller's GET stream the only one of the session: a client that
// connects again has lost the one before, whether or not the server knows. end ends the
// caller's stream when it is superseded. leave gives the turn back.
func (s *httpSession) takeStream(end context.CancelFunc) (leave func()) {
	mine := &turn{end: end, done: make(chan struct{})}
	s.mu.Lock()
	before := s.stream
	s.stream = mine
	s.mu.Unlock()
	// Two streams would write for one announcer at the same time.
	if before != nil {
		before.end()
		<-before.done
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.stream == mine {
			s.stream = nil
		}
		close(mine.done)
	}
}

// sessionTable holds the protocol sessions. Safe for concurrent use.
type sessionTable struct {
	most, mostEach int
	ended          func(*httpSession)
	now            func() time.Time

	mu   sync.Mutex
	byID map[string]*httpSession
	each map[string]int // how many a principal has
}

func newSessionTable(most, share int, ended func(*httpSession)) *sessionTable {
	return &sessionTable{
		most: most, mostEach: max(most/share, 1), ended: ended, now: time.Now,
		byID: make(map[string]*httpSession), each: make(map[string]int),
	}
}

// add gives s an id. If its principal has all the sessions it may have, or the table is full, the
// principal's longest unused session ends; add reports false if it has no unused session.
func (t *sessionTable) add(s *httpSession) bool {
	t.mu.Lock()
	var idlest *httpSession
	if t.each[s.principal] >= t.mostEach || len(t.byID) >= t.most {
		// Never a session of somebody else: one principal could end all others'.
		for _, other := range t.byID {
			if other.principal != s.principal || other.busy > 0 {
				continue
			}
			if idlest == nil || other.used.Before(idlest.used) {
				idlest = other
			}
		}
		if idlest == nil {
			t.mu.Unlock()
			return false
		}
		t.drop(idlest)
	}
	s.id, s.used = rand.Text(), t.now()
	t.byID[s.id] = s
	t.each[s.principal]++
	t.mu.Unlock()
	if idlest != nil {
		t.ended(idlest)
	}
	return true
}

// enter returns the session of that id for a request or stream of principal, or nil. leave
// must follow.
func (t *sessionTable) enter(id, principal string) *httpSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byID[id]
	if s == nil || s.principal != principal {
		return nil
	}
	s.used = t.now()
	s.busy++
	return s
}

func (t *sessionTable) leave(s *httpSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.used = t.now()
	s.busy--
}

// end ends a session that a request has entered.
func (t *sessionTable) end(s *httpSession) {
	t.mu.Lock()
	known := t.byID[s.id] == s
	if known {
		t.drop(s)
	}
	t.mu.Unlock()
	if known {
		t.ended(s)
	}
}

// endIdle ends the sessions that were not used for as long as idle; 0 ends all.
func (t *sessionTable) endIdle(idle time.Duration) {
	var gone []*httpSession
	t.mu.Lock()
	before := t.now().Add(-idle)
	for _, s := range t.byID {
		if idle == 0 || s.busy == 0 && s.used.Before(before) {
			gone = append(gone, s)
			t.drop(s)
		}
	}
	t.mu.Unlock()
	for _, s := range gone {
		t.ended(s)
	}
}

func (t *sessionTable) drop(s *httpSession) {
	delete(t.byID, s.id)
	if t.each[s.principal]--; t.each[s.principal] == 0 {
		delete(t.each, s.principal)
	}
}

func (t *sessionTable) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID)
}

// sessionResolver answers mcp-go's questions about sessions from the call it was given.
type sessionResolver struct{}

func (sessionResolver) ResolveSessionIdManager(r *http.Request) server.SessionIdManager {
	ex, _ := r.Context().Value(exchangeKey{}).(*exchange)
	return sessionVerdict{known: ex != nil && ex.protocol != nil}
}

// sessionVerdict answers mcp-go about one request's session. It makes no id, so that
// mcp-go keeps nothing of the session.
type sessionVerdict struct{ known bool }

func (sessionVerdict) Generate() string { return "" }

func (v sessionVerdict) Validate(string) (terminated bool, err error) {
	if !v.known {
		return false, errUnknownSession
	}
	return false, nil
}

func (sessionVerdict) Terminate(string) (notAllowed bool, err error) { return true, nil }

var errUnknownSession = errors.New("unknown session")
