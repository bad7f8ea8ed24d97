package session

import (
	"context"
	"sync"

	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance"
)

// recording is an event that is being recorded in the background.
type recording struct {
	done chan struct{}
	err  error // set before done is closed
}

// recordAhead begins to record an event that comes before all others of a call.
func (s *Session) recordAhead(ctx context.Context, e *provenance.Event) *recording {
	r := &recording{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = s.append(ctx, e)
	}()
	return r
}

// wait waits until the event is on the disk.
//
// Errors: *Error.
func (r *recording) wait() error {
	<-r.done
	return r.err
}

// gate is passed by a script that may start: its request and the policy's warning are recorded, and room is
// reserved for its outcome, since a run without room could not be recorded.
type gate struct {
	session *Session
	ctx     context.Context
	run     *run
	once    sync.Once
	err     error
	room    func() // releases the room; nil if none is reserved
}

// newGate returns the gate of a run that has its command.
func (s *Session) newGate(ctx context.Context, r *run) *gate {
	return &gate{session: s, ctx: ctx, run: r}
}

// pass waits until the script may start. All calls return the result of the first.
//
// Errors: *Error; nothing may start then.
func (g *gate) pass() error {
	g.once.Do(func() { g.err = g.enter() })
	return g.err
}

func (g *gate) enter() error {
	s, r := g.session, g.run
	// The room is reserved while the request is being recorded; a failure is an event that comes after it.
	s.rooms.Lock()
	room, full := s.cfg.Records.Reserve(g.ctx, s.id, RunRoom(r.cmd.Limits))
	s.rooms.Unlock()
	g.room = room
	if err := r.recorded.wait(); err != nil {
		return err
	}
	err := s.warn(g.ctx, r.request, r.script.skill.Path, r.script.path, r.grant.Grant)
	if err != nil {
		return err
	}
	if full != nil {
		return s.refuse(g.ctx, r, fault.OfRecord(full))
	}
	return nil
}

// leave releases the room. Only the first call has an effect.
func (g *gate) leave() {
	if g.room != nil {
		g.room()
	}
}
