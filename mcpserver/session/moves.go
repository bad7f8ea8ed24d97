package session

import (
	"context"
	"errors"
	"log/slog"

	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/mcpserver/session/elsewhere"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// locate returns the session of a call with a name or a handle, on whichever server it was opened; else nil.
//
// Errors: *Error, with *elsewhere.MovedError as its cause if another server has the session.
func (s *Sessions) locate(ctx context.Context, call Call) (*Session, error) {
	var keys []elsewhere.Key
	if call.Handle != "" && call.Named == "" {
		handle := earlier.HandleKey(call.Principal.Name, earlier.Sum(call.Handle))
		keys = append(keys, elsewhere.Key{Key: handle})
	}
	if kind, name := call.ownKey(); kind != "" {
		keys = append(keys, elsewhere.Key{Key: call.key(kind, name), Named: true})
	}
	ses, err := elsewhere.Locate(ctx, s.cfg.Peers, keys, elsewhere.Host[*Session]{
		Here: func(id string) (_ *Session, open bool) {
			ses := s.table.enter(ctx, func() *Session {
				for _, ses := range s.table.keyed {
					open = ses.id == id
					if open {
						return ses
					}
				}
				return nil
			})
			if open && (ses.principal.Name != call.Principal.Name ||
				!call.admits(ses.profile, ses.parentName)) {
				ses = nil
			}
			return ses, open
		},
		Take:   func(ctx context.Context, id string) (*Session, error) { return s.takeOver(ctx, call, id) },
		Ending: func() bool { return s.serving.Err() != nil },
		Passed: call.Forwarded,
	})
	public, ok := errors.AsType[*Error](err)
	_, moved := errors.AsType[*elsewhere.MovedError](err)
	switch {
	case err == nil:
		return ses, nil
	case moved:
		return nil, fault.SessionMoved.Because(err)
	case ok && !errors.Is(err, provenance.ErrLost):
		return nil, public
	}
	return nil, fault.OfRecord(err)
}

// claim registers the name of a session among all servers, and returns the session with that name: another
// server may have registered it first.
//
// Errors: as locate.
func (s *Sessions) claim(ctx context.Context, call Call, ses *Session) (*Session, error) {
	if err := ses.ensureStarted(ctx); err != nil {
		return nil, err
	}
	id, err := s.cfg.Peers.Name(ctx, ses.keyed.key, ses.id, elsewhere.Life)
	if err != nil {
		return nil, fault.OfRecord(err)
	} else if id == ses.id {
		return ses, nil
	}
	// The session that was registered first must be the only one that calls find by the name.
	s.table.lose(ses)
	// The client means the session with the name, even if a handle leads to another.
	call.Handle = ""
	first, err := s.locate(ctx, call)
	if first == nil && err == nil {
		err = fault.SessionMoved.Because(provenance.ErrNotFound)
	}
	return first, err
}

// publish registers a handle, so that all servers find the session by it, before the client gets the handle.
//
// Errors: *Error.
func (s *Session) publish(ctx context.Context, l *Loaded) error {
	if s.cfg.Peers == nil || s.published.Load() == l.Handle {
		return nil
	}
	key := earlier.HandleKey(s.principal.Name, earlier.Sum(l.Handle))
	if _, err := s.cfg.Peers.Name(ctx, key, s.id, l.Until.Sub(s.cfg.Now())); err != nil {
		return fault.OfRecord(err)
	}
	s.published.Store(l.Handle)
	return nil
}

// takeOver continues the record of a session that no server has. Its skills are active if their files are the
// same. Approvals for the rest of the session are not restored: the user is asked again.
func (s *Sessions) takeOver(ctx context.Context, call Call, id string) (taken *Session, err error) {
	// A record that was taken must be continued or released, even if the caller has left.
	ctx = context.WithoutCancel(ctx)
	if err := s.cfg.Records.Take(ctx, id); err != nil {
		return nil, err
	}
	var ses *Session
	defer func() {
		if ses != nil && taken != ses {
			// This ends the goroutines that wait for late outcomes.
			ses.close()
		}
		if taken == nil {
			s.cfg.Records.Release(id)
		}
	}()
	// The record is read only after Take, since another server could still append to it before.
	past, err := cfharness.Recall(ctx, s.cfg.Records, id)
	if err != nil || past.Principal != call.Principal.Name || !call.admits(past.Profile, past.ParentSession) {
		return nil, err
	}
	place, err := s.table.acquirePlace(ctx, call.Principal.Name)
	if err != nil {
		return nil, err
	}
	ses, err = s.recalled(Call{Principal: call.Principal, Client: call.Client, Protocol: call.Protocol,
		Remote: true}, id, past)
	if err != nil {
		place.Release()
		return nil, err
	}
	if err := ses.continued(ctx, past); err != nil {
		place.Release()
		return nil, err
	}
	ses.recordInBackground()
	ses.keyed = &keyedState{key: earlier.KeyOf(call.Principal.Name, "", "", "moved", id)}
	// A call without a name belongs to the session of its protocol session.
	if call.name() == "" && ses.clientID == call.lasting() {
		ses.keyed.protocol = call.ProtocolSession
	}
	s.cfg.Logger.InfoContext(ctx, "session taken over", slog.String("session", id))
	return s.table.seat(ctx, call.Principal.Name, ses.keyed.key, place,
		func() (*Session, error) { return ses, nil })
}

// continued records that a session goes on in its earlier record, and restores its skills and the outcomes of
// its runs.
func (s *Session) continued(ctx context.Context, past *cfharness.Recollection) error {
	if err := s.recordStart(ctx, provenance.KindSessionResumed); err != nil {
		return err
	}
	if _, err := s.resumeActivations(ctx, past, false); err != nil {
		return err
	}
	return s.settleUnfinished(ctx, past)
}
