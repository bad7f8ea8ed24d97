package filestore_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// Views that grow from the ones on disk are those of all events, whatever happens in between.
func TestViewsGrow(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	kinds := []provenance.Kind{provenance.KindSkillActivated, provenance.KindResourceRead, provenance.KindScriptRequested,
		provenance.KindScriptExecuted, provenance.KindPolicyDenied, provenance.KindSessionResumed}
	dir := t.TempDir()
	st := open(t, dir, &filestore.Options{Quiet: time.Hour})
	storetest.Append(t, st, "s", provenance.KindSessionStarted)
	for i := range 300 {
		e := storetest.Event("s", kinds[random.IntN(len(kinds))], i)
		if random.IntN(4) == 0 {
			e.Invocation = []byte(fmt.Sprintf(`{"sequence":%d}`, i))
		}
		if err := st.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		view := filepath.Join(dir, "s", provenance.ViewNames()[random.IntN(4)])
		switch random.IntN(12) {
		case 0:
			_ = os.Remove(view)
		case 1:
			if data, err := os.ReadFile(view); err == nil && os.WriteFile(view, bytes.ToUpper(data), 0o600) != nil {
				t.Fatal("the view cannot be written")
			}
		case 2:
			closeStore(t, st)
			st = open(t, dir, &filestore.Options{Quiet: time.Hour})
		case 3, 4, 5:
			storetest.Read(t, st, "s", provenance.SessionFile)
		}
	}
	// What was changed is made again when the view has a row more, and when the session is opened.
	storetest.Append(t, st, "s", kinds...)
	closeStore(t, st)
	var events []*provenance.Event
	for e, err := range filestore.ReadEvents(dir, "s") {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	for _, name := range provenance.ViewNames() {
		want := storetest.View(t, name, events)
		got, err := os.ReadFile(filepath.Join(dir, "s", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs from the events, %d bytes, want %d (%v)", name, len(got), len(want), err)
		}
	}
	if r := verify(t, dir, "s"); len(r.Stale) != 0 || len(r.Unrecorded) != 0 {
		t.Errorf("Verify = %+v", r)
	}
}

// A view that was changed on disk is not what the next one grows from.
func TestChangedViewIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, &filestore.Options{Quiet: time.Hour})
	storetest.Append(t, st, "s", provenance.KindSessionStarted, provenance.KindResourceRead)
	view := filepath.Join(dir, "s", provenance.ResourceReadsFile)
	for _, change := range []func(data []byte) error{
		func(data []byte) error {
			return os.WriteFile(view, bytes.ReplaceAll(data, []byte("tool"), []byte("TOOL")), 0o600)
		},
		func(data []byte) error { return os.WriteFile(view, data[:len(data)/2], 0o600) },
		func([]byte) error { return os.Remove(view) },
	} {
		if err := change(storetest.Read(t, st, "s", provenance.ResourceReadsFile)); err != nil {
			t.Fatal(err)
		}
		storetest.Append(t, st, "s", provenance.KindResourceRead)
		storetest.Read(t, st, "s", provenance.ResourceReadsFile)
		if r := verify(t, dir, "s"); len(r.Stale) != 0 {
			t.Errorf("Verify = %+v", r)
		}
	}
	closeStore(t, st)
}

// heap is how many bytes are in use when nothing is left to collect.
func heap() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestMemoryOfLongSession(t *testing.T) {
	// No view is written while the memory is measured.
	st := open(t, t.TempDir(), &filestore.Options{Quiet: time.Hour})
	defer closeStore(t, st)
	grow := func(n int) int64 {
		for i := range n {
			k := provenance.KindResourceRead
			if i == n-1 {
				k = provenance.KindPolicyDenied
			}
			e := storetest.Event("s", k, i)
			f := provenance.File{Name: provenance.OutputName(fmt.Sprintf("s:tool:%d", i), "stdout"), Digest: "sha256:" + provenance.FirstPrev}
			e.Files = []provenance.File{f}
			if err := st.Append(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		storetest.Read(t, st, "s", provenance.SessionFile)
		return heap()
	}
	few := grow(1000)
	if grown := grow(5000) - few; grown > 1<<20 {
		t.Errorf("5,000 events keep %d bytes of memory, want at most 1 MiB", grown)
	}
}

// BenchmarkLongSession is a session of 100,000 events whose views are written every 1,000.
func BenchmarkLongSession(b *testing.B) {
	const events, every = 100_000, 1000
	for b.Loop() {
		dir := b.TempDir()
		st, err := filestore.Open(dir, &filestore.Options{Quiet: time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		before, peak := heap(), int64(0)
		var writing, last time.Duration
		for i := range events {
			k := provenance.KindResourceRead
			if i%10 == 9 {
				k = provenance.KindSkillActivated
			}
			if err := st.Append(b.Context(), storetest.Event("s", k, i)); err != nil {
				b.Fatal(err)
			}
			if i%every == every-1 {
				start := time.Now()
				r, err := st.Artifact(b.Context(), "s", provenance.SessionFile)
				if err != nil {
					b.Fatal(err)
				}
				r.Close()
				last = time.Since(start)
				writing += last
			}
			if i%(events/10) == events/10-1 {
				peak = max(peak, heap()-before)
			}
		}
		b.ReportMetric(float64(peak), "heap-B")
		b.ReportMetric(float64(writing.Milliseconds())/(events/every), "views-ms/write")
		b.ReportMetric(float64(last.Milliseconds()), "last-views-ms")
		if err := st.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// Views that were written and not completed, as on a disk that fills up, are neither grown twice from the
// same events nor left behind.
func TestViewsGrowAfterFailure(t *testing.T) {
	for _, blocked := range []string{provenance.SessionFile, provenance.PolicyTraceFile} {
		t.Run(blocked, func(t *testing.T) {
			dir := t.TempDir()
			st := open(t, dir, &filestore.Options{Quiet: time.Hour})
			storetest.Append(t, st, "s", provenance.KindSessionStarted, provenance.KindResourceRead)
			storetest.Read(t, st, "s", provenance.ResourceReadsFile)
			storetest.Append(t, st, "s", provenance.KindResourceRead)
			path := filepath.Join(dir, "s", blocked)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			// No file takes the place of a directory that holds one.
			if err := os.MkdirAll(filepath.Join(path, "x"), 0o700); err != nil {
				t.Fatal(err)
			}
			if r, err := st.Artifact(t.Context(), "s", provenance.ResourceReadsFile); err == nil {
				r.Close()
				t.Fatal("the views were written")
			}
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			storetest.Append(t, st, "s", provenance.KindResourceRead)
			storetest.Read(t, st, "s", provenance.ResourceReadsFile)
			if r := verify(t, dir, "s"); len(r.Stale) != 0 {
				t.Errorf("Verify = %+v", r)
			}
			closeStore(t, st)
			verify(t, dir, "s")
		})
	}
}
