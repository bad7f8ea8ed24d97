// Package slots hands out the slots in which scripts run, with fair shares for principals.
package slots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Max is the most slots of a queue.
const Max = 1024

// Default returns the default number of slots: four for each processor, at most Max.
func Default() int { return min(4*runtime.NumCPU(), Max) }

const (
	// maxWaiting is how many runs wait for a slot at a time, maxWaitingEach how many of one principal.
	// Each holds its arguments and its input, and over HTTP a connection.
	maxWaiting     = 512
	maxWaitingEach = 256

	// waitingDescriptors is which part of this process's file descriptors runs that wait may hold.
	waitingDescriptors = 4

	// placeEvery is how often a run that waits reports how many come before it.
	placeEvery = 5 * time.Second

	// maxWait is how long a run waits. Few clients wait longer, and who is answered can do something else.
	maxWait = 2 * time.Minute
)

// Kinds of errors of a Queue.
var (
	ErrCrowded = errors.New("too many runs wait")
	ErrClosed  = errors.New("the queue is closed")
)

// A LateError means that no slot was free for two minutes.
type LateError struct{ Before int } // runs that still come before this one

func (e *LateError) Error() string {
	return fmt.Sprintf("no slot was free for %v, and %d runs come before this one", maxWait, e.Before)
}

// Queue hands out slots. Of the principals that wait, the one with the fewest slots is next, among equals the
// one that came, was granted or released a slot longest ago; its runs are served in the order in which they
// came. A principal that waits alone may hold all slots but for its Most. A Queue is safe for concurrent use.
type Queue struct {
	// Most returns how many slots a principal holds at most, at least one; nil: all. It is set before the
	// first Join, and called with the queue locked.
	Most func(principal string) int

	most, mostEach int // that wait, in all and of one principal

	mu      sync.Mutex
	free    int
	clock   uint64            // a logical clock: ticks on each arrival, grant and release
	shares  map[string]*share // of the principals that hold slots or wait
	waiting []*Slot           // in the order in which they came
	yield   func()            // ends what holds a spare slot; nil if nothing does
	closed  bool
}

// share is what a principal has of the queue.
type share struct {
	principal     string
	most          int
	held, waiting int
	last          uint64 // when it came, was granted a slot, or released one
}

// Slot is a slot that one run holds or waits for.
type Slot struct {
	*share
	queue    *Queue
	queued   bool          // no slot was free at once
	settled  chan struct{} // closed when the slot is granted, or never will be
	err      error         // why it never will be; read after settled
	spare    bool
	released bool
}

// New returns a queue of n slots, at most Max; of Default if n is not positive.
func New(n int) *Queue {
	if n <= 0 {
		n = Default()
	}
	most := int(min(maxWaiting, max(descriptors()/waitingDescriptors, 2)))
	return &Queue{most: most, mostEach: min(maxWaitingEach, most/2), free: min(n, Max),
		shares: make(map[string]*share)}
}

// Acquire waits for a slot, which must be released. While it waits it calls report with the number of runs
// before this one, at once and later when the number has changed.
//
// Errors: the errors of ctx, ErrCrowded, ErrClosed, *LateError.
func (q *Queue) Acquire(ctx context.Context, principal string, report func(before int)) (*Slot, error) {
	s, err := q.Join(principal)
	if err != nil || !s.queued {
		return s, err
	}
	ticker := time.NewTicker(placeEvery)
	defer ticker.Stop()
	late := time.NewTimer(maxWait)
	defer late.Stop()
	for reported := -1; ; {
		if before := q.before(s); before >= 0 && before != reported {
			reported = before
			report(before)
		}
		select {
		case <-s.settled:
			if s.err != nil {
				return nil, s.err
			}
			return s, nil
		case <-ticker.C:
		case <-ctx.Done():
			return nil, q.giveUp(s, ctx.Err())
		case <-late.C:
			return nil, q.giveUp(s, &LateError{max(q.before(s), 0)})
		}
	}
}

// Queued reports whether the slot had to be waited for.
func (s *Slot) Queued() bool { return s.queued }

// State describes a queue at one moment.
type State struct {
	Free, Waiting  int
	Most, MostEach int     // that may wait, in all and of one principal
	Principals     int     // that hold slots or wait
	Shares         []Share // of those, in the order of names
}

// State returns the present state of the queue.
func (q *Queue) State() State {
	q.mu.Lock()
	defer q.mu.Unlock()
	state := State{q.free, len(q.waiting), q.most, q.mostEach, len(q.shares), nil}
	for name, own := range q.shares {
		state.Shares = append(state.Shares, Share{name, own.held, own.waiting, own.most})
	}
	slices.SortFunc(state.Shares, func(a, b Share) int { return cmp.Compare(a.Principal, b.Principal) })
	return state
}

// Share is what a principal has of a queue.
type Share struct {
	Principal           string
	Held, Waiting, Most int
}

// Spare acquires a slot if another one stays free and no run waits. If a run has to wait later, the queue
// calls yield, with its lock held, to request the slot. Only one spare slot is held at a time.
func (q *Queue) Spare(principal string, yield func()) (*Slot, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.free < 2 || len(q.waiting) > 0 {
		return nil, false
	}
	s := q.newSlot(principal)
	q.grant(s)
	s.spare, q.yield = true, yield
	return s, true
}

// newSlot returns a slot of a principal that is not granted yet. q.mu is held.
func (q *Queue) newSlot(principal string) *Slot {
	own := q.shares[principal]
	if own == nil {
		q.clock++
		own = &share{principal: principal, most: Max, last: q.clock}
		if q.Most != nil {
			own.most = max(q.Most(principal), 1)
		}
		q.shares[principal] = own
	}
	return &Slot{share: own, queue: q, settled: make(chan struct{})}
}

// Join takes a free slot, or a place among those that wait.
//
// Errors: ErrCrowded, ErrClosed.
func (q *Queue) Join(principal string) (*Slot, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, ErrClosed
	}
	s := q.newSlot(principal)
	if q.free > 0 && s.held < s.most {
		q.grant(s)
		return s, nil
	}
	if s.waiting >= q.mostEach || len(q.waiting) >= q.most && !q.makeRoom(s.share) {
		q.forget(s.share)
		return nil, ErrCrowded
	}
	if q.yield != nil {
		q.yield()
	}
	s.queued = true
	s.waiting++
	q.waiting = append(q.waiting, s)
	return s, nil
}

// makeRoom refuses the last waiting run of the principal with the most waiting runs, if that principal still
// has no fewer than own then.
func (q *Queue) makeRoom(own *share) bool {
	last := q.waiting[len(q.waiting)-1]
	for _, s := range slices.Backward(q.waiting) {
		if s.waiting > last.waiting {
			last = s
		}
	}
	return last.waiting > own.waiting+1 && q.leave(last, ErrCrowded)
}

// before returns how many runs come before s if no share changes in between, or -1 if s does not wait.
func (q *Queue) before(s *Slot) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	place := slices.Index(q.waiting, s)
	if place < 0 {
		return -1
	}
	passed := make(map[*share]int)
	for _, other := range q.waiting[:place] {
		passed[other.share]++
	}
	level, n := s.held+passed[s.share], 0
	clear(passed)
	for _, other := range q.waiting {
		reached := other.held + passed[other.share]
		passed[other.share]++
		if reached < level || reached == level && other.last < s.last {
			n++
		}
	}
	return n
}

// giveUp leaves the queue, or releases the slot that was granted at the same time. It returns err.
func (q *Queue) giveUp(s *Slot, err error) error {
	q.mu.Lock()
	left := q.leave(s, err)
	q.mu.Unlock()
	if !left && s.err == nil {
		s.Release()
	}
	return err
}

// leave ends the wait of a slot, with err or because it is granted, and reports whether it waited.
func (q *Queue) leave(s *Slot, err error) bool {
	i := slices.Index(q.waiting, s)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	s.waiting--
	s.err = err
	close(s.settled)
	q.forget(s.share)
	return true
}

// Release gives the slot to the next run. Only the first call has an effect.
func (s *Slot) Release() {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.released {
		return
	}
	s.released = true
	if s.spare {
		q.yield = nil
	}
	q.free++
	q.clock++
	s.held--
	s.last = q.clock
	q.forget(s.share)
	var next *Slot
	for _, s := range q.waiting {
		if s.held < s.most && (next == nil || cmp.Or(cmp.Compare(s.held, next.held),
			cmp.Compare(s.last, next.last)) < 0) {
			next = s
		}
	}
	if next != nil {
		q.grant(next)
	}
}

// grant gives a free slot to s. q.mu is held.
func (q *Queue) grant(s *Slot) {
	q.free--
	q.clock++
	s.held++
	s.last = q.clock
	if !q.leave(s, nil) {
		close(s.settled)
	}
}

// forget drops the share of a principal that neither holds nor waits for a slot.
func (q *Queue) forget(s *share) {
	if s.held+s.waiting == 0 {
		delete(q.shares, s.principal)
	}
}

// Close ends all waits with ErrClosed, and refuses later ones.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for len(q.waiting) > 0 {
		q.leave(q.waiting[0], ErrClosed)
	}
}
