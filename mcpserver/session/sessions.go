package session

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance"
)

const (
	// maxRemote is how many sessions of remote clients are open at a time, maxRemoteEach how many
	// of one principal. If there are more, the one that was unused longest rests.
	maxRemote     = 1024
	maxRemoteEach = earlier.MaxEach

	// maxResting is how many sessions are continued in their own records after they gave up their place. If
	// there are more, what was active in the one that was unused longest is restored in another session.
	maxResting = 4 * maxRemote

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

// key returns what finds the session of a call without a handle: a call that narrows itself shares no session
// with a call that does not.
func (c *Call) key(kind, id string) earlier.Key {
	return earlier.KeyOf(c.Principal.Name, c.Profile, c.Parent, kind, id)
}

// keyedState is the state of a session that is found by a key; guarded by Sessions.mu.
type keyedState struct {
	key      earlier.Key
	shared   bool   // by calls that only their principal connects
	guessed  bool   // shared, by what is taken for one conversation
	protocol string // id of the protocol session it ends with
	used     time.Time
	busy     int  // calls under way
	places   int  // that it holds, until its end is recorded: one each time it was opened
	deleted  bool // its record
}

// find finds or opens the session of a call and counts the call in. If the handle of the call does not count
// for it, or is no longer good, the session is the one in which that is recorded, or in which what the handle
// opened is restored.
func (s *Sessions) find(ctx context.Context, call Call) (ses *Session, err error) {
	if call.Handle != "" && call.Named == "" {
		if ses := s.opened(ctx, func() *Session { return s.byHandle(call, s.keyed) }); ses != nil {
			return ses, nil
		}
		if state := s.restingOf(call); state != nil {
			return s.enter(ctx, call, state, nil)
		}
	}
	if s.cfg.Peers != nil && call.keyed() {
		if ses, err := s.locate(ctx, call); ses != nil || err != nil {
			return ses, err
		}
	}
	kind, id := call.ownKey()
	switch {
	case !call.keyed():
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.process == nil {
			s.process, err = s.newSession(call, "")
		}
		return s.process, err
	case kind != "":
	case call.Handle == "" && call.Alone != "":
		kind, id = kindAlone, call.Alone
	case call.Opens && call.Handle == "":
		kind, id = "handle", rand.Text()
	default:
		kind = kindShared
	}
	guessed := kind == kindAlone
	state := &keyedState{key: call.key(kind, id), shared: guessed || kind == kindShared, guessed: guessed}
	if kind == kindProtocol {
		state.protocol = id
	}
	named := kind == kindClient || kind == kindProtocol
	ses, err = s.enter(ctx, call, state, nil)
	if err != nil {
		return ses, err
	}
	if named && s.cfg.Peers != nil {
		return s.claim(ctx, call, ses)
	}
	return ses, err
}

// namesProcess reports whether the name that a call gives its session is one of the process's session: its
// id, or the id that its client had for it, which a session that is resumed has from its record.
func (s *Sessions) namesProcess(call *Call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !call.Remote && call.Profile == "" && call.Parent == "" && s.process.named(call.Named)
}

// named reports whether a session is found by a name without a key. A nil session has no name.
func (s *Session) named(name string) bool {
	return s != nil && name != "" && (name == s.id || name == s.clientID)
}

// parentOf returns the id of the session that a new session of a call belongs to, whose record has begun,
// or "". The call names it by its id or by the name that the client gave it; it is open or was recorded, and
// is of the same principal. On stdio the parent of a narrowed call that names none is the session of the
// process.
//
// Errors: *Error for a parent that is not known.
func (s *Sessions) parentOf(ctx context.Context, call Call) (string, error) {
	name := call.Parent
	switch {
	case name == "" && !call.Remote && call.Profile != "":
		process, err := s.Open(ctx, Call{Principal: call.Principal, Client: call.Client,
			Protocol: call.Protocol, ClientSession: call.ClientSession})
		if err != nil {
			return "", err
		}
		return process.id, process.begun(ctx)
	case name == "":
		return "", nil
	}
	parent := s.opened(ctx, func() *Session {
		if s.process.named(name) && s.process.principal.Name == call.Principal.Name {
			return s.process
		}
		for _, ses := range s.keyed {
			if ses.id == name && ses.principal.Name == call.Principal.Name {
				return ses
			}
		}
		return s.keyed[(&Call{Principal: call.Principal}).key(kindClient, name)]
	})
	if parent != nil {
		return parent.id, parent.begun(ctx)
	}
	if s.earlier.IsOf(ctx, name, call.Principal.Name) {
		return name, nil
	}
	if s.cfg.Peers != nil {
		key := (&Call{Principal: call.Principal}).key(kindClient, name)
		if id, err := s.cfg.Peers.Find(ctx, key, true); err != nil || id != "" {
			return id, err
		}
		return "", fault.ParentUnknown.Because(nil, "{name}", fault.Quote(name))
	}
	if id := s.earlier.Named(ctx, s.shortened(name), call.Principal.Name); id != "" {
		return id, nil
	}
	return "", fault.ParentUnknown.Because(nil, "{name}", fault.Quote(name))
}

const (
	// kindShared is the kind of key of the session of all calls that only their principal connects.
	kindShared = "shared"
	// kindAlone is the kind of key of the session of what is taken for the only conversation of a principal.
	kindAlone = "alone"
	// kindClient is the kind of key of a session that its client names.
	kindClient = "client"
	// kindProtocol is the kind of key of the session of a protocol session.
	kindProtocol = "protocol"
)

// ownKey returns the kind of key that a call without a handle has, and the key; both are empty if there is
// none.
func (c *Call) ownKey() (kind, id string) {
	switch {
	case c.name() != "":
		return kindClient, c.name()
	case c.ProtocolSession != "":
		return kindProtocol, c.ProtocolSession
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

// enter returns the session of a key, which it opens if it is not open, and counts the call in. state is what
// a new one has. A session that takes the place of an earlier one, p, belongs to the parent of p; p is nil
// for others.
func (s *Sessions) enter(
	ctx context.Context, call Call, state *keyedState, p *earlier.Session,
) (*Session, error) {
	key := state.key
	if ses := s.opened(ctx, func() *Session { return s.keyed[key] }); ses != nil {
		return ses, nil
	}
	var parent string
	var err error
	switch {
	case p == nil:
		parent, err = s.parentOf(ctx, call)
	case p.Child:
		parent = p.Parent
	}
	if err != nil {
		return nil, err
	}
	if err := s.takePlace(ctx, call.Principal.Name); err != nil {
		return nil, err
	}
	return s.seat(ctx, call.Principal.Name, key, func() (*Session, error) {
		ses, err := s.newSession(call, parent)
		if err != nil {
			return ses, err
		}
		ses.keyed = state
		return ses, err
	})
}

// takePlace takes a place for one more session, which it has until its end is recorded: until then it has
// files open.
func (s *Sessions) takePlace(ctx context.Context, principal string) error {
	taken := s.places.Take(ctx, principal, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.relieve()
	})
	switch {
	case !taken && s.cfg.MaxRemote < maxRemote:
		return fault.FilesExhausted.Because(errTooMany) // there would be more places with more open files
	case !taken:
		return fault.SessionsInUse.Because(errTooMany)
	}
	return nil
}

// seat opens a session in a place that was taken, unless one with its key is open, and counts the call in.
func (s *Sessions) seat(
	ctx context.Context, principal string, key earlier.Key, open func() (*Session, error),
) (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses := s.keyed[key]
	if ses != nil {
		s.places.Free() // another call opened it in between
	} else {
		var err error
		ses = s.resting[key]
		switch {
		case !s.makeOwnRoom(principal):
			err = fault.SessionsInUse.Because(errTooMany)
		case ses == nil:
			ses, err = open()
		}
		if err != nil {
			s.places.Free()
			return nil, err
		}
		ses.keyed.places++
		s.keyed[key] = ses
		delete(s.resting, key)
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

// isGuessed reports whether nothing but a guess connects the calls of a session.
func (s *Session) isGuessed() bool { return s.keyed != nil && s.keyed.guessed }

// leave counts a call out. Sessions.mu is held.
func (s *Sessions) leave(ses *Session) {
	k := ses.keyed
	k.used = s.cfg.Now()
	k.busy--
	if !k.shared || ses.decisions.Load() < maxShared {
		s.relieve()
		return
	}
	if s.keyed[k.key] == ses {
		delete(s.keyed, k.key)
	}
	if k.busy == 0 {
		s.finish(ses)
	}
}

// byHandle returns the principal's session of those that gave out the call's handle, or the session of the
// process, if the handle counts for the call, or nil. Sessions.mu is held.
func (s *Sessions) byHandle(call Call, of map[earlier.Key]*Session) *Session {
	// Hashed once for all sessions: a client may send a long text as a handle.
	sum := earlier.Sum(call.Handle)
	if s.process != nil && !call.keyed() && s.process.ownsSum(sum) {
		return s.process
	}
	for _, ses := range of {
		if ses.principal.Name == call.Principal.Name && call.admits(ses.profile, ses.parentName) &&
			ses.ownsSum(sum) {
			return ses
		}
	}
	return nil
}

// restingOf returns what finds the resting session that gave out the call's handle, or nil.
func (s *Sessions) restingOf(call Call) *keyedState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ses := s.byHandle(call, s.resting); ses != nil {
		return ses.keyed
	}
	return nil
}

// rest ends a session to make room. Its record is continued when a call belongs to it again, unless only a
// guess leads there. Sessions.mu is held.
func (s *Sessions) rest(ses *Session) {
	s.drop(ses)
	if ses.keyed.shared || s.cfg.Peers != nil { // any server may continue it
		return
	}
	if len(s.resting) >= maxResting {
		longest := slices.MinFunc(slices.Collect(maps.Values(s.resting)), func(x, y *Session) int {
			return x.keyed.used.Compare(y.keyed.used)
		})
		delete(s.resting, longest.keyed.key)
	}
	s.resting[ses.keyed.key] = ses
}

// awaken continues the record of a session that rested. A session that has ended for good stays so.
//
// Errors: the record cannot be written; provenance.ErrNotFound if it was deleted.
func (s *Session) awaken(ctx context.Context) error {
	if !s.ended.Load() || s.keyed == nil {
		return nil
	}
	s.Sessions.mu.Lock()
	open, deleted := s.Sessions.keyed[s.keyed.key] == s, s.keyed.deleted
	s.Sessions.mu.Unlock()
	switch {
	case deleted:
		return provenance.ErrNotFound
	case !open:
		return nil
	}
	s.runs.Lock() // until the end is recorded
	defer s.runs.Unlock()
	if !s.ended.Load() {
		return nil // another call was first
	}
	if s.endRecorded {
		s.sequence.Lock()
		err := s.begin(context.WithoutCancel(ctx), provenance.KindSessionResumed)
		s.sequence.Unlock()
		if err != nil {
			return err
		}
		s.endRecorded = false
	}
	s.closing.Lock()
	defer s.closing.Unlock()
	s.ended.Store(false)
	return nil
}

// forget drops a session whose record was deleted, and with it what the session had loaded.
func (s *Sessions) forget(ses *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses.keyed.deleted = true
	if s.keyed[ses.keyed.key] == ses {
		s.drop(ses)
	}
}

// relieve ends an unused session if more calls wait for a place than sessions are ending. Its principal has
// the most sessions, and no fewer than one that waits, so that nobody can end the sessions of others by
// opening many. Sessions.mu is held.
func (s *Sessions) relieve() {
	if each, least := s.places.Wanted(s.held, s.endings); least > 0 {
		if ses := s.unused(each, least); ses != nil {
			s.rest(ses)
		}
	}
}

// held returns how many sessions each principal has open. Sessions.mu is held.
func (s *Sessions) held() map[string]int {
	each := map[string]int{}
	for _, ses := range s.keyed {
		each[ses.principal.Name]++
	}
	return each
}

// makeOwnRoom keeps a principal within its share of the sessions when it opens one more, and reports whether
// it is: all its sessions may have calls under way. Sessions.mu is held.
func (s *Sessions) makeOwnRoom(principal string) bool {
	n := s.held()[principal]
	if n < min(maxRemoteEach, max(1, s.cfg.MaxRemote/2)) {
		return true
	}
	ses := s.unused(map[string]int{principal: n}, 1)
	if ses != nil {
		s.rest(ses)
	}
	return ses != nil
}

// unused returns the session that was unused longest, of the principal with the most in each, who has at
// least least; it returns nil if nobody has that many. Sessions.mu is held.
func (s *Sessions) unused(each map[string]int, least int) (oldest *Session) {
	for _, ses := range s.keyed {
		n := each[ses.principal.Name]
		if ses.keyed.busy > 0 || n < least {
			continue
		}
		if oldest == nil || n > each[oldest.principal.Name] ||
			n == each[oldest.principal.Name] && ses.keyed.used.Before(oldest.keyed.used) {
			oldest = ses
		}
	}
	return oldest
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
	s.endings++
	s.ending.Go(func() {
		err := ses.end(context.Background())
		ses.remember() // calls that were under way may have loaded more
		s.mu.Lock()
		defer s.mu.Unlock()
		s.endings--
		if err == nil {
			if ses.keyed.places > 0 {
				ses.keyed.places--
				s.places.Free()
			}
			return
		}
		s.cfg.Logger.Error("end of a session not recorded", slog.String("session", ses.id), tint.Err(err))
		s.unended = append(s.unended, ses)
	})
}

// endThose ends the keyed sessions that over selects, for good those that rest, and tries again to record the
// ends that could not be recorded.
func (s *Sessions) endThose(over func(*Session) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unended := s.unended
	s.unended = nil
	for _, ses := range unended {
		if s.keyed[ses.keyed.key] != ses { // it is in use again
			s.finish(ses)
		}
	}
	for _, ses := range s.keyed {
		if over(ses) {
			s.drop(ses)
		}
	}
	maps.DeleteFunc(s.resting, func(_ earlier.Key, ses *Session) bool { return over(ses) })
}

// EndProtocolSession ends the session of a protocol session that is over. It does not wait until that is
// recorded.
func (s *Sessions) EndProtocolSession(id string) {
	s.endThose(func(ses *Session) bool { return ses.keyed.protocol == id && id != "" })
}

// EndIdle ends the sessions of remote clients that have not been used for an hour and whose handles, if they
// gave any out, have expired. It tries again to record the ends that could not be recorded.
func (s *Sessions) EndIdle() {
	now := s.cfg.Now()
	s.endThose(func(ses *Session) bool {
		if ses.keyed.busy > 0 || !ses.keyed.used.Before(now.Add(-remoteIdle)) {
			return false
		}
		if ses.keyed.guessed {
			return true // who comes after an hour may be another conversation; the handles stay good
		}
		ses.mu.Lock()
		defer ses.mu.Unlock()
		return !slices.ContainsFunc(slices.Collect(maps.Values(ses.secrets)), now.Before)
	})
}

// GiveUp ends a session whose record is to be deleted, for good: a client that comes back has a session
// anew, and its handle is unknown. It reports whether the record may go: not while a call is under way, a
// question may be open, or the end cannot be recorded, and never of the session of the process.
func (s *Sessions) GiveUp(ctx context.Context, id string) bool {
	s.mu.Lock()
	for _, of := range []map[earlier.Key]*Session{s.keyed, s.resting} {
		for key, ses := range of {
			if ses.id != id {
				continue
			}
			free := ses.keyed.busy == 0 && !s.cfg.Now().Before(ses.keyed.used.Add(AskLife))
			if free && s.keyed[key] == ses {
				s.drop(ses)
			} else if free {
				delete(s.resting, key)
			}
			s.mu.Unlock()
			return free && ses.end(ctx) == nil
		}
	}
	defer s.mu.Unlock()
	return s.process == nil || s.process.id != id
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
	s.close()
	if s.endRecorded {
		return nil
	}
	s.sequence.Lock()
	began := s.began
	s.sequence.Unlock()
	if !began {
		return nil
	}
	s.background.Wait()
	err := s.flushPending(ctx)
	if err == nil {
		err = s.write(ctx, &provenance.Event{Kind: provenance.KindSessionEnded, Detail: "ended"})
	}
	if errors.Is(err, provenance.ErrLost) { // another server continues it
		s.cfg.Records.Release(s.id)
		err = nil
	}
	s.endRecorded = err == nil
	return err
}
