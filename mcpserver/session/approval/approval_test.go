package approval

import (
	"errors"
	"strings"
	"testing"
	"time"
)

var now = time.Unix(1_800_000_000, 0)

func state() State {
	return State{Tool: "t", Skill: "s", Path: "p", Tree: "sha256:1", Call: "sha256:2", Principal: "alice",
		Session: "ses"}
}

// ask returns the token of a question about a state.
func ask(t testing.TB, a *Approver, s State) string {
	t.Helper()
	if !a.Begin(&s, now.Add(time.Minute), now) {
		t.Fatal("not asked")
	}
	return a.Seal(&s)
}

// A token counts once, in time, for the call it was made for and at the server that made it.
func TestOpen(t *testing.T) {
	a := New()
	token := ask(t, a, state())
	if _, err := New().Open(token, state(), now); !errors.Is(err, ErrForged) {
		t.Errorf("at another server: %v", err)
	}
	if _, err := a.Open(token[:len(token)-4]+"AAAA", state(), now); !errors.Is(err, ErrForged) {
		t.Errorf("changed: %v", err)
	}
	if _, err := a.Open(token, state(), now.Add(time.Minute)); !errors.Is(err, ErrExpired) {
		t.Errorf("late: %v", err)
	}
	if _, err := a.Open(token, state(), now); err != nil {
		t.Errorf("in time: %v", err)
	}
	if _, err := a.Open(token, state(), now); !errors.Is(err, ErrReplayed) {
		t.Errorf("again: %v", err)
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
		if _, err := a.Open(token, want, now); !errors.Is(err, ErrForeign) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := a.Open(token, state(), now); !errors.Is(err, ErrReplayed) {
			t.Errorf("%s, then its own call: %v", name, err)
		}
	}
}

// No more than MaxPending questions about a script are open, whatever became of those before.
func TestBegin(t *testing.T) {
	a := New()
	for range MaxPending {
		ask(t, a, state())
	}
	s := state()
	if a.Begin(&s, now.Add(time.Minute), now) {
		t.Error("one too many is asked")
	}
	other := state()
	other.Path = "other"
	ask(t, a, other)
	if !a.Begin(&s, now.Add(time.Hour), now.Add(2*time.Minute)) {
		t.Error("not asked although the others have expired")
	}
	a.Withdraw(&s)
	if !a.Begin(&s, now.Add(time.Hour), now.Add(2*time.Minute)) {
		t.Error("not asked although one was withdrawn")
	}
}

func TestTired(t *testing.T) {
	a, key := New(), Key{"s", "p", "sha256:1"}
	for range MaxDeclined {
		if a.Tired("alice", key, now) {
			t.Error("tired too early")
		}
		a.Refused("alice", key, now)
	}
	if !a.Tired("alice", key, now) || a.Tired("bob", key, now) ||
		a.Tired("alice", Key{"s", "p", "sha256:2"}, now) {
		t.Error("not counted by principal and script")
	}
	if a.Tired("alice", key, now.Add(Pause+1)) {
		t.Error("tired for good")
	}
}

// No text that is not a token of the server opens.
func FuzzOpen(f *testing.F) {
	a := New()
	s := state()
	f.Add(ask(f, a, s))
	f.Add(strings.Repeat("A", 43))
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := New().Open(token, s, now); !errors.Is(err, ErrForged) {
			t.Errorf("Open(%q) = %v", token, err)
		}
	})
}
