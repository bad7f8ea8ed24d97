package slots

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// Patience is how long Places.Take waits.
const Patience = 10 * time.Second

// Places are what open sessions have of something scarce. They are safe for concurrent use.
type Places struct {
	places *semaphore.Weighted

	mu      sync.Mutex
	waiting map[string]int // by principal
}

// NewPlaces returns n places.
func NewPlaces(n int) *Places {
	return &Places{places: semaphore.NewWeighted(int64(n)), waiting: map[string]int{}}
}

// Take acquires a place; release it with Free. It reports whether it got one. If no place is free, it calls
// ask and waits for a place until ctx ends, but at most for Patience.
func (p *Places) Take(ctx context.Context, principal string, ask func()) bool {
	if p.places.TryAcquire(1) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	p.mu.Lock()
	p.waiting[principal]++
	p.mu.Unlock()
	ask()
	err := p.places.Acquire(ctx, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting[principal]--
	if p.waiting[principal] == 0 {
		delete(p.waiting, principal)
	}
	return err == nil
}

// Free gives a place back.
func (p *Places) Free() { p.places.Release(1) }

// Wanted returns the places that each principal has, as held does, with those that it waits for, and the
// least that a principal that waits has then; nothing and 0 if no more wait than places are about to be free.
func (p *Places) Wanted(held func() map[string]int, free int) (each map[string]int, least int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.waiting {
		free -= n
	}
	if free >= 0 { // as nearly always
		return nil, 0
	}
	each = held()
	for principal, n := range p.waiting {
		each[principal] += n
		if least == 0 || each[principal] < least {
			least = each[principal]
		}
	}
	return each, least
}
