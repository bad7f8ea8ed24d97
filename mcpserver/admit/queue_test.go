package admit

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// mustJoin has one run of each principal join, in this order.
func mustJoin(t testing.TB, q *Queue, principals string) []*Claim {
	t.Helper()
	var turns []*Claim
	for p := range strings.FieldsSeq(principals) {
		turn, err := q.Join(p)
		if err != nil {
			t.Fatalf("join(%s) = %v", p, err)
		}
		turns = append(turns, turn)
	}
	return turns
}

// granted reports whether the slot was granted.
func (c *Claim) granted() bool {
	if !c.queued {
		return true
	}
	select {
	case <-c.settled:
		return c.err == nil
	default:
		return false
	}
}

func TestQueueOrder(t *testing.T) {
	for _, tt := range []struct {
		name    string
		slots   int
		holding string // who comes first
		waiting string
		back    string // whose slots are given back, one after the other; "-" is the one handed out last
		served  string
	}{
		{"one principal", 2, "a a", "a a", "a a", "a a"},
		{"in turn", 1, "a", "a a a b b c", "a - - - - -", "b c a b a a"},
		{"who holds fewer goes first", 3, "a a a", "a a b b b", "a a a - -", "b b a a b"},
		{"who came late holds nothing", 2, "a b", "a b a b c", "a b", "c a"},
		{"a slot of another", 2, "a b", "a a a", "b", "a"},
		{"one who comes again comes last", 1, "a", "b c", "a -", "b c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := NewQueue(tt.slots, nil)
			held := mustJoin(t, q, tt.holding)
			waiting := mustJoin(t, q, tt.waiting)
			var served []string
			for p := range strings.FieldsSeq(tt.back) {
				i := slices.IndexFunc(held, func(h *Claim) bool { return h.principal == p })
				if p == "-" {
					i = len(held) - 1
				}
				held[i].Release()
				held = slices.Delete(held, i, i+1)
				i = slices.IndexFunc(waiting, (*Claim).granted)
				held, served = append(held, waiting[i]), append(served, waiting[i].principal)
				waiting = slices.Delete(waiting, i, i+1)
			}
			if got := strings.Join(served, " "); got != tt.served {
				t.Errorf("served %s, want %s", got, tt.served)
			}
		})
	}
}

// While nobody else waits a principal may have every slot, and what is free is handed out at once.
// A principal that holds its most leaves free slots to others, and is served again when it gives one back.
func TestQueueMost(t *testing.T) {
	q := NewQueue(4, func(principal string) int { return map[string]int{"a": 2, "b": 3}[principal] })
	turns := mustJoin(t, q, "a a a a c b")
	granted := func() (s string) {
		for _, turn := range turns {
			s += map[bool]string{true: "x", false: "-"}[turn.granted()]
		}
		return s
	}
	if got := granted(); got != "xx--xx" {
		t.Fatalf("granted %s; a holds 2 at most, c one", got)
	}
	turns[5].Release() // of b: a still holds its most
	if got := granted(); got != "xx--xx" || q.State().Free != 1 {
		t.Errorf("after b's release: granted %s, %d free", got, q.State().Free)
	}
	turns[0].Release()
	if got := granted(); got != "xxx-xx" {
		t.Errorf("after a's release: granted %s", got)
	}
}

// A run does not wait for ever, and learns how many come before it.
func TestQueueLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(1, nil)
		mustJoin(t, q, "a b")
		begin := time.Now()
		_, err := q.Acquire(t.Context(), "c", func(int) {})
		late, ok := errors.AsType[*LateError](err)
		if !ok || late.Before != 1 || time.Since(begin) != MaxWait || q.State().Waiting != 1 {
			t.Errorf("Acquire = %v after %v; %d wait", err, time.Since(begin), q.State().Waiting)
		}
	})
}

func TestQueueAlone(t *testing.T) {
	q := NewQueue(4, nil)
	turns := mustJoin(t, q, "a a a a a")
	for i, turn := range turns {
		if want := i < 4; turn.granted() != want {
			t.Errorf("run %d has a slot: %v, want %v", i, !want, want)
		}
	}
}

// A principal has a bound; when all places are taken, who has most of them makes room for others.
func TestQueueIsBounded(t *testing.T) {
	q := NewQueue(1, nil)
	mustJoin(t, q, "holder")
	a := mustJoin(t, q, strings.Repeat("a ", q.mostEach))
	if _, err := q.Join("a"); err != ErrCrowded {
		t.Errorf("join of one too many = %v, want ErrCrowded", err)
	}
	mustJoin(t, q, strings.Repeat("b ", q.most-q.mostEach))
	mustJoin(t, q, "c c")
	var away int
	for i, turn := range append(a[:0:0], a...) {
		select {
		case <-turn.settled:
			away++
			if turn.err != ErrCrowded || i < len(a)-2 {
				t.Errorf("run %d of %d is sent away with %v", i, len(a), turn.err)
			}
		default:
		}
	}
	if len(q.slots.waiting) != q.most || away == 0 {
		t.Errorf("%d wait, want %d; %d of a were sent away", len(q.slots.waiting), q.most, away)
	}
	if _, err := q.Join("b"); err != ErrCrowded {
		t.Errorf("join of one who has as many as anyone = %v, want ErrCrowded", err)
	}
}

// A run that waits is told at once how many come before it, and after a while when that has changed.
func TestQueueTellsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(1, nil)
		held := mustJoin(t, q, "a")[0]
		others := mustJoin(t, q, "a a b")
		var told []int
		var waits sync.WaitGroup
		waits.Go(func() {
			held, err := q.Acquire(t.Context(), "c", func(before int) { told = append(told, before) })
			if err != nil {
				t.Errorf("acquire = %v", err)
				return
			}
			held.Release()
		})
		synctest.Wait()
		if !slices.Equal(told, []int{1}) {
			t.Errorf("told %v at once, want [1]: a holds a slot, b came first", told)
		}
		time.Sleep(3 * reportEvery)
		synctest.Wait()
		if len(told) != 1 {
			t.Errorf("told %v although nothing changed", told)
		}
		held.Release()
		time.Sleep(reportEvery)
		synctest.Wait()
		others[2].Release()
		waits.Wait()
		if !slices.Equal(told, []int{1, 0}) {
			t.Errorf("told %v, want [1 0]", told)
		}
	})
}

func TestQueuePlaces(t *testing.T) {
	q := NewQueue(3, nil)
	mustJoin(t, q, "a a b")
	turns := mustJoin(t, q, "a b a c b c")
	for i, want := range []int{3, 1, 5, 0, 4, 2} {
		if got := q.before(turns[i]); got != want {
			t.Errorf("before run %d come %d, want %d", i, got, want)
		}
	}
}

// A run that gives up leaves its place, or the slot that came in the same moment, to others.
func TestQueueGiveUp(t *testing.T) {
	q := NewQueue(1, nil)
	held := mustJoin(t, q, "a")[0]
	turns := mustJoin(t, q, "a a a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q.slots.giveUp(turns[0], ctx.Err())
	if turns[0].err != context.Canceled {
		t.Errorf("the wait ended with %v", turns[0].err)
	}
	held.Release()
	if !turns[1].granted() {
		t.Fatal("the slot did not pass over who gave up")
	}
	q.slots.giveUp(turns[1], ctx.Err())
	if !turns[2].granted() {
		t.Error("a slot that came too late was lost")
	}
}

func TestQueueClose(t *testing.T) {
	q := NewQueue(1, nil)
	held := mustJoin(t, q, "a")[0]
	turns := mustJoin(t, q, "a b")
	q.Close()
	for _, turn := range turns {
		<-turn.settled
		if turn.err != ErrClosed {
			t.Errorf("the wait ended with %v, want ErrClosed", turn.err)
		}
	}
	held.Release()
	if _, err := q.Join("a"); err != ErrClosed {
		t.Errorf("join after the end = %v, want ErrClosed", err)
	}
	if q.State().Free != 1 || len(q.slots.shares) != 0 {
		t.Errorf("%d slots free, shares %v", q.State().Free, q.slots.shares)
	}
}

// Whatever happens in whatever order: no more slots are handed out than there are, none lies idle while
// somebody waits, and the one handed a slot holds the fewest, had none for longest, and is served in
// the order in which it came.
func TestQueueRules(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		m := &queueModel{t: t, q: NewQueue(1+r.IntN(4), nil), last: map[string]int{}, held: map[string]int{}}
		m.slots = m.q.slots.most
		for m.step = 1; m.step <= 300 && !t.Failed(); m.step++ {
			switch op := r.IntN(10); {
			case op < 5:
				m.join(string(rune('a' + r.IntN(5))))
			case op < 6 && len(m.waiting) > 0:
				i := r.IntN(len(m.waiting))
				m.q.slots.giveUp(m.waiting[i], context.Canceled)
				m.waiting = slices.Delete(m.waiting, i, i+1)
			case len(m.running) > 0:
				i := r.IntN(len(m.running))
				m.held[m.running[i].principal]--
				m.last[m.running[i].principal] = 2 * m.step
				m.running[i].Release()
				m.running = slices.Delete(m.running, i, i+1)
			}
			m.check()
		}
	}
}

// queueModel is what is known of a queue from outside.
type queueModel struct {
	t                *testing.T
	q                *Queue
	slots, step      int
	waiting, running []*Claim
	held, last       map[string]int // of those that wait or run: slots, and when they last had one, or came
}

func (m *queueModel) join(principal string) {
	joined, err := m.q.Join(principal)
	if err != nil {
		m.t.Errorf("join(%s) = %v", principal, err)
		return
	}
	ofIt := func(other *Claim) bool { return other.principal == principal }
	if !slices.ContainsFunc(m.waiting, ofIt) && !slices.ContainsFunc(m.running, ofIt) {
		m.last[principal] = 2 * m.step
	}
	m.waiting = append(m.waiting, joined)
}

// check looks at who was handed a slot in the last step.
func (m *queueModel) check() {
	m.t.Helper()
	for {
		i := slices.IndexFunc(m.waiting, (*Claim).granted)
		if i < 0 {
			break
		}
		want := slices.MinFunc(m.waiting, func(a, b *Claim) int {
			return cmp.Or(cmp.Compare(m.held[a.principal], m.held[b.principal]), cmp.Compare(m.last[a.principal], m.last[b.principal]))
		})
		if m.waiting[i] != want {
			m.t.Errorf("step %d: a run of %s has the slot, one of %s was next", m.step, m.waiting[i].principal, want.principal)
		}
		m.held[want.principal]++
		m.last[want.principal] = 2*m.step + 1
		m.running = append(m.running, m.waiting[i])
		m.waiting = slices.Delete(m.waiting, i, i+1)
	}
	if len(m.running) > m.slots || len(m.running) < m.slots && len(m.waiting) > 0 {
		m.t.Errorf("step %d: %d run of %d, %d wait", m.step, len(m.running), m.slots, len(m.waiting))
	}
}

// A principal that asks for little is served although others ask without end.
func TestQueueStarvesNobody(t *testing.T) {
	q := NewQueue(2, nil)
	greedy := mustJoin(t, q, strings.Repeat("a b c ", 20))
	modest := mustJoin(t, q, "d")[0]
	for n := 0; !modest.granted(); n++ {
		i := slices.IndexFunc(greedy, (*Claim).granted)
		greedy[i].Release()
		greedy = append(slices.Delete(greedy, i, i+1), mustJoin(t, q, greedy[i].principal)...)
		if n > 4 {
			t.Fatalf("%d runs of others were served first", n)
		}
	}
}

// Many at once, half of whom leave while they wait: never more run than may, everyone who stays runs,
// and in the end every slot is free.
func TestQueueStorm(t *testing.T) {
	const slots, runs = 3, 60
	q := NewQueue(slots, nil)
	var running, most, ran atomic.Int32
	var group sync.WaitGroup
	for i := range runs * 4 {
		group.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			leaves := i%2 == 0
			if leaves {
				go cancel()
			}
			held, err := q.Acquire(ctx, string(rune('a'+i%4)), func(int) {})
			if err != nil {
				if !leaves || !errors.Is(err, context.Canceled) {
					t.Errorf("acquire = %v", err)
				}
				return
			}
			now := running.Add(1)
			for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
			}
			for range r.IntN(50) {
				q.before(&Claim{share: &share{}})
			}
			running.Add(-1)
			ran.Add(1)
			held.Release()
		})
	}
	group.Wait()
	if n := most.Load(); n > slots {
		t.Errorf("%d ran at once, %d may", n, slots)
	}
	if n := ran.Load(); n < runs*2 {
		t.Errorf("%d ran, %d stayed", n, runs*2)
	}
	if q.State().Free != slots || len(q.slots.shares)+len(q.slots.waiting) != 0 {
		t.Errorf("in the end %d slots are free, shares %v, %d wait", q.State().Free, q.slots.shares, len(q.slots.waiting))
	}
}
