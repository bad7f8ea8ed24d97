package wire

import (
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxRates is how many principals' rates are remembered.
const maxRates = 4096

// rates limits how often each principal may ask.
type rates struct {
	limit rate.Limit
	burst int

	mu   sync.Mutex
	each map[string]*rate.Limiter
}

func newRates(limit rate.Limit, burst int) *rates {
	return &rates{limit: limit, burst: max(burst, 1), each: make(map[string]*rate.Limiter)}
}

// take reports whether principal may ask now, and if not, after how long.
func (r *rates) take(principal string) (wait time.Duration, ok bool) {
	if r.limit == 0 {
		return 0, true
	}
	r.mu.Lock()
	limiter := r.each[principal]
	if limiter == nil {
		r.makeRoom()
		limiter = rate.NewLimiter(r.limit, r.burst)
		r.each[principal] = limiter
	}
	r.mu.Unlock()
	reservation := limiter.Reserve()
	if wait = reservation.Delay(); wait > 0 {
		reservation.Cancel()
		return wait, false
	}
	return 0, true
}

// makeRoom forgets principals that could ask as often as one that is not remembered, and
// anyone when there is none.
func (r *rates) makeRoom() {
	if len(r.each) < maxRates {
		return
	}
	for name, limiter := range r.each {
		if limiter.Tokens() >= float64(r.burst) {
			delete(r.each, name)
		}
	}
	for name := range r.each {
		if len(r.each) < maxRates {
			return
		}
		delete(r.each, name)
	}
}

// places counts what runs, in all and for each principal.
type places struct {
	most, mostEach int

	mu   sync.Mutex
	all  int
	each map[string]int
}

// newPlaces has room for most, of which one principal may take 1/share.
func newPlaces(most, share int) *places {
	return &places{most: most, mostEach: max(most/share, 1), each: make(map[string]int)}
}

// take reports whether there was a place; leave gives it back.
func (p *places) take(principal string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= p.most || p.each[principal] >= p.mostEach {
		return false
	}
	p.all++
	p.each[principal]++
	return true
}

func (p *places) leave(principal string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.each[principal]--; p.each[principal] == 0 {
		delete(p.each, principal)
	}
}

// maxAside is how many bytes the messages of calls that stand aside may have: calls hold them until they
// are answered.
const maxAside = 64 << 20

// aside counts the bytes of calls that stand aside, in all, of which there may be most, and for each
// principal, which may have half of them.
type aside struct {
	most int

	mu   sync.Mutex
	all  int
	each map[string]int
}

// take reports whether there was room for n bytes; leave gives it back.
func (a *aside) take(principal string, n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all+n > a.most || a.each[principal]+n > a.most/2 {
		return false
	}
	if a.each == nil {
		a.each = make(map[string]int)
	}
	a.all += n
	a.each[principal] += n
	return true
}

func (a *aside) leave(principal string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all -= n
	if a.each[principal] -= n; a.each[principal] == 0 {
		delete(a.each, principal)
	}
}

func retryLater(w http.ResponseWriter, status int, wait time.Duration, text string) {
	w.Header().Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(wait.Seconds())))))
	plainText(w, status, text)
}

func refuseVerb(w http.ResponseWriter, allowed string) {
	w.Header().Set("Allow", allowed)
	plainText(w, http.StatusMethodNotAllowed, "method not allowed")
}

func plainText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	io.WriteString(w, text+"\n")
}
