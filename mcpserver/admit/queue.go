package admit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
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

	// Runs that wait may hold the part 1/waitingDescriptors of the file descriptors of this process.
	waitingDescriptors = 4

	// reportEvery is the interval at which a waiting run reports how many come before it.
	reportEvery = 5 * time.Second

	// MaxWait is how long a run waits. Few clients wait longer, and a client with an answer can do other
	// work.
	MaxWait = 2 * time.Minute
)

// Kinds of errors of a Queue.
var (
	ErrCrowded = errors.New("too many runs wait")
	ErrClosed  = errors.New("the queue is closed")
)

// A LateError means that no slot was free for [MaxWait].
type LateError struct{ Before int } // runs that still come before this one

func (e *LateError) Error() string {
	return fmt.Sprintf("no slot was free for %v, and %d runs come before this one", MaxWait, e.Before)
}

// Queue hands out the slots of a quota, one to each claim, and bounds the claims that wait. A principal that
// waits alone may hold all slots, up to its limit. Safe for concurrent use.
type Queue struct {
	slots          *Quota
	most, mostEach int // claims that may wait, in all and of one principal

	yield  func() // requests the spare slot; nil if none is held; guarded by slots.mu
	closed bool   // guarded by slots.mu
}

// NewQueue returns a queue of n slots, at most Max; of Default if n is not positive. mostOf returns how many
// slots a principal may hold, at least one; nil means all. It is called with the queue locked.
func NewQueue(n int, mostOf func(principal string) int) *Queue {
	if n <= 0 {
		n = Default()
	}
	slots := NewQuota(min(n, Max), Max)
	slots.mostOf = mostOf
	// With fewer than 2, one principal could have no waiting claim at all.
	most := int(min(maxWaiting, max(descriptors()/waitingDescriptors, 2)))
	return &Queue{slots: slots, most: most, mostEach: min(maxWaitingEach, most/2)}
}

// Acquire waits for a slot, which must be released. While it waits it calls report with the number of claims
// before this one, at once and later when the number has changed.
//
// Errors: the errors of ctx, ErrCrowded, ErrClosed, *LateError.
func (q *Queue) Acquire(ctx context.Context, principal string, report func(before int)) (*Claim, error) {
	c, err := q.Join(principal)
	if err != nil || !c.queued {
		return c, err
	}
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	late := time.NewTimer(MaxWait)
	defer late.Stop()
	for reported := -1; ; {
		if before := q.before(c); before >= 0 && before != reported {
			reported = before
			report(before)
		}
		select {
		case <-c.settled:
			if c.err != nil {
				return nil, c.err
			}
			return c, nil
		case <-ticker.C:
		case <-ctx.Done():
			q.slots.giveUp(c, ctx.Err())
			return nil, ctx.Err()
		case <-late.C:
			// The claim has no place in the queue any more once it has given up.
			err := &LateError{max(q.before(c), 0)}
			q.slots.giveUp(c, err)
			return nil, err
		}
	}
}

// State returns the present state of the queue.
func (q *Queue) State() State {
	state := q.slots.State()
	state.Most, state.MostEach = q.most, q.mostEach
	return state
}

// Spare acquires a slot if another one stays free and no claim waits. If a claim has to wait later, the queue
// calls yield, with its lock held, to request the slot. Only one spare slot is held at a time.
func (q *Queue) Spare(principal string, yield func()) (*Claim, bool) {
	q.slots.mu.Lock()
	defer q.slots.mu.Unlock()
	if q.closed || q.slots.most-q.slots.used < 2 || len(q.slots.waiting) > 0 {
		return nil, false
	}
	c, _ := q.slots.claim(principal, 1, true)
	c.spare, q.yield = q, yield
	return c, true
}

// Join takes a free slot, or becomes one of the claims that wait.
//
// Errors: ErrCrowded, ErrClosed.
func (q *Queue) Join(principal string) (*Claim, error) {
	q.slots.mu.Lock()
	defer q.slots.mu.Unlock()
	if q.closed {
		return nil, ErrClosed
	}
	c, granted := q.slots.claim(principal, 1, false)
	if granted {
		return c, nil
	}
	if c.waiting >= q.mostEach || len(q.slots.waiting) >= q.most && !q.makeRoom(c.share) {
		return nil, ErrCrowded
	}
	if q.yield != nil {
		q.yield()
	}
	q.slots.enqueue(c)
	return c, nil
}

// makeRoom refuses the last waiting claim of the principal with the most waiting claims, if that principal
// still has no fewer than own then.
func (q *Queue) makeRoom(own *share) bool {
	waiting := q.slots.waiting
	last := waiting[len(waiting)-1]
	for _, c := range slices.Backward(waiting) {
		if c.waiting > last.waiting {
			last = c
		}
	}
	return last.waiting > own.waiting+1 && q.slots.leave(last, ErrCrowded)
}

// before returns how many claims come before c if no share changes in between, or -1 if c does not wait.
func (q *Queue) before(c *Claim) int {
	q.slots.mu.Lock()
	defer q.slots.mu.Unlock()
	waiting := q.slots.waiting
	i := slices.Index(waiting, c)
	if i < 0 {
		return -1
	}
	passed := make(map[*share]int)
	for _, other := range waiting[:i] {
		passed[other.share]++
	}
	level, n := c.held+passed[c.share], 0
	clear(passed)
	for _, other := range waiting {
		reached := other.held + passed[other.share]
		passed[other.share]++
		if reached < level || reached == level && other.last < c.last {
			n++
		}
	}
	return n
}

// Close ends all waits with ErrClosed, and refuses later ones.
func (q *Queue) Close() {
	q.slots.mu.Lock()
	defer q.slots.mu.Unlock()
	q.closed = true
	for len(q.slots.waiting) > 0 {
		q.slots.leave(q.slots.waiting[0], ErrClosed)
	}
}
