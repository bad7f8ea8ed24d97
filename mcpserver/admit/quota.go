// Package admit limits what the requests of a server use at a time, with fair shares for principals: slots,
// memory, connections and the rate of requests.
//
// A [Quota] has one rule for all resources. A principal holds at most its share. Of the claims that wait and
// fit, the next one belongs to the principal that holds the least; among equals, to the principal whose last
// arrival, grant or release is the oldest. The claims of a principal are served in order of arrival. A
// claim that does not fit yet does not block others. A [Queue] is a quota that also bounds the claims that
// wait.
package admit

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Quota limits the use of a resource, in all and by each principal. Safe for concurrent use.
type Quota struct {
	most, mostEach int
	mostOf         func(principal string) int // replaces mostEach if not nil; called with mu held

	mu      sync.Mutex
	used    int
	clock   uint64            // a logical clock: ticks on each arrival, grant and release
	shares  map[string]*share // of the principals with claims
	waiting []*Claim          // in order of arrival
}

// share is the use of a quota by one principal; guarded by Quota.mu.
type share struct {
	principal     string
	most          int
	held, waiting int    // units that it holds, and claims that wait
	last          uint64 // clock of its arrival, or of its last grant or release
}

// Claim is a number of units of a quota that a principal holds or waits for.
type Claim struct {
	*share
	quota    *Quota
	n        int
	queued   bool          // it had to wait
	settled  chan struct{} // if it had to wait: closed when it is granted, or never will be
	err      error         // why it never will be; read after settled
	spare    *Queue        // if it is the spare slot of a queue
	released bool
}

// NewQuota returns a quota of most units. One principal may hold mostEach of them. A claim may exceed the
// share of its principal while nothing else is held.
func NewQuota(most, mostEach int) *Quota {
	return &Quota{most: most, mostEach: mostEach, shares: make(map[string]*share)}
}

// Take acquires n units for a principal, at least one. It returns nil if there is no room.
func (q *Quota) Take(principal string, n int) *Claim {
	q.mu.Lock()
	defer q.mu.Unlock()
	c, granted := q.claim(principal, n, false)
	if !granted {
		return nil
	}
	return c
}

// Wait is Take that waits for room until patience or ctx ends. If it has to wait, it calls waits, if not nil,
// once the claim is among those that wait.
func (q *Quota) Wait(
	ctx context.Context, principal string, n int, patience time.Duration, waits func(),
) *Claim {
	q.mu.Lock()
	c, granted := q.claim(principal, n, false)
	if granted {
		q.mu.Unlock()
		return c
	}
	q.enqueue(c)
	q.mu.Unlock()
	if waits != nil {
		waits()
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-c.settled:
		return c
	case <-ctx.Done():
		q.giveUp(c, ctx.Err())
		return nil
	}
}

// Charge is Take for what exists already: it acquires the units even if there is no room for them.
func (q *Quota) Charge(principal string, n int) *Claim {
	q.mu.Lock()
	defer q.mu.Unlock()
	c, _ := q.claim(principal, n, true)
	return c
}

// Exceeded reports whether more is held than there is, or more by a principal than its share.
func (q *Quota) Exceeded(principal string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.shares[principal]
	return q.used > q.most || s != nil && s.held > s.most
}

// Held returns how many units a principal holds.
func (q *Quota) Held(principal string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.shares[principal]; s != nil {
		return s.held
	}
	return 0
}

// Most returns how many units there are, and how many of them a principal may hold.
func (q *Quota) Most() (all, each int) { return q.most, q.mostEach }

// Wanted returns, for each principal, what held returns and the number of its claims that wait, and the
// least sum of a principal that waits. It returns nil and 0 if at most free claims wait.
func (q *Quota) Wanted(held func() map[string]int, free int) (each map[string]int, least int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// This is nearly always so, and saves the rest.
	if len(q.waiting) <= free {
		return nil, 0
	}
	each = held()
	for principal, s := range q.shares {
		if s.waiting == 0 {
			continue
		}
		each[principal] += s.waiting
		if least == 0 || each[principal] < least {
			least = each[principal]
		}
	}
	return each, least
}

// State describes a quota or a queue at one moment.
type State struct {
	Free, Waiting  int
	Most, MostEach int     // claims that may wait in a queue, in all and of one principal
	Principals     int     // with claims
	Shares         []Share // one for each of them, ordered by name
}

// Share is the use of a quota by one principal.
type Share struct {
	Principal           string
	Held, Waiting, Most int
}

// State returns the present state of the quota.
func (q *Quota) State() State {
	q.mu.Lock()
	defer q.mu.Unlock()
	state := State{Free: q.most - q.used, Waiting: len(q.waiting), Principals: len(q.shares)}
	for _, s := range q.shares {
		state.Shares = append(state.Shares, Share{s.principal, s.held, s.waiting, s.most})
	}
	slices.SortFunc(state.Shares, func(a, b Share) int { return cmp.Compare(a.Principal, b.Principal) })
	return state
}

// claim returns a claim, and whether it was granted: if there is room for it, or force is set. Another claim
// does not wait yet. q.mu is held.
func (q *Quota) claim(principal string, n int, force bool) (c *Claim, granted bool) {
	s := q.shares[principal]
	if s == nil {
		q.clock++
		s = &share{principal: principal, most: q.mostEach, last: q.clock}
		if q.mostOf != nil {
			s.most = max(q.mostOf(principal), 1)
		}
	}
	c = &Claim{share: s, quota: q, n: max(n, 1)}
	if !force && !q.fits(c) {
		return c, false
	}
	q.shares[principal] = s
	q.grant(c)
	return c, true
}

// fits reports whether there is room for a claim. q.mu is held.
func (q *Quota) fits(c *Claim) bool {
	if q.used == 0 {
		// Otherwise a claim for more than a share would never be granted.
		return c.n <= q.most
	}
	return q.used+c.n <= q.most && c.held+c.n <= c.most
}

// grant gives a claim its units. q.mu is held.
func (q *Quota) grant(c *Claim) {
	q.used += c.n
	q.clock++
	c.held += c.n
	c.last = q.clock
}

// enqueue lets a claim wait. q.mu is held.
func (q *Quota) enqueue(c *Claim) {
	// The share of a principal without other claims is new.
	q.shares[c.principal] = c.share
	c.queued, c.settled = true, make(chan struct{})
	c.waiting++
	q.waiting = append(q.waiting, c)
}

// leave ends the wait of a claim, with err or because it is granted, and reports whether it waited. q.mu is
// held.
func (q *Quota) leave(c *Claim, err error) bool {
	i := slices.Index(q.waiting, c)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	c.waiting--
	c.err = err
	close(c.settled)
	if c.held+c.waiting == 0 {
		delete(q.shares, c.principal)
	}
	return true
}

// giveUp ends the wait of a claim, or releases a claim that was granted at the same time.
func (q *Quota) giveUp(c *Claim, err error) {
	q.mu.Lock()
	left := q.leave(c, err)
	q.mu.Unlock()
	if !left && c.err == nil {
		c.Release()
	}
}

// Queued reports whether the claim had to wait.
func (c *Claim) Queued() bool { return c.queued }

// Release returns the units of the claim to the quota, which grants claims that wait for them. Only the first
// call has an effect. Releasing nil does nothing.
func (c *Claim) Release() {
	if c == nil {
		return
	}
	q := c.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.released {
		return
	}
	c.released = true
	if c.spare != nil {
		c.spare.yield = nil
	}
	q.used -= c.n
	q.clock++
	c.held -= c.n
	c.last = q.clock
	if c.held+c.waiting == 0 {
		delete(q.shares, c.principal)
	}
	for len(q.waiting) > 0 && q.used < q.most {
		next := q.next()
		if next == nil {
			return
		}
		q.grant(next)
		q.leave(next, nil)
	}
}

// next returns the claim that is served next, or nil if none of those that wait fits. q.mu is held.
func (q *Quota) next() (next *Claim) {
	for _, c := range q.waiting {
		if !q.fits(c) {
			continue
		}
		if next == nil || cmp.Or(cmp.Compare(c.held, next.held), cmp.Compare(c.last, next.last)) < 0 {
			next = c
		}
	}
	return next
}

// Ledger is what one request holds of a quota of memory. Safe for concurrent use. The zero Ledger has no
// limit.
type Ledger struct {
	Memory    *Quota
	Principal string
	Patience  time.Duration // how long the request waits for the memory of others

	mu     sync.Mutex
	held   int
	claims []*Claim
	closed bool
}

// Hold waits for n bytes, which the request keeps until Close, and reports whether it got them. A request for
// more than the share of a principal waits until nothing else is held. After Close, Hold waits for the bytes
// and returns them at once: the work of a task outlives its request, and nothing would return them later.
func (l *Ledger) Hold(ctx context.Context, n int) bool {
	if l.Memory == nil {
		return true
	}
	c := l.wait(ctx, n)
	if c == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		c.Release()
		return true
	}
	l.held += c.n
	l.claims = append(l.claims, c)
	return true
}

// Borrow waits for n bytes until giveBack is called, and reports whether it got them.
func (l *Ledger) Borrow(ctx context.Context, n int) (giveBack func(), ok bool) {
	if l.Memory == nil {
		return func() {}, true
	}
	c := l.wait(ctx, n)
	return c.Release, c != nil
}

// Raise waits until the request holds at least n bytes, and reports whether it does.
func (l *Ledger) Raise(ctx context.Context, n int) bool {
	if l.Memory == nil {
		return true
	}
	l.mu.Lock()
	more := n - l.held
	l.mu.Unlock()
	return more <= 0 || l.Hold(ctx, more)
}

func (l *Ledger) wait(ctx context.Context, n int) *Claim {
	// A claim for more than there is would never be granted.
	return l.Memory.Wait(ctx, l.Principal, min(n, l.Memory.most), l.Patience, nil)
}

// Close releases everything that the request holds.
func (l *Ledger) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.claims {
		c.Release()
	}
	l.held, l.claims, l.closed = 0, nil, true
}
