package session

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

// MaxConcurrent is the most runs at once that a [Config] may ask for.
const MaxConcurrent = 1024

// DefaultConcurrent is how many runs there are at once when nothing is said: four for each processor.
func DefaultConcurrent() int { return min(4*runtime.NumCPU(), MaxConcurrent) }

const (
	// maxWaiting is how many runs wait for a slot at a time, maxWaitingEach how many of one principal.
	// Each holds its arguments and its input, and over HTTP a connection.
	maxWaiting     = 512
	maxWaitingEach = 256

	// waitingDescriptors is which part of this process's file descriptors runs that wait may hold.
	waitingDescriptors = 4

	// placeEvery is how often a run that waits reports how many come before it.
	placeEvery = 5 * time.Second
)

// errCrowded means that too many runs wait.
var errCrowded = errors.New("too many runs wait")

// runQueue hands out the slots in which scripts run. Of the principals that wait the one that holds the
// fewest slots is next, among equals the one that last had one, or came, longest ago; its runs are served
// in the order in which they came. Who waits alone may hold all slots. It is safe for concurrent use.
type runQueue struct {
	most, mostEach int // that wait, in all and of one principal

	mu      sync.Mutex
	free    int
	clock   uint64            // ticks when a principal comes, and when a slot is granted or released
	shares  map[string]*share // of the principals that hold slots or wait
	waiting []*slot           // in the order in which they came
	yield   func()            // ends what holds a spare slot; nil if nothing does
	closed  bool
}

// share is what a principal has of the queue.
type share struct {
	principal     string
	held, waiting int
	last          uint64 // when it came, was granted a slot, or released one
}

// slot is held by one run, or waited for.
type slot struct {
	*share
	queue    *runQueue
	queued   bool          // it was not free at once
	settled  chan struct{} // closed when the slot is granted, or never will be
	err      error         // why it never will be; read after settled
	spare    bool
	released bool
}

// newRunQueue returns a queue of as many slots, of DefaultConcurrent if that is none.
func newRunQueue(slots int) *runQueue {
	if slots <= 0 {
		slots = DefaultConcurrent()
	}
	most := int(min(maxWaiting, max(descriptors()/waitingDescriptors, 2)))
	return &runQueue{most: most, mostEach: min(maxWaitingEach, most/2), free: min(slots, MaxConcurrent),
		shares: make(map[string]*share)}
}

// acquire waits for a slot, which must be released. While it waits it calls report: at once, and when that
// has changed after a while, with how many runs come before this one as things are.
//
// Errors: that of ctx, errCrowded, errEnded.
func (q *runQueue) acquire(ctx context.Context, principal string, report func(before int)) (*slot, error) {
	s, err := q.join(principal)
	if err != nil || !s.queued {
		return s, err
	}
	ticker := time.NewTicker(placeEvery)
	defer ticker.Stop()
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
		}
	}
}

// spare takes a slot if another one stays free and nobody waits. It calls yield, with the queue locked,
// when a run has to wait: the slot is then wanted back. One spare slot is held at a time.
func (q *runQueue) spare(principal string, yield func()) (*slot, bool) {
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
func (q *runQueue) newSlot(principal string) *slot {
	own := q.shares[principal]
	if own == nil {
		q.clock++
		own = &share{principal: principal, last: q.clock}
		q.shares[principal] = own
	}
	return &slot{share: own, queue: q, settled: make(chan struct{})}
}

// join takes a free slot, or a place among those that wait.
func (q *runQueue) join(principal string) (*slot, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, errEnded
	}
	s := q.newSlot(principal)
	if q.free > 0 {
		q.grant(s)
		return s, nil
	}
	if s.waiting >= q.mostEach || len(q.waiting) >= q.most && !q.makeRoom(s.share) {
		q.forget(s.share)
		return nil, errCrowded
	}
	if q.yield != nil {
		q.yield()
	}
	s.queued = true
	s.waiting++
	q.waiting = append(q.waiting, s)
	return s, nil
}

// makeRoom sends the last run of the principal away of which most wait, if they stay no fewer than own's.
func (q *runQueue) makeRoom(own *share) bool {
	last := q.waiting[len(q.waiting)-1]
	for _, s := range slices.Backward(q.waiting) {
		if s.waiting > last.waiting {
			last = s
		}
	}
	return last.waiting > own.waiting+1 && q.leave(last, errCrowded)
}

// before returns how many runs would come before s if slots were released to nobody's share, or -1 if s
// does not wait.
func (q *runQueue) before(s *slot) int {
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
func (q *runQueue) giveUp(s *slot, err error) error {
	q.mu.Lock()
	left := q.leave(s, err)
	q.mu.Unlock()
	if !left && s.err == nil {
		s.release()
	}
	return err
}

// leave ends the wait of a slot, with err or because it is granted, and reports whether it waited.
func (q *runQueue) leave(s *slot, err error) bool {
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

// release gives a slot back, once, and on to who is next.
func (s *slot) release() {
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
	if len(q.waiting) > 0 {
		q.grant(slices.MinFunc(q.waiting, func(a, b *slot) int {
			return cmp.Or(cmp.Compare(a.held, b.held), cmp.Compare(a.last, b.last))
		}))
	}
}

// grant hands a free slot out. q.mu is held.
func (q *runQueue) grant(s *slot) {
	q.free--
	q.clock++
	s.held++
	s.last = q.clock
	if !q.leave(s, nil) {
		close(s.settled)
	}
}

// forget drops the share of a principal that has none any more.
func (q *runQueue) forget(s *share) {
	if s.held+s.waiting == 0 {
		delete(q.shares, s.principal)
	}
}

// close ends the wait of all, and lets nobody wait any more.
func (q *runQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for len(q.waiting) > 0 {
		q.leave(q.waiting[0], errEnded)
	}
}
