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

// holdingPatience is how long a request waits until others, whose answers have long files, are answered.
const holdingPatience = 10 * time.Second

// maxRates is how many principals' rates are remembered.
const maxRates = 4096

// rates limits how often each principal may ask.
type rates struct {
	limit rate.Limit
	burst int

	mu   sync.Mutex
	each map[string]*rate.Limiter
}

// take reports whether principal may ask now, and if not, after how long.
func (r *rates) take(principal string) (wait time.Duration, ok bool) {
	if r.limit == 0 {
		return 0, true
	}
	r.mu.Lock()
	limiter := r.each[principal]
	if limiter == nil {
		if len(r.each) >= maxRates {
			// Whoever has the whole burst left loses nothing.
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

// quota counts what is taken of something scarce, in all and by each principal.
type quota struct {
	most, mostEach int

	mu      sync.Mutex
	all     int
	each    map[string]int
	waiters []*waiter // in the order in which they came
}

// waiter is a call that waits until there is room for it.
type waiter struct {
	principal string
	n         int
	granted   chan struct{} // closed when it has its n
}

// newDecoding returns the quota of the bytes of messages that are being read and decoded: in all four times
// the longest message, of each principal the longest one and some short ones. Decoding takes several times
// the memory of the text, and a processor.
func newDecoding(longest int) *quota {
	return &quota{most: 4 * longest, mostEach: longest + longest/4, each: make(map[string]int)}
}

// What the process takes besides what is counted in memory, and the least that is counted.
const (
	otherMemory = 128 << 20
	leastMemory = 64 << 20
)

// fileCost is how many bytes of memory a byte of a file takes that an answer has: the file, its base64 or its
// JSON, and the message.
const fileCost = 5

// newMemory returns the quota of the bytes of memory that files, pictures that are decoded, and answers take
// until they are written: of each principal what a file of the longest kind, 64 MiB, and some short ones
// take, so that two who read long ones leave room for others; in a process that may take most bytes, which is
// 0 for any, accordingly less.
func newMemory(most int64) *quota {
	all := int64(192 << 20 * fileCost)
	if most > 0 {
		all = min(all, max(most-otherMemory, leastMemory))
	}
	return &quota{most: int(all), mostEach: int(all / 12 * 5), each: make(map[string]int)}
}

// A ledger is what one request has of the memory.
type ledger struct {
	memory    *quota
	principal string

	mu   sync.Mutex
	held int
}

// hold waits for n bytes that the request has until its answer is written. More than one principal may have
// waits until nobody has any.
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

// borrow waits for n bytes until giveBack is called.
func (l *ledger) borrow(ctx context.Context, n int) (giveBack func(), ok bool) {
	n = min(n, l.memory.most)
	if !l.memory.wait(ctx, l.principal, n, holdingPatience) {
		return func() {}, false
	}
	return sync.OnceFunc(func() { l.memory.leave(l.principal, n) }), true
}

// answer has the request hold as much as an answer of n bytes takes, if that is more than it holds.
func (l *ledger) answer(ctx context.Context, n int) bool {
	l.mu.Lock()
	more := n - l.held
	l.mu.Unlock()
	return more <= 0 || l.hold(ctx, more)
}

// close gives back all that is held.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memory.leave(l.principal, l.held)
	l.held = 0
}

// newQuota has most to give, of which one principal may take 1/share.
func newQuota(most, share int) *quota {
	return &quota{most: most, mostEach: max(most/share, 1), each: make(map[string]int)}
}

// take reports whether there was n left; leave gives it back.
func (q *quota) take(principal string, n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.grant(principal, n)
}

// grant is take. q.mu is held.
func (q *quota) grant(principal string, n int) bool {
	isAlone := q.all == 0 && n <= q.most // it may take more than its share
	if !isAlone && (q.all+n > q.most || q.each[principal]+n > q.mostEach) {
		return false
	}
	q.all += n
	q.each[principal] += n
	return true
}

// wait is take that waits until there is room, at most for patience or until ctx ends. Whoever came first is
// first, but for those for whom there is no room yet.
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
		return true // granted in between
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

// taken returns how much a principal has.
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
