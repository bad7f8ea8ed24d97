package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/provenance"
)

const (
	// maxRemote is how many sessions of remote clients are open at a time, maxRemoteEach how many
	// of one principal. If there are more, the one that was unused longest is ended.
	maxRemote     = 1024
	maxRemoteEach = 256

	// remoteIdle is how long an unused session without a valid handle stays open.
	remoteIdle = time.Hour

	// maxShared is the number of decisions after which another session replaces the one that calls share: no
	// record may grow without bound.
	maxShared = 20_000
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
	if call.Handle != "" {
		if ses := s.opened(ctx, func() *Session { return s.byHandle(call) }); ses != nil {
			return ses, true, nil
		}
	}
	known = call.Handle == ""
	kind, id := call.ownKey()
	switch {
	case !call.keyed():
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.process == nil {
			s.process, err = s.newSession(call)
		}
		return s.process, known, err
	case kind != "":
	case call.Opens && known:
		kind, id = "handle", rand.Text()
	default:
		kind = kindShared
	}
	ses, err = s.enter(ctx, call, kind, id)
	return ses, known, err
}

// kindShared is the kind of key of the session of all calls that only their principal connects.
const kindShared = "shared"

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

// enter returns the session of a key, which it opens if it is not open, and counts the call in.
func (s *Sessions) enter(ctx context.Context, call Call, kind, id string) (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(call, kind, id)
	ses := s.keyed[key]
	if ses == nil {
		if !s.makeRoom(call.Principal.Name) {
			return nil, errTooMany
		}
		var err error
		if ses, err = s.newSession(call); err != nil {
			return nil, err
		}
		// The session that the client names as its parent, else, on stdio, the session of the process.
		for _, other := range s.keyed {
			if other.id == call.Parent && other.principal.Name == call.Principal.Name {
				ses.parent = other.id
			}
		}
		if ses.parent == "" && s.process != nil && !call.Remote {
			ses.parent = s.process.id
		}
		ses.keyed = &keyedState{key: key, shared: kind == kindShared}
		if kind == "protocol" {
			ses.keyed.protocol = id
		}
		s.keyed[key] = ses
	}
	s.countIn(ctx, ses)
	return ses, nil
}

// countIn keeps a session open until ctx ends, at least; a context that never ends keeps no session open.
// Sessions.mu is held.
func (s *Sessions) countIn(ctx context.Context, ses *Session) {
	if ses.keyed == nil {
		return // the session of the process, which stays open
	}
	ses.keyed.busy++
	if ctx.Done() == nil {
		s.leave(ses)
		return
	}
	ses.keyed.used = s.cfg.Now()
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.leave(ses)
	})
}

// leave counts a call out. Sessions.mu is held.
func (s *Sessions) leave(ses *Session) {
	k := ses.keyed
	k.used = s.cfg.Now()
	k.busy--
	if !k.shared || ses.decisions.Load() < maxShared {
		return
	}
	if s.keyed[k.key] == ses {
		delete(s.keyed, k.key)
	}
	if k.busy == 0 {
		s.finish(ses)
	}
}

// byHandle returns the principal's session that gave out the call's handle, or nil.
func (s *Sessions) byHandle(call Call) *Session {
	// Hashed once for all sessions: a client may send a long text as a handle.
	sum := handleSum(sha256.Sum256([]byte(call.Handle)))
	if s.process != nil && !call.keyed() && s.process.ownsSum(sum) {
		return s.process
	}
	for _, ses := range s.keyed {
		if ses.principal.Name == call.Principal.Name && ses.ownsSum(sum) {
			return ses
		}
	}
	return nil
}

// makeRoom makes room for one more session of a principal, and reports whether there is some: too many
// sessions may have calls under way.
func (s *Sessions) makeRoom(principal string) bool {
	limit := cmp.Or(max(0, min(s.cfg.MaxRemote, maxRemote)), maxRemote)
	each := map[string]int{}
	for _, ses := range s.keyed {
		each[ses.principal.Name]++
	}
	if each[principal] < min(maxRemoteEach, max(1, limit/2)) {
		if len(s.keyed) < limit {
			return true
		}
		// The principal with the most sessions loses one, so that nobody can end the sessions of others by
		// opening many.
		for other, n := range each {
			if n > each[principal] {
				principal = other
			}
		}
	}
	var oldest *Session
	for _, ses := range s.keyed {
		if ses.keyed.busy == 0 && ses.principal.Name == principal &&
			(oldest == nil || ses.keyed.used.Before(oldest.keyed.used)) {
			oldest = ses
		}
	}
	if oldest != nil {
		s.drop(oldest)
	}
	return oldest != nil
}

// drop forgets a session and records its end in the background. Sessions.mu is held.
func (s *Sessions) drop(ses *Session) {
	delete(s.keyed, ses.keyed.key)
	s.finish(ses)
}

// finish records the end of a session in the background. If that fails, the session is kept for another try.
// Sessions.mu is held.
func (s *Sessions) finish(ses *Session) {
	ses.remember()
	s.ending.Go(func() {
		err := ses.end(context.Background())
		ses.remember() // calls that were under way may have loaded more
		if err == nil {
			return
		}
		s.cfg.Logger.Error("end of a session not recorded", slog.String("session", ses.id), tint.Err(err))
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.unended) < maxRemote {
			s.unended = append(s.unended, ses)
		}
	})
}

// endThose ends the keyed sessions that over selects, and tries again to record the ends that could not be
// recorded.
func (s *Sessions) endThose(over func(*Session) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unended := s.unended
	s.unended = nil
	for _, ses := range unended {
		s.finish(ses)
	}
	for _, ses := range s.keyed {
		if over(ses) {
			s.drop(ses)
		}
	}
}

// EndProtocolSession ends the session of a protocol session that is over. It does not wait until that is
// recorded.
func (s *Sessions) EndProtocolSession(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ses := range s.keyed {
		if ses.keyed.protocol == id && id != "" {
			s.drop(ses)
		}
	}
}

// EndIdle ends the sessions of remote clients that have not been used for an hour and whose handles, if they
// gave any out, have expired. It tries again to record the ends that could not be recorded.
func (s *Sessions) EndIdle() {
	now := s.cfg.Now()
	s.endThose(func(ses *Session) bool {
		if ses.keyed.busy > 0 || !ses.keyed.used.Before(now.Add(-remoteIdle)) {
			return false
		}
		ses.mu.Lock()
		defer ses.mu.Unlock()
		return !slices.ContainsFunc(slices.Collect(maps.Values(ses.secrets)), now.Before)
	})
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
