package storetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/skillsd/skillsd/provenance"
)

// testClaims checks that a store gives an id to one caller only, and that no session begins twice.
func testClaims(t *testing.T, st provenance.Store) {
	var got atomic.Int64
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			switch err := st.Claim(t.Context(), "job"); {
			case err == nil:
				got.Add(1)
			case !errors.Is(err, provenance.ErrTaken):
				t.Errorf("claim: %v", err)
			}
		})
	}
	if group.Wait(); got.Load() != 1 {
		t.Errorf("an id was claimed %d times", got.Load())
	}
	Append(t, st, "job", provenance.KindSessionStarted)
	if err := st.Claim(t.Context(), "job"); !errors.Is(err, provenance.ErrTaken) {
		t.Errorf("claim of a session: %v", err)
	}
	if err := st.Claim(t.Context(), "../job"); !errors.Is(err, provenance.ErrInvalid) {
		t.Errorf("claim of no id: %v", err)
	}
	if err := st.Append(t.Context(), Event("job", provenance.KindSessionStarted, 2)); err == nil {
		t.Error("a session started twice")
	}
	other := Event("job", provenance.KindSkillActivated, 3)
	other.Principal = "mallory"
	if err := st.Append(t.Context(), other); err == nil {
		t.Error("another principal wrote into a session")
	}
}
