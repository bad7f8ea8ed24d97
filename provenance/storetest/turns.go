package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/skillsd/skillsd/provenance"
)

// RunTurns checks that a session has one writer at a time. It uses pairs of stores made by open that share
// their records and nothing else. RunTurns closes them.
func RunTurns(t *testing.T, open func(t *testing.T) (a, b provenance.Store)) {
	for name, test := range map[string]func(t *testing.T, a, b provenance.Store){
		"release": testRelease,
		"taken":   testTaken,
		"ended":   testTurnEnds,
		"race":    testRace,
		"refused": testTakeRefused,
	} {
		t.Run(name, func(t *testing.T) {
			a, b := open(t)
			t.Cleanup(func() {
				if err := errors.Join(a.Close(), b.Close()); err != nil {
					t.Errorf("Close() = %v", err)
				}
			})
			test(t, a, b)
		})
	}
}

// take begins a turn, and fails the test if it cannot.
func take(t *testing.T, st provenance.Store, session string) {
	t.Helper()
	if err := st.Take(t.Context(), session); err != nil {
		t.Fatalf("Take = %v", err)
	}
}

// wantChain checks that a record has the wanted number of events, and that all stores read the same.
func wantChain(t *testing.T, session string, want int, stores ...provenance.Store) {
	t.Helper()
	for _, st := range stores {
		if got := collect(t, st, provenance.Query{Session: session}); len(got) != want {
			t.Errorf("the record has %d events, want %d", len(got), want)
		}
		if found, err := st.Verify(t.Context(), session); err != nil || found.Events != want {
			t.Errorf("Verify = %+v, %v, want %d events", found, err, want)
		}
	}
}

// testRelease gives a session to two writers alternately; each must find the events of the other.
func testRelease(t *testing.T, a, b provenance.Store) {
	Append(t, a, "s", provenance.KindSessionStarted, provenance.KindSkillActivated)
	for i := range 3 {
		a.Release("s")
		a.Release("s")
		take(t, b, "s")
		e := Append(t, b, "s", provenance.KindSessionResumed)[0]
		if want := uint64(3 + 2*i); e.Seq != want {
			t.Errorf("the event of a new turn has seq %d, want %d", e.Seq, want)
		}
		Append(t, b, "s", provenance.KindResourceRead)
		a, b = b, a
	}
	wantChain(t, "s", 8, a, b)
	a.Release("never written")
}

// testTaken takes a session that another writer has. Either the store refuses that, or the other writer's
// later appends fail and are not in the record.
func testTaken(t *testing.T, a, b provenance.Store) {
	Append(t, a, "s", provenance.KindSessionStarted)
	err := b.Take(t.Context(), "s")
	if errors.Is(err, provenance.ErrHeld) {
		wantError(t, "Append to a session that is held",
			b.Append(t.Context(), Event("s", provenance.KindResourceRead, 2)), provenance.ErrUnavailable)
		Append(t, a, "s", provenance.KindResourceRead)
		wantChain(t, "s", 2, a, b)
		return
	}
	if err != nil {
		t.Fatalf("Take = %v, want none or ErrHeld", err)
	}
	Append(t, b, "s", provenance.KindSessionResumed)
	for range 3 {
		e := Event("s", provenance.KindScriptRequested, 3)
		wantError(t, "Append in a lost turn", a.Append(t.Context(), e), provenance.ErrLost)
		if e.Seq != 0 {
			t.Errorf("an event that was refused has seq %d", e.Seq)
		}
	}
	Append(t, b, "s", provenance.KindResourceRead)
	wantChain(t, "s", 3, a, b)
	take(t, a, "s")
	if e := Append(t, a, "s", provenance.KindSessionResumed)[0]; e.Seq != 4 {
		t.Errorf("the event of a new turn has seq %d, want 4", e.Seq)
	}
	wantError(t, "Append in a lost turn", b.Append(t.Context(), Event("s", provenance.KindSessionEnded, 5)),
		provenance.ErrLost)
	// A turn is limited to one session.
	Append(t, b, "other", provenance.KindSessionStarted)
	wantChain(t, "s", 4, a, b)
}

// testTurnEnds ends turns by ending the session and by closing the store.
func testTurnEnds(t *testing.T, a, b provenance.Store) {
	Append(t, a, "s", provenance.KindSessionStarted, provenance.KindSessionEnded)
	Append(t, b, "s", provenance.KindSessionResumed)
	wantChain(t, "s", 3, a, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	take(t, a, "s")
	Append(t, a, "s", provenance.KindSessionResumed)
	wantChain(t, "s", 4, a)
}

// testRace lets two writers append equal events concurrently. The record must contain each acknowledged event
// exactly once, and no others.
func testRace(t *testing.T, a, b provenance.Store) {
	const sessions, each = 20, 4
	for n := range sessions {
		session := fmt.Sprint("s", n)
		Append(t, a, session, provenance.KindSessionStarted)
		a.Release(session)
		var mu sync.Mutex
		acknowledged := map[uint64]string{1: ""}
		var wg sync.WaitGroup
		for _, st := range []provenance.Store{a, b} {
			wg.Go(func() {
				if st.Take(t.Context(), session) != nil {
					return
				}
				for range each {
					e := Event(session, provenance.KindResourceRead, 2)
					err := st.Append(t.Context(), e)
					if errors.Is(err, provenance.ErrLost) {
						return
					}
					if err != nil {
						t.Errorf("Append = %v", err)
						return
					}
					mu.Lock()
					if _, twice := acknowledged[e.Seq]; twice {
						t.Errorf("event %d of %s was acknowledged to both", e.Seq, session)
					}
					acknowledged[e.Seq] = e.Hash
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		got := collect(t, b, provenance.Query{Session: session})
		if len(got) != len(acknowledged) || len(got) < 1+each {
			t.Errorf("%s has %d events, %d were acknowledged", session, len(got), len(acknowledged))
		}
		for _, e := range got[1:] {
			if acknowledged[e.Seq] != e.Hash {
				t.Errorf("event %d of %s is not the one that was acknowledged", e.Seq, session)
			}
		}
	}
}

func testTakeRefused(t *testing.T, a, _ provenance.Store) {
	wantError(t, "Take of an impossible id", a.Take(t.Context(), "../s"), provenance.ErrInvalid)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	wantError(t, "Take after Close", a.Take(t.Context(), "s"), provenance.ErrClosed)
	a.Release("s")
}
