package admit

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// claims makes claims such as "a4 b1": four units for a and one for b. Those without room wait.
func claims(q *Quota, list string) (made []*Claim) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for word := range strings.FieldsSeq(list) {
		n, _ := strconv.Atoi(word[1:])
		c, granted := q.claim(word[:1], n, false)
		if !granted {
			q.enqueue(c)
		}
		made = append(made, c)
	}
	return made
}

// The work of a task may ask for memory when its request is over, or still wait for it then. Nothing would
// return that memory.
func TestLedgerAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQuota(10, 10)
		other := q.Take("b", 10)
		l := &Ledger{Memory: q, Principal: "a", Patience: time.Minute}
		waited := make(chan bool)
		go func() { waited <- l.Hold(t.Context(), 4) }()
		synctest.Wait()
		l.Close()
		other.Release()
		if !<-waited || !l.Hold(t.Context(), 4) || !l.Raise(t.Context(), 4) || q.Held("a") != 0 {
			t.Errorf("%d units are held after the end of the request", q.Held("a"))
		}
		if l.Close(); q.Take("b", 10) == nil {
			t.Error("the memory does not come back")
		}
	})
}

// A principal has its share at most, but for a claim that is alone. Claims wait in the order of what their
// principals hold, and one that does not fit yet blocks no other.
func TestQuotaOrder(t *testing.T) {
	for _, tt := range []struct {
		name           string
		most, mostEach int
		held, waiting  string
		back           int // which of the held claims is released then; -1: none
		granted        string
	}{
		{"more than a share, alone", 10, 4, "", "a9 b1 b1", -1, "a9 b1"},
		{"more than there is", 10, 4, "", "a11", -1, ""},
		{"more than a share", 10, 4, "b1", "a5", -1, ""},
		{"a share", 10, 4, "b1", "a4 a1", -1, "a4"},
		{"who holds less goes first", 8, 6, "a4 b2 c2", "a2 b2 a1", 2, "b2"},
		{"in order of arrival", 3, 3, "a3", "c1 b1 d1 e1", 0, "c1 b1 d1"},
		{"within a principal too", 3, 3, "a3", "a1 a2 a1", 0, "a1 a2"},
		{"who does not fit", 10, 10, "a6 b4", "c7 d3", 1, "d3"},
		{"who has its share", 10, 5, "a5 b5", "a1 c1", 1, "c1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := NewQuota(tt.most, tt.mostEach)
			held := claims(q, tt.held)
			waiting := claims(q, tt.waiting)
			if tt.back >= 0 {
				held[tt.back].Release()
				held[tt.back].Release() // changes nothing
			}
			var granted []string
			for _, c := range waiting {
				if c.granted() {
					granted = append(granted, c.principal+strconv.Itoa(c.n))
				}
			}
			if got := strings.Join(granted, " "); got != tt.granted {
				t.Errorf("granted %s, want %s", got, tt.granted)
			}
		})
	}
}

// Many at once, some of whom leave while they wait: nobody holds more than may, and in the end all is back.
func TestQuotaStorm(t *testing.T) {
	const most, mostEach = 20, 8
	q := NewQuota(most, mostEach)
	var all atomic.Int64
	var each [3]atomic.Int64
	var group sync.WaitGroup
	for i := range 200 {
		group.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			own, n := &each[i%3], 1+r.IntN(mostEach)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%2 == 0 {
				go cancel()
			}
			c := q.Wait(ctx, string(rune('a'+i%3)), n, time.Minute, nil)
			if c == nil {
				if i%2 != 0 {
					t.Error("a claim that stays is not granted")
				}
				return
			}
			if sum, share := all.Add(int64(n)), own.Add(int64(n)); sum > most || share > mostEach {
				t.Errorf("%d units are held, %d by one principal", sum, share)
			}
			all.Add(int64(-n))
			own.Add(int64(-n))
			c.Release()
		})
	}
	group.Wait()
	if s := q.State(); s.Free != most || s.Waiting != 0 || s.Principals != 0 {
		t.Errorf("in the end: %+v", s)
	}
}

// What waits is counted for its principal, but only if more waits than is about to be free.
func TestQuotaWanted(t *testing.T) {
	q := NewQuota(3, 3)
	claims(q, "a1 a1 b1 c1 c1 b1")
	held := func() map[string]int { return map[string]int{"a": 2, "b": 1} }
	if each, least := q.Wanted(held, 2); least != 2 || each["a"] != 2 || each["b"] != 2 || each["c"] != 2 {
		t.Errorf("wanted: %v, at least %d", each, least)
	}
	if each, least := q.Wanted(held, 3); each != nil || least != 0 {
		t.Errorf("with room for all that wait: %v, at least %d", each, least)
	}
}
