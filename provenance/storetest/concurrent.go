package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/skillsd/skillsd/provenance"
)

func testConcurrent(t *testing.T, st provenance.Store) {
	const workers, each, sessions = 50, 20, 3
	kinds := []provenance.Kind{provenance.KindResourceRead, provenance.KindScriptRequested,
		provenance.KindSkillActivated}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			session := fmt.Sprintf("s%d", w%sessions)
			var last uint64
			for i := range each {
				e := Event(session, kinds[(w+i)%len(kinds)], i)
				if err := st.Append(t.Context(), e); err != nil {
					t.Errorf("Append = %v", err)
					return
				}
				if e.Seq <= last {
					t.Errorf("seq %d after %d", e.Seq, last)
				}
				last = e.Seq
				if i == each/2 {
					Read(t, st, session, provenance.SessionFile)
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for i := range sessions {
		session := fmt.Sprintf("s%d", i)
		sc := provenance.NewScanner(bytes.NewReader(Read(t, st, session, provenance.EventsFile)))
		for {
			_, err := sc.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s:%d: %v", session, sc.Line, err)
			}
			total++
		}
	}
	if total != workers*each {
		t.Errorf("recorded %d events, want %d", total, workers*each)
	}
}

// Sessions end and are resumed while others append to them.
func testEnding(t *testing.T, st provenance.Store) {
	const workers, each = 16, 12
	kinds := []provenance.Kind{
		provenance.KindResourceRead, provenance.KindSessionEnded, provenance.KindScriptRequested,
		provenance.KindSessionResumed,
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				if err := st.Append(t.Context(), Event("s", kinds[(w+i)%len(kinds)], i)); err != nil {
					t.Errorf("Append = %v", err)
				}
				if _, err := st.Put(t.Context(), "s", fmt.Sprintf("outputs/%d.%d", w, i), nil); err != nil {
					t.Errorf("Put = %v", err)
				}
				if i%4 == 0 {
					Read(t, st, "s", provenance.SessionFile)
				}
			}
		})
	}
	wg.Wait()
	if got := collect(t, st, provenance.Query{Session: "s"}); len(got) != workers*each {
		t.Errorf("recorded %d events, want %d", len(got), workers*each)
	}
}
