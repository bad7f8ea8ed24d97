package session

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance"
)

// remoteIdle is how long an unused session without a valid handle stays open.
const remoteIdle = time.Hour

// key returns what finds the session of a call without a handle: a call that narrows itself shares no session
// with a call that does not.
func (c *Call) key(kind, id string) earlier.Key {
	return earlier.KeyOf(c.Principal.Name, c.Profile, c.Parent, kind, id)
}

// find finds or opens the session of a call and counts the call in. If the handle of the call does not count
// for it, or is no longer good, the session is the one in which that is recorded, or in which what the handle
// opened is restored.
func (s *Sessions) find(ctx context.Context, call Call) (ses *Session, err error) {
	if call.Handle != "" && call.Named == "" {
		ses := s.table.enter(ctx, func() *Session { return s.table.byHandle(call, s.table.keyed) })
		if ses != nil {
			return ses, nil
		}
		if state := s.table.restingOf(call); state != nil {
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
		return s.table.begin(func() (*Session, error) { return s.newSession(call, "") })
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
	return !call.Remote && call.Profile == "" && call.Parent == "" && s.table.current().named(call.Named)
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
	t := s.table
	parent := t.enter(ctx, func() *Session {
		if t.process.named(name) && t.process.principal.Name == call.Principal.Name {
			return t.process
		}
		for _, ses := range t.keyed {
			if ses.id == name && ses.principal.Name == call.Principal.Name {
				return ses
			}
		}
		return t.keyed[(&Call{Principal: call.Principal}).key(kindClient, name)]
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

// enter returns the session of a key, which it opens if it is not open, and counts the call in. state is what
// a new one has. A session that takes the place of an earlier one, p, belongs to the parent of p; p is nil
// for others.
func (s *Sessions) enter(
	ctx context.Context, call Call, state *keyedState, p *earlier.Session,
) (*Session, error) {
	key := state.key
	if ses := s.table.enterKey(ctx, key); ses != nil {
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
	if err := s.table.acquirePlace(ctx, call.Principal.Name); err != nil {
		return nil, err
	}
	return s.table.seat(ctx, call.Principal.Name, key, func() (*Session, error) {
		ses, err := s.newSession(call, parent)
		if err != nil {
			return ses, err
		}
		ses.keyed = state
		return ses, err
	})
}

// isGuessed reports whether nothing but a guess connects the calls of a session.
func (s *Session) isGuessed() bool { return s.keyed != nil && s.keyed.guessed }

// reopen continues the record of a session that rested. A session that has ended for good stays so.
//
// Errors: the record cannot be written; provenance.ErrNotFound if it was deleted.
func (s *Session) reopen(ctx context.Context) error {
	if !s.ended.Load() || s.keyed == nil {
		return nil
	}
	open, deleted := s.table.state(s)
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

// EndProtocolSession ends the session of a protocol session that is over. It does not wait until that is
// recorded.
func (s *Sessions) EndProtocolSession(id string) {
	s.table.endWhere(func(ses *Session) bool { return ses.keyed.protocol == id && id != "" })
}

// EndIdle ends the sessions of remote clients that have not been used for an hour and whose handles, if they
// gave any out, have expired. It tries again to record the ends that could not be recorded.
func (s *Sessions) EndIdle() {
	now := s.cfg.Now()
	s.table.endWhere(func(ses *Session) bool {
		if ses.keyed.busy > 0 || !ses.keyed.used.Before(now.Add(-remoteIdle)) {
			return false
		}
		if ses.keyed.guessed {
			return true // who comes after an hour may be another conversation; the handles stay good
		}
		ses.mu.Lock()
		defer ses.mu.Unlock()
		return !slices.ContainsFunc(slices.Collect(maps.Values(ses.handles)), now.Before)
	})
}

// GiveUp ends a session whose record is to be deleted, for good: a client that comes back has a session
// anew, and its handle is unknown. It reports whether the record may go: not while a call is under way, a
// question may be open, or the end cannot be recorded, and never of the session of the process.
func (s *Sessions) GiveUp(ctx context.Context, id string) bool {
	ses, over := s.table.giveUp(id, AskLife)
	return over && (ses == nil || ses.end(ctx) == nil)
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
