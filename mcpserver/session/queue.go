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

	// placeEvery is how often a run that waits is told how many come before it.
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
	events  uint64            // how many there were: principals that came, slots handed out and given back
	shares  map[string]*share // of the principals that hold slots or wait
	waiting []*turn           // in the order in which they came
	yield   func()            // ends what holds a spare slot; nil when nothing does
	closed  bool
}

// share is what a principal has of the queue.
type share struct {
	principal     string
	held, waiting int
	last          uint64 // event: it came, was handed a slot, or gave one back
}

// turn is one run that waits or holds a slot.
type turn struct {
	*share
	queued bool          // it had to wait
	done   chan struct{} // closed when the turn has come, or never will
	err    error         // why it never will; read after done
}

// newRunQueue returns a queue of as many slots, of DefaultConcurrent when that is none.
func newRunQueue(slots int) *runQueue {
	if slots <= 0 {
		slots = DefaultConcurrent()
	}
	most := int(min(maxWaiting, max(descriptors()/waitingDescriptors, 2)))
	return &runQueue{most: most, mostEach: min(maxWaitingEach, most/2), free: min(slots, MaxConcurrent), shares: make(map[string]*share)}
}

// acquire waits for a slot, which release gives back, and reports whether there was none at once. While it
// waits it calls tell: at once, and when that has changed after a while, with how many runs come before
// this one as things stand.
//
// Errors: that of ctx, errCrowded, errEnded.
func (q *runQueue) acquire(ctx context.Context, principal string, tell func(before int)) (release func(), waited bool, err error) {
	t, err := q.join(principal)
	if err != nil {
		return nil, false, err
	}
	if err := q.wait(ctx, t, tell); err != nil {
		return nil, t.queued, err
	}
	return func() { q.release(t) }, t.queued, nil
}

// spare takes a slot when another one stays free and nobody waits. It calls yield, with the queue locked,
// when a run has to wait: the slot is then wanted back. One spare slot is held at a time.
func (q *runQueue) spare(principal string, yield func()) (release func(), ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.free < 2 || len(q.waiting) > 0 {
		return nil, false
	}
	own := q.shares[principal]
	if own == nil {
		own = &share{principal: principal}
		q.shares[principal] = own
	}
	t := &turn{share: own, done: make(chan struct{})}
	q.grant(t)
	q.yield = yield
	return func() {
		q.mu.Lock()
		q.yield = nil
		q.mu.Unlock()
		q.release(t)
	}, true
}

// join takes a free slot, or a place among those that wait.
func (q *runQueue) join(principal string) (*turn, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, errEnded
	}
	own := q.shares[principal]
	if own == nil {
		q.events++
		own = &share{principal: principal, last: q.events}
	}
	t := &turn{share: own, done: make(chan struct{})}
	if q.free == 0 {
		if own.waiting >= q.mostEach || len(q.waiting) >= q.most && !q.makeRoom(own) {
			return nil, errCrowded
		}
		if q.yield != nil {
			q.yield()
		}
		t.queued = true
		own.waiting++
		q.waiting = append(q.waiting, t)
	} else {
		q.grant(t)
	}
	q.shares[principal] = own
	return t, nil
}

// makeRoom sends the last run of the principal away of which most wait, if they stay no fewer than own's.
func (q *runQueue) makeRoom(own *share) bool {
	last := q.waiting[len(q.waiting)-1]
	for _, t := range slices.Backward(q.waiting) {
		if t.waiting > last.waiting {
			last = t
		}
	}
	return last.waiting > own.waiting+1 && q.leave(last, errCrowded)
}

// wait returns when the turn has come, or with an error when it is given up.
func (q *runQueue) wait(ctx context.Context, t *turn, tell func(before int)) error {
	ticker := time.NewTicker(placeEvery)
	defer ticker.Stop()
	for told := -1; ; {
		if before := q.before(t); before >= 0 && before != told {
			told = before
			tell(before)
		}
		select {
		case <-t.done:
			return t.err
		case <-ticker.C:
		case <-ctx.Done():
			return q.giveUp(t, ctx.Err())
		}
	}
}

// before is how many runs would come before t if slots were given back to nobody's share, -1 when t does
// not wait.
func (q *runQueue) before(t *turn) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	place := slices.Index(q.waiting, t)
	if place < 0 {
		return -1
	}
	passed := make(map[*share]int)
	for _, other := range q.waiting[:place] {
		passed[other.share]++
	}
	level, n := t.held+passed[t.share], 0
	clear(passed)
	for _, other := range q.waiting {
		reached := other.held + passed[other.share]
		passed[other.share]++
		if reached < level || reached == level && other.last < t.last {
			n++
		}
	}
	return n
}

// giveUp leaves the queue, or gives back the slot that came meanwhile. It returns err.
func (q *runQueue) giveUp(t *turn, err error) error {
	q.mu.Lock()
	waited := q.leave(t, err)
	q.mu.Unlock()
	if !waited && t.err == nil {
		q.release(t)
	}
	return err
}

// leave ends the wait of a turn, and reports whether it waited.
func (q *runQueue) leave(t *turn, err error) bool {
	i := slices.Index(q.waiting, t)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	t.waiting--
	t.end(err)
	q.forget(t.share)
	return true
}

// release gives the slot of a turn back, and on to who is next.
func (q *runQueue) release(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free++
	q.events++
	t.held--
	t.last = q.events
	q.forget(t.share)
	if len(q.waiting) == 0 {
		return
	}
	next := slices.MinFunc(q.waiting, func(a, b *turn) int {
		return cmp.Or(cmp.Compare(a.held, b.held), cmp.Compare(a.last, b.last))
	})
	q.grant(next)
}

// grant hands a free slot to a turn.
func (q *runQueue) grant(t *turn) {
	q.free--
	q.events++
	t.held++
	t.last = q.events
	if !q.leave(t, nil) {
		t.end(nil)
	}
}

func (t *turn) end(err error) {
	t.err = err
	close(t.done)
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
