package session

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"time"

	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
)

// remoteIdle is the time after which an unused session without a valid handle is ended.
const remoteIdle = time.Hour

// key returns the key of the session of a call. It covers the profile and the parent: calls that are narrowed
// differently share no session.
func (c *Call) key(kind, id string) earlier.Key {
	return earlier.KeyOf(c.Principal.Name, c.Profile, c.Parent, kind, id)
}

// find finds or opens the session of a call, and keeps it open until ctx ends. If the handle is invalid for
// the call or has expired, find returns the session that records the refusal or restores the skills.
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
	if !call.keyed() {
		return s.table.begin(func() (*Session, error) { return s.newSession(call, "") })
	}
	state, named := call.keyedState()
	ses, err = s.enter(ctx, call, state, nil)
	if err != nil {
		return ses, err
	}
	if named && s.cfg.Peers != nil {
		return s.claim(ctx, call, ses)
	}
	return ses, nil
}

// keyedState returns the state of a session that would be opened for the call, and whether the client named
// the session: other servers may then know it.
func (c *Call) keyedState() (_ *keyedState, named bool) {
	kind, id := c.ownKey()
	named = kind == kindClient || kind == kindProtocol
	switch {
	case kind != "":
	case c.Handle == "" && c.Alone != "":
		kind, id = kindAlone, c.Alone
	case c.Opens && c.Handle == "":
		// Only the handle finds this session again: its key must be unique.
		kind, id = "handle", rand.Text()
	default:
		kind = kindShared
	}
	state := &keyedState{key: c.key(kind, id), guessed: kind == kindAlone}
	state.shared = state.guessed || kind == kindShared
	if kind == kindProtocol {
		state.protocol = id
	}
	return state, named
}

// namesProcess reports whether a call names the session of the process: by its id, or by the id that its
// client uses, which a resumed session has from its record.
func (s *Sessions) namesProcess(call *Call) bool {
	return !call.Remote && call.Profile == "" && call.Parent == "" && s.table.current().named(call.Named)
}

// named reports whether name is the session's id or its client's id of it. A nil session has no name.
func (s *Session) named(name string) bool {
	return s != nil && name != "" && (name == s.id || name == s.clientID)
}

// parentOf returns the id of the parent of a new session of a call, or "". The record of the parent has
// begun. The call names the parent by its id or by the client's name of it; the parent is open or recorded,
// and belongs to the same principal. On stdio, a narrowed call without a parent gets the session of the
// process.
//
// Errors: *Error if the parent is unknown.
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
	kindShared   = "shared"   // the session of all calls that only their principal connects
	kindAlone    = "alone"    // the session of the conversation that seems to be its principal's only one
	kindClient   = "client"   // a session that its client names
	kindProtocol = "protocol" // the session of a protocol session
)

// ownKey returns the kind and the id of the key that a call itself has; both are empty if it has no key.
func (c *Call) ownKey() (kind, id string) {
	switch {
	case c.name() != "":
		return kindClient, c.name()
	case c.ProtocolSession != "":
		return kindProtocol, c.ProtocolSession
	}
	return "", ""
}

// enter returns the session with the key of state, and keeps it open until ctx ends. If the session is not
// open, enter opens one with that state. A session that replaces an earlier one, p, has the parent of p; p is
// nil for other sessions.
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
	place, err := s.table.acquirePlace(ctx, call.Principal.Name)
	if err != nil {
		return nil, err
	}
	return s.table.seat(ctx, call.Principal.Name, key, place, func() (*Session, error) {
		ses, err := s.newSession(call, parent)
		if err != nil {
			return ses, err
		}
		ses.keyed = state
		return ses, nil
	})
}

// isGuessed reports whether the server only guesses that the calls of a session belong together.
func (s *Session) isGuessed() bool { return s.keyed != nil && s.keyed.guessed }

// EndProtocolSession ends the session of a protocol session that has ended. It does not wait for the record.
func (s *Sessions) EndProtocolSession(id string) {
	s.table.endWhere(func(ses *Session) bool { return ses.keyed.protocol == id && id != "" })
}

// EndIdle ends the sessions of remote clients that have not been used for an hour and have no valid handle.
// It retries to record the ends that could not be recorded.
func (s *Sessions) EndIdle() {
	now := s.cfg.Now()
	s.table.endWhere(func(ses *Session) bool {
		if ses.keyed.busy > 0 || !ses.keyed.used.Before(now.Add(-remoteIdle)) {
			return false
		}
		if ses.keyed.guessed {
			// The next call may belong to another conversation. The handles of this one stay valid.
			return true
		}
		ses.mu.Lock()
		defer ses.mu.Unlock()
		return !slices.ContainsFunc(slices.Collect(maps.Values(ses.handles)), now.Before)
	})
}

// GiveUp ends a session for good, so that its record can be deleted: a client that returns gets a new
// session, and its handle is unknown. It reports whether the record may be deleted. It may not while a call
// is being served, while a question may be open, if the end cannot be recorded, or if it is the session of
// the process.
func (s *Sessions) GiveUp(ctx context.Context, id string) bool {
	ses, over := s.table.giveUp(id, AskLife)
	return over && (ses == nil || ses.end(ctx) == nil)
}
