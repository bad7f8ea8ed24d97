package admit

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxRates is the maximum of tracked principals.
const maxRates = 4096

// Rates limits the request rate of each principal. Safe for concurrent use.
type Rates struct {
	limit rate.Limit
	burst int

	mu   sync.Mutex
	each map[string]*rate.Limiter
}

// NewRates returns limits of so many requests per second, in bursts of at least one; 0 means unlimited.
func NewRates(limit rate.Limit, burst int) *Rates {
	return &Rates{limit: limit, burst: max(burst, 1), each: make(map[string]*rate.Limiter)}
}

// Take reports whether a principal may send a request now, and if not, after how long.
func (r *Rates) Take(principal string) (wait time.Duration, ok bool) {
	if r.limit == 0 {
		return 0, true
	}
	reservation := r.limiter(principal).Reserve()
	wait = reservation.Delay()
	if wait > 0 {
		// A refused request must not delay the next one.
		reservation.Cancel()
		return wait, false
	}
	return 0, true
}

func (r *Rates) limiter(principal string) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	if limiter := r.each[principal]; limiter != nil {
		return limiter
	}
	if len(r.each) >= maxRates {
		// A principal with its whole burst left loses nothing by this.
		whole := func(_ string, l *rate.Limiter) bool { return l.Tokens() >= float64(r.burst) }
		maps.DeleteFunc(r.each, whole)
	}
	if len(r.each) >= maxRates {
		clear(r.each)
	}
	limiter := rate.NewLimiter(r.limit, r.burst)
	r.each[principal] = limiter
	return limiter
}
