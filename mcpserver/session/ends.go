package session

import (
	"context"
	"time"

	"github.com/skillsd/skillsd/provenance"
)

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

// maxShared is after how many decisions the session that calls share gives way to the next, so that no
// record grows without bound.
const maxShared = 20_000

func (s *Sessions) leave(ses *Session) {
	ses.keyed.used = s.cfg.Now()
	ses.keyed.busy--
	if ses.keyed.shared && ses.decisions.Load() >= maxShared {
		s.retire(ses)
	}
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

// EndProtocolSession ends the session of a protocol session that is over. It does not wait for the
// record of that.
func (s *Sessions) EndProtocolSession(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ses := range s.keyed.byKey {
		if ses.keyed.protocol == id && id != "" {
			s.drop(ses)
		}
	}
}

// EndIdle ends the sessions of remote clients that have not been used for an hour and whose handle,
// if they have given one out, is no longer good. It tries again what end could not be recorded.
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

// endKeyed ends all sessions of remote clients and waits for the record of it.
func (s *Sessions) endKeyed() {
	s.mu.Lock()
	s.finishAgain()
	for _, ses := range s.keyed.byKey {
		s.drop(ses)
	}
	s.mu.Unlock()
	s.ending.Wait()
}

// hold keeps the end of the session from being recorded before the outcome of a run is. The returned
// function must be called.
func (s *Session) hold() (release func()) {
	s.running.RLock()
	return s.running.RUnlock
}

// end records the end of the session, once and when it began, and waits for what is still being recorded.
// It can be called again when that was not possible; nothing else is recorded then.
func (s *Session) end(ctx context.Context) error {
	s.running.Lock()
	defer s.running.Unlock()
	// What a call records behind the end would open the record again, for good.
	s.closing.Lock()
	s.ended.Store(true)
	s.closing.Unlock()
	if s.endRecorded.Load() {
		return nil
	}
	s.starting.Lock()
	began, stop := s.began, s.stop
	s.starting.Unlock()
	if !began {
		return nil
	}
	if stop != nil {
		timer := time.AfterFunc(registryPatience, stop)
		s.background.Wait()
		timer.Stop()
		stop()
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	err := s.write(ctx, &provenance.Event{Kind: provenance.KindSessionEnded, Detail: "ended"})
	s.endRecorded.Store(err == nil)
	return err
}
