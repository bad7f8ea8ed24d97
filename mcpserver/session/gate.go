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

// gate is where a script waits that is ready to start: until its request is recorded, there is room for its
// outcome, and what enforcement would have refused is recorded too. Without room, a run would happen without
// a record.
type gate struct {
	session *Session
	ctx     context.Context
	run     *run
	once    sync.Once
	err     error
	room    func() // releases the room; nil until there is some
}

// newGate returns the gate of a run whose command was made.
func (s *Session) newGate(ctx context.Context, r *run) *gate {
	return &gate{session: s, ctx: ctx, run: r}
}

// pass waits until the script may start. All calls return the same.
//
// Errors: *Error; nothing may start then.
func (g *gate) pass() error {
	g.once.Do(func() { g.err = g.enter() })
	return g.err
}

func (g *gate) enter() error {
	s, r := g.session, g.run
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

// leave releases the room, if there is some. Only the first call does something.
func (g *gate) leave() {
	if g.room != nil {
		g.room()
	}
}
