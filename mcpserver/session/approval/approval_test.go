package approval

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance/jetstream"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
)

var now = time.Unix(1_800_000_000, 0)

func state() State {
	return State{Tool: "t", Skill: "s", Path: "p", Tree: "sha256:1", Call: "sha256:2", Principal: "alice",
		Session: "ses"}
}

// ask returns the token of a question about a state.
func ask(t testing.TB, a *Approver, s State) string {
	t.Helper()
	if asked, err := a.Begin(t.Context(), &s, Form{}, now.Add(time.Minute), now); !asked || err != nil {
		t.Fatal("not asked")
	}
	return a.Seal(&s)
}

// A token counts once, in time, for the call it was made for and at the server that made it.
func TestOpen(t *testing.T) {
	a := New()
	token := ask(t, a, state())
	if _, err := New().Open(t.Context(), token, state(), now); !errors.Is(err, ErrForged) {
		t.Errorf("at another server: %v", err)
	}
	if _, err := a.Open(t.Context(), token[:len(token)-4]+"AAAA", state(), now); !errors.Is(err, ErrForged) {
		t.Errorf("changed: %v", err)
	}
	if _, err := a.Open(t.Context(), token, state(), now.Add(time.Minute)); !errors.Is(err, ErrExpired) {
		t.Errorf("late: %v", err)
	}
	if _, err := a.Open(t.Context(), token, state(), now); err != nil {
		t.Errorf("in time: %v", err)
	}
	if _, err := a.Open(t.Context(), token, state(), now); !errors.Is(err, ErrReplayed) {
		t.Errorf("again: %v", err)
	}
}

// An answer counts once and in time by each clock, whichever server of a cluster takes it; the ledger keeps
// no time that one of them could end early.
func TestClocks(t *testing.T) {
	ledger := newMemory()
	asks, answers := NewShared([]byte("key"), ledger), NewShared([]byte("key"), ledger)
	for _, tt := range []struct {
		ahead time.Duration // the clock of the one that takes the answer
		want  error
		age   time.Duration
	}{
		{0, nil, 0}, {30 * time.Second, nil, 30 * time.Second}, {-Clocks, nil, Least},
		{-Clocks - time.Second, ErrEarly, 0}, {-time.Hour, ErrEarly, 0}, {time.Hour, ErrExpired, 0},
	} {
		token := ask(t, asks, state())
		age, err := answers.Open(t.Context(), token, state(), now.Add(tt.ahead))
		if !errors.Is(err, tt.want) || age != tt.age {
			t.Errorf("%v ahead: Open = %v, %v; want %v, %v", tt.ahead, age, err, tt.age, tt.want)
		}
		wantAgain := error(ErrReplayed)
		if tt.want != nil { // it was not closed
			wantAgain = nil
		}
		if _, err := asks.Open(t.Context(), token, state(), now.Add(time.Second)); !errors.Is(err, wantAgain) {
			t.Errorf("%v ahead, then by the first clock: %v, want %v", tt.ahead, err, wantAgain)
		}
	}
	// Long after what a clock that is ahead takes for the end of the answer's time, it is still used.
	token := ask(t, asks, state())
	if _, err := answers.Open(t.Context(), token, state(), now.Add(59*time.Second)); err != nil {
		t.Error(err)
	}
	other := state()
	other.Path = "other"
	if _, err := answers.Begin(t.Context(), &other, Form{}, now.Add(2*time.Hour), now.Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if _, err := asks.Open(t.Context(), token, state(), now); !errors.Is(err, ErrReplayed) {
		t.Errorf("again, by a clock that is behind: %v", err)
	}
	// A clock that is ahead does not end the questions of others.
	token = ask(t, asks, state())
	later := state()
	if _, err := answers.Begin(t.Context(), &later, Form{}, now.Add(2*time.Hour), now.Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if _, err := asks.Open(t.Context(), token, state(), now); err != nil {
		t.Errorf("after a question by a clock that is ahead: %v", err)
	}
}

// Whatever differs from the call, the token is foreign, and used up.
func TestOpenForAnotherCall(t *testing.T) {
	for name, change := range map[string]func(s *State){
		"tool": func(s *State) { s.Tool = "x" }, "skill": func(s *State) { s.Skill = "x" }, "path": func(
			s *State) {
			s.Path = "x"
		},
		"tree": func(s *State) { s.Tree = "x" }, "call": func(s *State) { s.Call = "x" },
		"principal": func(s *State) { s.Principal = "x" }, "session": func(s *State) { s.Session = "x" },
	} {
		a := New()
		token, want := ask(t, a, state()), state()
		change(&want)
		if _, err := a.Open(t.Context(), token, want, now); !errors.Is(err, ErrForeign) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := a.Open(t.Context(), token, state(), now); !errors.Is(err, ErrReplayed) {
			t.Errorf("%s, then its own call: %v", name, err)
		}
	}
}

// Approvers of one key and ledger are one: what one asked, another opens, once, and each counts the refusals
// and open questions of both. If the ledger fails, nothing is asked or approved.
func TestShared(t *testing.T) {
	memory := newMemory()
	t.Run("memory", func(t *testing.T) { testShared(t, memory, memory) })
	t.Run("cluster", func(t *testing.T) {
		cluster := clustertest.Start(t, 3)
		cells := func() Ledger {
			c, err := jetstream.OpenCells(t.Context(), cluster.Connect(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			return NewLedger(c)
		}
		testShared(t, cells(), cells())
	})
}

func testShared(t *testing.T, ofA, ofB Ledger) {
	failing := &failing{Ledger: ofA}
	a, b := NewShared([]byte("key"), failing), NewShared([]byte("key"), ofB)
	both := []*Approver{a, b}
	// Many answer with the same token at once: one of them counts.
	token := ask(t, a, state())
	var opened atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			switch _, err := both[i%2].Open(t.Context(), token, state(), now); {
			case err == nil:
				opened.Add(1)
			case !errors.Is(err, ErrReplayed):
				t.Errorf("Open = %v", err)
			}
		})
	}
	wg.Wait()
	if n := opened.Load(); n != 1 {
		t.Errorf("a token was opened %d times", n)
	}
	for i := range MaxPending {
		ask(t, both[i%2], state())
	}
	s, key := state(), Key{Skill: "s", Path: "p", Tree: "sha256:1"}
	for _, of := range both {
		if asked, err := of.Begin(t.Context(), &s, Form{}, now.Add(time.Minute), now); asked || err != nil {
			t.Errorf("Begin of one too many = %v, %v", asked, err)
		}
	}
	for i := range MaxDeclined {
		for _, of := range both {
			if of.Tired(t.Context(), "alice", key, now) {
				t.Errorf("tired after %d refusals", i)
			}
		}
		if err := both[i%2].Refused(t.Context(), "alice", key, now); err != nil {
			t.Fatal(err)
		}
	}
	if !a.Tired(t.Context(), "alice", key, now) || !b.Tired(t.Context(), "alice", key, now) {
		t.Error("refusals are not counted together")
	}
	other := state()
	other.Path = "other"
	token = ask(t, a, other)
	failing.err = errors.New("down")
	if _, err := a.Open(t.Context(), token, other, now); !errors.Is(err, ErrUnknown) {
		t.Errorf("Open without a ledger = %v", err)
	}
	if asked, err := a.Begin(t.Context(), &other, Form{}, now.Add(time.Minute), now); asked || !errors.Is(err, ErrUnknown) {
		t.Errorf("Begin without a ledger = %v, %v", asked, err)
	}
}

// failing is a ledger whose methods return err if there is one.
type failing struct {
	Ledger
	err error
}

func (f *failing) Change(ctx context.Context, of Script, now time.Time, change func(*Asked)) error {
	if f.err != nil {
		return f.err
	}
	return f.Ledger.Change(ctx, of, now, change)
}

// The call of a question is known by its token, to the session that asked only.
func TestIDOf(t *testing.T) {
	a, s := New(), state()
	s.ID = "run_skill_script:1"
	token := ask(t, a, s)
	for session, want := range map[string]string{"ses": s.ID, "other": ""} {
		if got := a.IDOf(token, session); got != want {
			t.Errorf("IDOf in session %s = %q, want %q", session, got, want)
		}
	}
	if got := New().IDOf(token, "ses"); got != "" {
		t.Errorf("IDOf at another server = %q", got)
	}
}

// No more than MaxPending questions about a script are open, whatever became of those before.
func TestBegin(t *testing.T) {
	a := New()
	for range MaxPending {
		ask(t, a, state())
	}
	s := state()
	begin := func(until, at time.Time) bool {
		asked, err := a.Begin(t.Context(), &s, Form{}, until, at)
		return asked && err == nil
	}
	if begin(now.Add(time.Minute), now) {
		t.Error("one too many is asked")
	}
	other := state()
	other.Path = "other"
	ask(t, a, other)
	if !begin(now.Add(time.Hour), now.Add(2*time.Minute)) {
		t.Error("not asked although the others have expired")
	}
	if got := a.Pending(now.Add(2 * time.Minute)); len(got) != 1 || got[0].Nonce != s.Nonce {
		t.Errorf("pending: %+v", got)
	}
	a.Withdraw(t.Context(), &s, now)
	if got := a.Pending(now.Add(2 * time.Minute)); len(got) != 0 {
		t.Errorf("pending after it was withdrawn: %+v", got)
	}
	if !begin(now.Add(time.Hour), now.Add(2*time.Minute)) {
		t.Error("not asked although one was withdrawn")
	}
}

func TestTired(t *testing.T) {
	a, key := New(), Key{Skill: "s", Path: "p", Tree: "sha256:1"}
	for range MaxDeclined {
		if a.Tired(t.Context(), "alice", key, now) {
			t.Error("tired too early")
		}
		if err := a.Refused(t.Context(), "alice", key, now); err != nil {
			t.Fatal(err)
		}
	}
	if !a.Tired(t.Context(), "alice", key, now) || a.Tired(t.Context(), "bob", key, now) ||
		a.Tired(t.Context(), "alice", Key{Skill: "s", Path: "p", Tree: "sha256:2"}, now) {
		t.Error("not counted by principal and script")
	}
	if a.Tired(t.Context(), "alice", key, now.Add(Pause+1)) {
		t.Error("tired for good")
	}
	for range MaxDeclined {
		if err := a.Refused(t.Context(), "carol", key, now); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Willing(t.Context(), "carol", key, now); err != nil || a.Tired(t.Context(), "carol", key, now) {
		t.Errorf("tired after an approval: %v", err)
	}
}

// No text that is not a token of the server opens.
func FuzzOpen(f *testing.F) {
	a := New()
	s := state()
	f.Add(ask(f, a, s))
	f.Add(strings.Repeat("A", 43))
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := New().Open(t.Context(), token, s, now); !errors.Is(err, ErrForged) {
			t.Errorf("Open(%q) = %v", token, err)
		}
	})
}
