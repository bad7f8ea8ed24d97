package session

import (
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
	// of one principal. The one that was unused longest makes room.
	maxRemote     = 1024
	maxRemoteEach = 256

	// remoteIdle is how long an unused session without a valid handle stays open.
	remoteIdle = time.Hour
)

var (
	errTooMany = errors.New("too many sessions in use")
	errEnded   = errors.New("the session has ended")
)

// remoteKey is how a call without a handle finds its session: a hash of principal, kind of key and
// key, so that what a client chose can neither be long nor name another principal's session.
type remoteKey [sha256.Size]byte

func keyOf(call Call, kind, id string) remoteKey {
	return sha256.Sum256(fmt.Appendf(nil, "%d:%s%s:%s", len(call.Principal.Name), call.Principal.Name, kind, id))
}

// remotes are the open sessions of clients that are not the process's own. It is guarded by
// Sessions.mu.
type remotes struct {
	byKey map[remoteKey]*Session
	each  map[string]int // sessions of a principal
}

// remoteState is what a session of a remote client has beside the rest; guarded by Sessions.mu.
type remoteState struct {
	key      remoteKey
	protocol string // id of the protocol session it ends with
	used     time.Time
	busy     int // calls under way
}

// openRemote returns the session of a call of a remote client: the one its handle names, else the
// one of the id the client gives itself, else that of its protocol session. A client with none of
// them opens a session with each load_skill and is then known by the handle; its other calls share
// a session in which nothing is active. A handle counts for the principal it was given to.
func (s *Sessions) openRemote(ctx context.Context, call Call) (*Session, error) {
	ses, known, err := s.remote(call)
	if err != nil {
		return nil, &Error{Code: CodeInternal, Message: "the server has too many sessions in use", Remedy: "call again later", Err: err}
	}
	s.leaveAfter(ctx, ses)
	if len(s.preload) > 0 {
		if err := ses.start(context.WithoutCancel(ctx)); err != nil {
			return nil, recordError(err)
		}
	}
	if !known {
		return nil, ses.unknownHandle(ctx, call)
	}
	return ses, nil
}

// remote finds or opens the session of a call and counts the call in. known is false when the call
// has a handle that is not its principal's, or no longer good; the session is then the one to record
// that in.
func (s *Sessions) remote(call Call) (ses *Session, known bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known = true
	if call.Handle != "" {
		ses = s.byHandle(call)
		known = ses != nil
	}
	if ses == nil {
		kind, id := call.ownKey()
		if kind == "" {
			kind = "shared"
			if call.Opens && known {
				kind, id = "handle", rand.Text()
			}
		}
		key := keyOf(call, kind, id)
		if ses = s.remotes.byKey[key]; ses == nil {
			if ses, err = s.addRemote(call, key); err != nil {
				return nil, false, err
			}
			if kind == "protocol" {
				ses.remote.protocol = id
			}
		}
	}
	ses.remote.used = s.cfg.Now()
	ses.remote.busy++
	return ses, known, nil
}

// ownKey is the kind of key a call without a handle has, and the key; both are empty when it has none.
func (c *Call) ownKey() (kind, id string) {
	switch {
	case c.ClientSession != "":
		return "client", c.ClientSession
	case c.ProtocolSession != "":
		return "protocol", c.ProtocolSession
	}
	return "", ""
}

// find returns the open session that a remote call without a handle belongs to, or nil. Like one that
// was opened it stays open until ctx ends.
func (s *Sessions) find(ctx context.Context, call Call) *Session {
	kind, id := call.ownKey()
	if kind == "" {
		return nil
	}
	s.mu.Lock()
	ses := s.remotes.byKey[keyOf(call, kind, id)]
	if ses != nil {
		ses.remote.used = s.cfg.Now()
		ses.remote.busy++
	}
	s.mu.Unlock()
	if ses != nil {
		s.leaveAfter(ctx, ses)
	}
	return ses
}

// byHandle returns the principal's session that gave out the call's handle, or nil.
func (s *Sessions) byHandle(call Call) *Session {
	for _, ses := range s.remotes.byKey {
		if ses.principal.Name == call.Principal.Name && ses.owns(call.Handle) {
			return ses
		}
	}
	return nil
}

// remoteLimit is the most remote sessions that are open at once.
func (s *Sessions) remoteLimit() int {
	if s.cfg.MaxRemote > 0 {
		return min(s.cfg.MaxRemote, maxRemote)
	}
	return maxRemote
}

// remoteEach is the most of them that one principal has.
func (s *Sessions) remoteEach() int { return min(maxRemoteEach, max(1, s.remoteLimit()/2)) }

// addRemote opens a session and makes room for it.
func (s *Sessions) addRemote(call Call, key remoteKey) (*Session, error) {
	if s.remotes.byKey == nil {
		s.remotes = remotes{byKey: make(map[remoteKey]*Session), each: make(map[string]int)}
	}
	name := call.Principal.Name
	var whose func(*Session) bool
	switch {
	case s.remotes.each[name] >= s.remoteEach():
		whose = func(ses *Session) bool { return ses.principal.Name == name }
	case len(s.remotes.byKey) >= s.remoteLimit():
		// Who has most makes room, so that nobody can end the sessions of others by opening many.
		most := name
		for other, n := range s.remotes.each {
			if n > s.remotes.each[most] {
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
	ses.remote = &remoteState{key: key}
	s.remotes.byKey[key] = ses
	s.remotes.each[name]++
	return ses, nil
}

// dropOldest ends the session that was unused longest and has no call under way.
func (s *Sessions) dropOldest(whose func(*Session) bool) bool {
	var oldest *Session
	for _, ses := range s.remotes.byKey {
		if ses.remote.busy == 0 && whose(ses) && (oldest == nil || ses.remote.used.Before(oldest.remote.used)) {
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
	delete(s.remotes.byKey, ses.remote.key)
	if s.remotes.each[ses.principal.Name]--; s.remotes.each[ses.principal.Name] == 0 {
		delete(s.remotes.each, ses.principal.Name)
	}
	s.ending.Go(func() {
		if err := ses.end(context.Background()); err != nil {
			s.cfg.Logger.Error("end of a session not recorded", slog.String("session", ses.id), tint.Err(err))
		}
	})
}

// leaveAfter counts a call out when ctx ends, at once when it never does.
func (s *Sessions) leaveAfter(ctx context.Context, ses *Session) {
	if ctx.Done() == nil {
		s.leave(ses)
		return
	}
	context.AfterFunc(ctx, func() { s.leave(ses) })
}

func (s *Sessions) leave(ses *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses.remote.used = s.cfg.Now()
	ses.remote.busy--
}

// EndProtocolSession ends the session of a protocol session that is over. It does not wait for the
// record of that.
func (s *Sessions) EndProtocolSession(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ses := range s.remotes.byKey {
		if ses.remote.protocol == id && id != "" {
			s.drop(ses)
		}
	}
}

// EndIdle ends the sessions of remote clients that have not been used for an hour and whose handle,
// if they have given one out, is no longer good.
func (s *Sessions) EndIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.cfg.Now().Add(-remoteIdle)
	for _, ses := range s.remotes.byKey {
		if ses.remote.busy == 0 && ses.remote.used.Before(before) && !ses.hasHandle() {
			s.drop(ses)
		}
	}
}

// hasHandle reports whether a handle of the session is still good.
func (s *Session) hasHandle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handle != "" && s.cfg.Now().Before(s.expires)
}

// endRemotes ends all sessions of remote clients and waits for the record of it.
func (s *Sessions) endRemotes() {
	s.mu.Lock()
	for _, ses := range s.remotes.byKey {
		s.drop(ses)
	}
	s.mu.Unlock()
	s.ending.Wait()
}

// unknownHandle records and returns the refusal of a handle.
func (s *Session) unknownHandle(ctx context.Context, call Call) error {
	req := s.newRequest(call, policy.Read)
	return s.deny(ctx, req, s.denial(req, policy.CodeActivationUnknown,
		"the activation handle is unknown or has expired", "call load_skill again and use the handle it returns"))
}

// hold keeps the end of the session from being recorded before the outcome of a run is. The returned
// function must be called.
func (s *Session) hold() (release func()) {
	s.running.RLock()
	return s.running.RUnlock
}

// end records the end of the session, when it began, and waits for what is still being recorded.
func (s *Session) end(ctx context.Context) error {
	s.running.Lock()
	defer s.running.Unlock()
	s.ended.Store(true)
	s.starting.Lock()
	began, stop := s.began, s.stop
	s.starting.Unlock()
	if !began || stop == nil {
		return nil
	}
	timer := time.AfterFunc(registryPatience, stop)
	s.background.Wait()
	timer.Stop()
	stop()
	if err := s.settle(ctx); err != nil {
		return err
	}
	return s.write(ctx, &provenance.Event{Kind: provenance.KindSessionEnded, Detail: "ended"})
}
