// Package elsewhere has the parts of sessions that only several machines need: [Peers], which finds the
// server of a session, and the messages about a run between a server and a worker, [Job] and [Done].
//
// A session is served by the server that wrote it last, while that server renews its cell. A session whose
// cell has expired belongs to no server.
package elsewhere

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/provenance"
)

// Cells are values that servers share, each for a limited time; see approval.Cells.
type Cells interface {
	Change(ctx context.Context, key string, life time.Duration, change func(value []byte) []byte) error
}

// Holder names the server that has a session.
type Holder struct {
	Own     bool // this server has it
	Held    bool
	Address string // of another server
}

// Peers finds sessions. It is safe for concurrent use.
type Peers struct {
	// Replaced, if not nil, returns the address of a server that replaces this one. While ok is set, this
	// server neither begins nor takes over sessions.
	Replaced func() (address string, ok bool)

	cells  Cells
	holder func(ctx context.Context, id string) (Holder, error)

	mu     sync.Mutex
	locked map[string]chan struct{} // closed when the session is unlocked
}

// New returns Peers that find sessions in cells. holder returns the server that has a session; its error is
// provenance.ErrNotFound if the session has no record.
func New(cells Cells, holder func(ctx context.Context, id string) (Holder, error)) *Peers {
	return &Peers{cells: cells, holder: holder, locked: map[string]chan struct{}{}}
}

// Life is how long a name finds its session after its last use.
const Life = 7 * 24 * time.Hour

// renewed is the age from which a look-up renews a cell.
const renewed = time.Hour

// Name makes a key find a session for a limited time, unless it finds another session already. It returns the
// id of the session that the key finds.
//
// Errors: the errors of the cells.
func (p *Peers) Name(ctx context.Context, key earlier.Key, id string, life time.Duration) (string, error) {
	found := id
	err := p.change(ctx, key, life, func(is string, _ time.Time) string {
		if is != "" && is != id {
			found = is
			return ""
		}
		return id
	})
	return found, err
}

// Find returns the id of the session that a key finds, or "". If the session is found by its name, Find
// renews the name for Life.
//
// Errors: the errors of the cells.
func (p *Peers) Find(ctx context.Context, key earlier.Key, named bool) (id string, err error) {
	err = p.change(ctx, key, Life, func(is string, at time.Time) string {
		id = is
		if named && is != "" && time.Since(at).Abs() > renewed {
			return is
		}
		return ""
	})
	return id, err
}

// forget removes a key.
//
// Errors: the errors of the cells.
func (p *Peers) forget(ctx context.Context, key earlier.Key, id string) error {
	return p.cells.Change(ctx, cell(key), time.Second, func(value []byte) []byte {
		if is, _ := parse(value); is != id {
			return nil
		}
		// Cells cannot be deleted. parse finds no session in this value, which expires soon.
		return []byte("gone")
	})
}

// change sets the session that a key finds; "" does not change it.
func (p *Peers) change(
	ctx context.Context, key earlier.Key, life time.Duration, to func(is string, at time.Time) string,
) error {
	return p.cells.Change(ctx, cell(key), life, func(value []byte) []byte {
		id := to(parse(value))
		if id == "" {
			return nil
		}
		return fmt.Appendf(nil, "%d %s", time.Now().Unix(), id)
	})
}

func cell(key earlier.Key) string { return "session " + hex.EncodeToString(key[:]) }

// parse reads the value of a cell; id is empty if it names no session.
func parse(value []byte) (id string, at time.Time) {
	seconds, name, _ := bytes.Cut(value, []byte(" "))
	unix, err := strconv.ParseInt(string(seconds), 10, 64)
	if err != nil {
		return "", at
	}
	return string(name), time.Unix(unix, 0)
}

// patience is how long a call waits for its session, which another server ends or takes, and pause is between
// two looks.
const (
	patience = 5 * time.Second
	pause    = 20 * time.Millisecond
)

// Key is what may find a session.
type Key struct {
	earlier.Key
	Named bool // by its client, who may do without it for long
}

// Host is a server, as a call looks for its session S there.
type Host[S comparable] struct {
	// Here returns the session with an id, zero if it is not valid for the call, and whether it is open.
	Here func(id string) (s S, open bool)
	// Take continues a session that no server has. It returns zero if the session is not valid for the call.
	// Its error is provenance.ErrLost if another server took the session first.
	Take   func(ctx context.Context, id string) (S, error)
	Ending func() bool // the server, which takes no session any more
	Passed bool        // the call was passed on by another server
}

// Locate returns the session that the first of the keys finds, or zero if no key finds a session that is
// valid for the call. At a server that was replaced, a session that no server has, or that is to be begun, is
// elsewhere.
//
// Errors: *MovedError if another server has the session, provenance.ErrLost if the holder could not be
// found within five seconds, the errors of the cells and of Take, or the error of ctx.
func Locate[S comparable](ctx context.Context, p *Peers, keys []Key, h Host[S]) (found S, err error) {
	var none S
	for _, key := range keys {
		id, err := p.Find(ctx, key.Key, key.Named)
		if err != nil {
			return none, err
		}
		for begin := time.Now(); id != "" && found == none; {
			found, err = locate(ctx, p, id, h)
			switch {
			// The session was deleted.
			case errors.Is(err, provenance.ErrNotFound):
				err = p.forget(ctx, key.Key, id)
			case errors.Is(err, provenance.ErrLost) && time.Since(begin) < patience:
				select {
				case <-time.After(pause):
					continue
				case <-ctx.Done():
					err = ctx.Err()
				}
			}
			if err != nil {
				return none, err
			}
			break
		}
		if found != none {
			return found, nil
		}
	}
	return none, p.elsewhere(h.Passed)
}

// elsewhere returns where this server has been replaced, or nil.
func (p *Peers) elsewhere(passed bool) error {
	if p.Replaced == nil {
		return nil
	}
	address, ok := p.Replaced()
	switch {
	case !ok:
		return nil
	case passed:
		return &MovedError{}
	}
	return &MovedError{Address: address}
}

// locate looks for the session of an id at this moment.
func locate[S comparable](ctx context.Context, p *Peers, id string, h Host[S]) (none S, err error) {
	unlock, err := p.lock(ctx, id)
	if err != nil {
		return none, err
	}
	defer unlock()
	if s, open := h.Here(id); open {
		return s, nil
	}
	holder, err := p.holder(ctx, id)
	if err != nil {
		return none, err
	}
	if err := h.mayTake(holder); err != nil {
		return none, err
	}
	if err := p.elsewhere(h.Passed); err != nil {
		return none, err
	}
	free, err := p.reserve(ctx, id)
	if err != nil {
		return none, err
	}
	defer free()
	// Another server may have taken it, and freed it, since it was looked for.
	holder, err = p.holder(ctx, id)
	if err != nil {
		return none, err
	}
	if holder.Own || holder.Held {
		return none, provenance.ErrLost
	}
	return h.Take(ctx, id)
}

// mayTake returns why the server does not take a session from its holder, or nil.
func (h *Host[S]) mayTake(holder Holder) error {
	switch ending := h.Ending(); {
	case holder.Own && !ending:
		// The end of the session is still being recorded here.
		return provenance.ErrLost
	case holder.Held && !holder.Own && !ending && !h.Passed:
		return &MovedError{Address: holder.Address}
	case holder.Held, ending:
		return &MovedError{}
	}
	return nil
}

// reserved is how long other servers do not take a session that one is about to take, and may have died of.
const reserved = 30 * time.Second

// reserve prevents other servers from taking a session. Without it, the files that a slower server writes
// before the event that names them would replace the files of a faster one.
//
// Errors: provenance.ErrLost if another server has reserved it, the errors of the cells.
func (p *Peers) reserve(ctx context.Context, id string) (free func(), err error) {
	token, taken := []byte(rand.Text()), false
	err = p.cells.Change(ctx, "take "+id, reserved, func(value []byte) []byte {
		taken = len(value) > 0 && !bytes.Equal(value, token)
		if taken {
			return nil
		}
		return token
	})
	if err == nil && taken {
		err = provenance.ErrLost
	}
	return func() {
		// One that is not freed ends by itself.
		_ = p.cells.Change(context.WithoutCancel(ctx), "take "+id, time.Second, func(value []byte) []byte {
			if !bytes.Equal(value, token) {
				return nil
			}
			return []byte{}
		})
	}, err
}

// lock waits until no other call of this process has locked the session.
//
// Errors: the error of ctx.
func (p *Peers) lock(ctx context.Context, id string) (unlock func(), err error) {
	for {
		p.mu.Lock()
		before := p.locked[id]
		if before == nil {
			done := make(chan struct{})
			p.locked[id] = done
			p.mu.Unlock()
			return func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				delete(p.locked, id)
				close(done)
			}, nil
		}
		p.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// MovedError is the error of a call whose session another server has.
type MovedError struct {
	Address string // of that server; empty if the call is to be sent again, to whichever has it then
}

func (e *MovedError) Error() string { return "the session is at " + strconv.Quote(e.Address) }
