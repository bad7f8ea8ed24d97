package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/policy"
)

const (
	// maxRemote is how many sessions of remote clients are open at a time, maxRemoteEach how many
	// of one principal. If there are more, the one that was unused longest is ended.
	maxRemote     = 1024
	maxRemoteEach = 256

	// remoteIdle is how long an unused session without a valid handle stays open.
	remoteIdle = time.Hour
)

var (
	errTooMany = errors.New("too many sessions in use")
	errEnded   = errors.New("the session has ended")
)

// sessionKey finds the session of a call without a handle: a hash of principal, profile, parent, kind of key
// and key, so that a client's choice can neither be long nor name another principal's session. A call that
// narrows itself shares no session with a call that does not.
type sessionKey [sha256.Size]byte

func keyOf(call Call, kind, id string) sessionKey {
	hash := sha256.New()
	for _, part := range []string{call.Principal.Name, call.Profile, call.Parent, kind, id} {
		fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	return sessionKey(hash.Sum(nil))
}

// keyedSessions are the open sessions that are found by a key, unlike the session of the process. They
// are guarded by Sessions.mu.
type keyedSessions struct {
	byKey map[sessionKey]*Session
	each  map[string]int // sessions of a principal

	unended []*Session // whose end could not be recorded
}

// keyedState is the state of a session that is found by a key; guarded by Sessions.mu.
type keyedState struct {
	key      sessionKey
	shared   bool   // by all calls that only their principal connects
	protocol string // id of the protocol session it ends with
	used     time.Time
	busy     int // calls under way
}

// find finds or opens the session of a call and counts the call in. known is false if the handle of the
// call is not one of its principal's, or no longer good; the session is then the one in which that is
// recorded, or in which what the handle opened is restored.
func (s *Sessions) find(ctx context.Context, call Call) (ses *Session, known bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known = true
	if call.Handle != "" {
		ses = s.byHandle(call)
		known = ses != nil
	}
	if ses == nil {
		kind, id := call.ownKey()
		switch {
		case kind != "":
		case call.Opens && known:
			kind, id = "handle", rand.Text()
		default:
			kind = kindShared
		}
		if ses, err = s.byKey(call, kind, id); err != nil {
			return nil, false, err
		}
	}
	s.countIn(ctx, ses)
	return ses, known, nil
}

// kindShared is the kind of key of the session of all calls that only their principal connects.
const kindShared = "shared"

// enter returns the session of a key and counts the call in.
func (s *Sessions) enter(ctx context.Context, call Call, kind, id string) (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses, err := s.byKey(call, kind, id)
	if err == nil {
		s.countIn(ctx, ses)
	}
	return ses, err
}

// byKey returns the session of a key, and opens it if it is not open.
func (s *Sessions) byKey(call Call, kind, id string) (*Session, error) {
	key := keyOf(call, kind, id)
	ses := s.keyed.byKey[key]
	if ses == nil {
		var err error
		if ses, err = s.addKeyed(call, key); err != nil {
			return nil, err
		}
		ses.keyed.shared = kind == kindShared
		if kind == "protocol" {
			ses.keyed.protocol = id
		}
	}
	return ses, nil
}

// countIn keeps a session open until ctx ends, at least. Sessions.mu is held.
func (s *Sessions) countIn(ctx context.Context, ses *Session) {
	ses.keyed.used = s.cfg.Now()
	ses.keyed.busy++
	s.leaveAfter(ctx, ses)
}

// ownKey returns the kind of key that a call without a handle has, and the key; both are empty if there is
// none.
func (c *Call) ownKey() (kind, id string) {
	switch {
	case c.ClientSession != "":
		return "client", c.ClientSession
	case c.ProtocolSession != "":
		return "protocol", c.ProtocolSession
	}
	return "", ""
}

// opened returns the open session that find finds, or nil. The session stays open at least until ctx ends.
// Sessions.mu is held while find is called.
func (s *Sessions) opened(ctx context.Context, find func() *Session) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses := find()
	if ses != nil {
		s.countIn(ctx, ses)
	}
	return ses
}

// byHandle returns the principal's session that gave out the call's handle, or nil.
func (s *Sessions) byHandle(call Call) *Session {
	// Hashed once for all sessions: a client may send a long text as a handle.
	sum := handleSum(sha256.Sum256([]byte(call.Handle)))
	for _, ses := range s.keyed.byKey {
		if ses.principal.Name == call.Principal.Name && ses.ownsSum(sum) {
			return ses
		}
	}
	return nil
}

// remoteLimit returns how many remote sessions may be open at once.
func (s *Sessions) remoteLimit() int {
	return cmp.Or(max(0, min(s.cfg.MaxRemote, maxRemote)), maxRemote)
}

// remoteEach returns how many of them one principal may have.
func (s *Sessions) remoteEach() int { return min(maxRemoteEach, max(1, s.remoteLimit()/2)) }

// addKeyed opens a session and makes room for it.
func (s *Sessions) addKeyed(call Call, key sessionKey) (*Session, error) {
	if s.keyed.byKey == nil {
		s.keyed = keyedSessions{byKey: make(map[sessionKey]*Session), each: make(map[string]int)}
	}
	name := call.Principal.Name
	var whose func(*Session) bool
	switch {
	case s.keyed.each[name] >= s.remoteEach():
		whose = func(ses *Session) bool { return ses.principal.Name == name }
	case len(s.keyed.byKey) >= s.remoteLimit():
		// The principal with the most sessions loses one, so that nobody can end the sessions of others by
		// opening many.
		most := name
		for other, n := range s.keyed.each {
			if n > s.keyed.each[most] {
				most = other
			}
		}
		whose = func(ses *Session) bool { return ses.principal.Name == most }
	}
	if whose != nil && !s.dropOldest(whose) {
		return nil, errTooMany
	}
	ses, err := s.newSession(call)
	if err != nil {
		return nil, err
	}
	ses.parent = s.parentOf(call)
	ses.keyed = &keyedState{key: key}
	s.keyed.byKey[key] = ses
	s.keyed.each[name]++
	return ses, nil
}

// parentOf returns the id of the session that a child session belongs to: the one the client names, if it is
// open and of the same principal, else, on stdio, the session of the process. It is only recorded.
func (s *Sessions) parentOf(call Call) string {
	for _, ses := range s.keyed.byKey {
		if ses.id == call.Parent && ses.principal.Name == call.Principal.Name {
			return ses.id
		}
	}
	if s.process != nil && !call.Remote {
		return s.process.id
	}
	return ""
}

// dropOldest ends the session that was unused longest and has no call under way.
func (s *Sessions) dropOldest(whose func(*Session) bool) bool {
	var oldest *Session
	for _, ses := range s.keyed.byKey {
		if ses.keyed.busy == 0 && whose(ses) && (oldest == nil || ses.keyed.used.Before(oldest.keyed.used)) {
			oldest = ses
		}
	}
	if oldest != nil {
		s.drop(oldest)
	}
	return oldest != nil
}

// drop forgets a session and records its end in the background.
func (s *Sessions) drop(ses *Session) {
	s.forget(ses)
	s.finish(ses)
}

func (s *Sessions) forget(ses *Session) {
	delete(s.keyed.byKey, ses.keyed.key)
	if s.keyed.each[ses.principal.Name]--; s.keyed.each[ses.principal.Name] == 0 {
		delete(s.keyed.each, ses.principal.Name)
	}
}

// finish records the end of a session in the background. If that fails, the session is kept for another try.
// Sessions.mu is held.
func (s *Sessions) finish(ses *Session) {
	s.earlier.note(ses, false)
	s.ending.Go(func() {
		err := ses.end(context.Background())
		s.earlier.note(ses, true)
		s.unclaim(ses.id)
		if err == nil {
			return
		}
		s.cfg.Logger.Error("end of a session not recorded", slog.String("session", ses.id), tint.Err(err))
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.keyed.unended) < maxRemote {
			s.keyed.unended = append(s.keyed.unended, ses)
		}
	})
}

// finishAgain tries to record the ends that could not be. Sessions.mu is held.
func (s *Sessions) finishAgain() {
	unended := s.keyed.unended
	s.keyed.unended = nil
	for _, ses := range unended {
		s.finish(ses)
	}
}

// leaveAfter counts a call out when ctx ends. A context that never ends keeps no session open.
// Sessions.mu is held.
func (s *Sessions) leaveAfter(ctx context.Context, ses *Session) {
	if ctx.Done() == nil {
		s.leave(ses)
		return
	}
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leave(ses)
	})
}

// maxShared is the number of decisions after which another session replaces the one that calls share: no
// record may grow without bound.
const maxShared = 20_000

func (s *Sessions) leave(ses *Session) {
	ses.keyed.used = s.cfg.Now()
	ses.keyed.busy--
	if ses.keyed.shared && ses.decided() >= maxShared {
		s.retire(ses)
	}
}

// decided returns how many decisions the session has recorded.
func (s *Session) decided() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.decisions
}

// retire lets no more calls into a session, and ends it once none is under way.
func (s *Sessions) retire(ses *Session) {
	if s.keyed.byKey[ses.keyed.key] == ses {
		s.forget(ses)
	}
	if ses.keyed.busy == 0 {
		s.finish(ses)
	}
}

// EndProtocolSession ends the session of a protocol session that is over. It does not wait until that is
// recorded.
func (s *Sessions) EndProtocolSession(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ses := range s.keyed.byKey {
		if ses.keyed.protocol == id && id != "" {
			s.drop(ses)
		}
	}
}

// EndIdle ends the sessions of remote clients that have not been used for an hour and whose handles, if they
// gave any out, have expired. It tries again to record the ends that could not be recorded.
func (s *Sessions) EndIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishAgain()
	before := s.cfg.Now().Add(-remoteIdle)
	for _, ses := range s.keyed.byKey {
		if ses.keyed.busy == 0 && ses.keyed.used.Before(before) && !ses.hasHandle() {
			s.drop(ses)
		}
	}
}

// hasHandle reports whether a handle of the session is still good.
func (s *Session) hasHandle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, until := range s.secrets {
		if s.cfg.Now().Before(until) {
			return true
		}
	}
	return false
}

// endKeyed ends all sessions of remote clients and waits until that is recorded.
func (s *Sessions) endKeyed() {
	s.mu.Lock()
	s.finishAgain()
	for _, ses := range s.keyed.byKey {
		s.drop(ses)
	}
	s.mu.Unlock()
	s.ending.Wait()
}

// end records the end of the session, once and only if it began, and waits for what is still being recorded.
// It can be called again if that failed; nothing else is recorded any more.
func (s *Session) end(ctx context.Context) error {
	s.runs.Lock()
	defer s.runs.Unlock()
	// A record after the end would open the session again, and nothing would end it.
	s.closing.Lock()
	s.ended.Store(true)
	s.closing.Unlock()
	if s.endRecorded {
		return nil
	}
	s.sequence.Lock()
	began, stop := s.began, s.stop
	s.sequence.Unlock()
	if !began {
		return nil
	}
	if stop != nil {
		timer := time.AfterFunc(registryPatience, stop)
		s.background.Wait()
		timer.Stop()
		stop()
	}
	if err := s.flushPending(ctx); err != nil {
		return err
	}
	err := s.write(ctx, &provenance.Event{Kind: provenance.KindSessionEnded, Detail: "ended"})
	s.endRecorded = err == nil
	return err
}

// unknownHandle records and returns the refusal of a handle.
func (s *Session) unknownHandle(ctx context.Context, call Call) error {
	r := s.newRequest(call, policy.Read)
	return s.deny(ctx, r, r.denial(handleUnknown, "", ""))
}
