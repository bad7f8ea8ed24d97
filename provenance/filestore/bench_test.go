package filestore_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// benchmark records events of one kind in one session from a number of goroutines. A kind that is
// durable waits for stable storage each time, which those that wait together share.
func benchmark(b *testing.B, k provenance.Kind, writers int) {
	st, err := filestore.Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	template := storetest.Event("s", k, 1)
	if err := st.Append(b.Context(), storetest.Event("s", provenance.KindSessionStarted, 0)); err != nil {
		b.Fatal(err)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				e := *template
				if err := st.Append(b.Context(), &e); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.StopTimer()
	if err := st.Close(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, kind := range []provenance.Kind{provenance.KindResourceRead, provenance.KindPolicyDenied} {
		for _, writers := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%s/writers=%d", kind, writers), func(b *testing.B) { benchmark(b, kind, writers) })
		}
	}
}

// BenchmarkVerify verifies a long session. Its metric x-hash is how much longer that takes than to hash the
// same bytes, as sha256sum does.
func BenchmarkVerify(b *testing.B) {
	dir := b.TempDir()
	st, err := filestore.Open(dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	const events = 20_000
	storetest.Long(b, st, "s", events)
	if err := st.Close(); err != nil {
		b.Fatal(err)
	}
	var hashing time.Duration
	for b.Loop() {
		if r, err := filestore.Verify(dir, "s"); err != nil || r.Events != events {
			b.Fatal(r, err)
		}
		b.StopTimer()
		start := time.Now()
		var bytes int64
		for _, name := range files(b, dir) {
			f, err := os.Open(name)
			if err != nil {
				b.Fatal(err)
			}
			n, err := io.Copy(sha256.New(), f)
			bytes += n
			if err := errors.Join(err, f.Close()); err != nil {
				b.Fatal(err)
			}
		}
		b.SetBytes(bytes)
		hashing += time.Since(start)
		b.StartTimer()
	}
	b.ReportMetric(b.Elapsed().Seconds()/hashing.Seconds(), "x-hash")
}

// BenchmarkViews records an event of a long session and reads a view, which brings the files up to date.
func BenchmarkViews(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("events=%d", n), func(b *testing.B) {
			st, err := filestore.Open(b.TempDir(), &filestore.Options{Quiet: time.Hour})
			if err != nil {
				b.Fatal(err)
			}
			defer st.Close()
			row := `{"type":"cf-harness.skill-script-execution","text":"` + strings.Repeat("x", 800) + `"}`
			add := func(i int) {
				e := storetest.Event("s", provenance.KindResourceRead, i)
				if i%2 == 0 {
					e = storetest.Event("s", provenance.KindSkillActivated, i)
				}
				e.Row = []byte(row)
				e.Decision = []byte(`{"decision":"allowed","cfcEnforcementMode":"observe","text":"` + strings.Repeat("x", 200) + `"}`)
				if i%4 == 0 {
					e.Invocation = []byte(`{"type":"x","sequence":1}`)
				}
				if err := st.Append(b.Context(), e); err != nil {
					b.Fatal(err)
				}
			}
			for i := range n {
				add(i)
			}
			view := func() {
				r, err := st.Artifact(b.Context(), "s", provenance.PolicyTraceFile)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, io.LimitReader(r, 1))
				r.Close()
			}
			start := time.Now()
			view()
			first := time.Since(start)
			i := n
			for b.Loop() {
				add(i)
				view()
				i++
			}
			b.ReportMetric(first.Seconds()*1000, "first-ms")
		})
	}
}
