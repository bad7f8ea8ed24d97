package admit

import (
	"context"
	"sync"
	"time"
)

// Ledger is what one request holds of a quota of memory. Safe for concurrent use. A nil Ledger has no limit.
type Ledger struct {
	memory    *Quota
	principal string
	patience  time.Duration // how long the request waits for the memory of others

	mu     sync.Mutex
	held   int
	claims []*Claim
}

// NewLedger returns an empty ledger for a request of a principal, which waits for memory up to patience.
func NewLedger(memory *Quota, principal string, patience time.Duration) *Ledger {
	return &Ledger{memory: memory, principal: principal, patience: patience}
}

// Hold waits for n bytes, which the request keeps until Close, and reports whether it got them. A request for
// more than the share of a principal waits until nothing else is held.
func (l *Ledger) Hold(ctx context.Context, n int) bool {
	if l == nil {
		return true
	}
	c := l.wait(ctx, n)
	if c == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held += c.n
	l.claims = append(l.claims, c)
	return true
}

// Borrow waits for n bytes until giveBack is called, and reports whether it got them.
func (l *Ledger) Borrow(ctx context.Context, n int) (giveBack func(), ok bool) {
	if l == nil {
		return func() {}, true
	}
	c := l.wait(ctx, n)
	return c.Release, c != nil
}

// Raise waits until the request holds at least n bytes, and reports whether it does.
func (l *Ledger) Raise(ctx context.Context, n int) bool {
	if l == nil {
		return true
	}
	l.mu.Lock()
	more := n - l.held
	l.mu.Unlock()
	return more <= 0 || l.Hold(ctx, more)
}

func (l *Ledger) wait(ctx context.Context, n int) *Claim {
	// A claim for more than there is would never be granted.
	return l.memory.Wait(ctx, l.principal, min(n, l.memory.most), l.patience, nil)
}

// Close releases everything that the request holds.
func (l *Ledger) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.claims {
		c.Release()
	}
	l.held, l.claims = 0, nil
}
