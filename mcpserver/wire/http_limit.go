package wire

import (
	"context"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// holdingPatience is how long a request waits for the memory of other requests with large answers.
const holdingPatience = 10 * time.Second

// maxRates is the number of principals whose rates are tracked.
const maxRates = 4096

// rates limits the request rate of each principal.
type rates struct {
	limit rate.Limit
	burst int

	mu   sync.Mutex
	each map[string]*rate.Limiter
}

// take reports whether principal may send a request now, and if not, after how long.
func (r *rates) take(principal string) (wait time.Duration, ok bool) {
	if r.limit == 0 {
		return 0, true
	}
	r.mu.Lock()
	limiter := r.each[principal]
	if limiter == nil {
		if len(r.each) >= maxRates {
			// A principal with its whole burst left loses nothing by this.
			whole := func(_ string, l *rate.Limiter) bool { return l.Tokens() >= float64(r.burst) }
			maps.DeleteFunc(r.each, whole)
		}
		if len(r.each) >= maxRates {
			clear(r.each)
		}
		limiter = rate.NewLimiter(r.limit, r.burst)
		r.each[principal] = limiter
	}
	r.mu.Unlock()
	reservation := limiter.Reserve()
	wait = reservation.Delay()
	if wait > 0 {
		reservation.Cancel() // a refused request must not delay the next one
		return wait, false
	}
	return 0, true
}

// quota limits the use of a resource, in total and per principal.
type quota struct {
	most, mostEach int

	mu      sync.Mutex
	all     int
	each    map[string]int
	waiters []*waiter // in order of arrival
}

// waiter is a call that waits for room.
type waiter struct {
	principal string
	n         int
	granted   chan struct{} // closed when n is granted
}

// newDecoding returns the quota for bytes of messages being read and decoded: in total four times the longest
// message, per principal the longest message and a quarter. Decoding takes several times the memory of the
// text, and a processor.
func newDecoding(longest int) *quota {
	return &quota{most: 4 * longest, mostEach: longest + longest/4, each: make(map[string]int)}
}

// The memory that the process needs besides the memory quota, and the minimum of the quota.
const (
	otherMemory = 128 << 20
	leastMemory = 64 << 20
)

// fileCost is the memory in bytes for each byte of a file in an answer: for the file, its base64 or JSON, and
// the message.
const fileCost = 5

// newMemory returns the quota for the memory of files, decoded pictures and answers until they are written. A
// principal may use what a file of the longest kind, 64 MiB, and some short ones take, so that two principals
// with long files leave room for others. In a process limited to most bytes (0 means unlimited) the quota is
// smaller accordingly.
func newMemory(most int64) *quota {
	all := int64(192 << 20 * fileCost)
	if most > 0 {
		all = min(all, max(most-otherMemory, leastMemory))
	}
	return &quota{most: int(all), mostEach: int(all / 12 * 5), each: make(map[string]int)}
}

// A ledger is the memory that one request holds.
type ledger struct {
	memory    *quota
	principal string

	mu   sync.Mutex
	held int
}

// hold waits for n bytes, which the request keeps until its answer is written. A request for more than the
// share of a principal waits until nothing else is held.
func (l *ledger) hold(ctx context.Context, n int) bool {
	n = min(n, l.memory.most)
	ok := l.memory.wait(ctx, l.principal, n, holdingPatience)
	if ok {
		l.mu.Lock()
		l.held += n
		l.mu.Unlock()
	}
	return ok
}

// borrow waits for n bytes, which giveBack releases.
func (l *ledger) borrow(ctx context.Context, n int) (giveBack func(), ok bool) {
	n = min(n, l.memory.most)
	if !l.memory.wait(ctx, l.principal, n, holdingPatience) {
		return func() {}, false
	}
	return sync.OnceFunc(func() { l.memory.leave(l.principal, n) }), true
}

// answer raises what the request holds to the memory for an answer of n bytes.
func (l *ledger) answer(ctx context.Context, n int) bool {
	l.mu.Lock()
	more := n - l.held
	l.mu.Unlock()
	return more <= 0 || l.hold(ctx, more)
}

// close releases everything that is held.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memory.leave(l.principal, l.held)
	l.held = 0
}

// newQuota returns a quota of most, of which one principal may use 1/share.
func newQuota(most, share int) *quota {
	return &quota{most: most, mostEach: max(most/share, 1), each: make(map[string]int)}
}

// take acquires n and reports whether that was possible; leave releases it.
func (q *quota) take(principal string, n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.grant(principal, n)
}

// grant is take with q.mu held.
func (q *quota) grant(principal string, n int) bool {
	isAlone := q.all == 0 && n <= q.most // a single user may exceed its share
	if !isAlone && (q.all+n > q.most || q.each[principal]+n > q.mostEach) {
		return false
	}
	q.all += n
	q.each[principal] += n
	return true
}

// wait is take that waits for room until patience or ctx ends. Waiters are served in order of arrival, except
// that a waiter without room yet does not block those behind it.
func (q *quota) wait(ctx context.Context, principal string, n int, patience time.Duration) bool {
	w := &waiter{principal, n, make(chan struct{})}
	q.mu.Lock()
	if q.grant(principal, n) {
		q.mu.Unlock()
		return true
	}
	q.waiters = append(q.waiters, w)
	q.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-w.granted:
		return true
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiters, w)
	if i < 0 {
		return true // granted in the meantime
	}
	q.waiters = slices.Delete(q.waiters, i, i+1)
	return false
}

func (q *quota) leave(principal string, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all -= n
	q.each[principal] -= n
	if q.each[principal] == 0 {
		delete(q.each, principal)
	}
	q.waiters = slices.DeleteFunc(q.waiters, func(w *waiter) bool {
		granted := q.all < q.most && q.grant(w.principal, w.n)
		if granted {
			close(w.granted)
		}
		return granted
	})
}

// taken returns how much a principal holds.
func (q *quota) taken(principal string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.each[principal]
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
