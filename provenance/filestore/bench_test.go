package filestore_test

import (
	"testing"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

func benchmark(b *testing.B, k provenance.Kind, parallelism int) {
	st, err := filestore.Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	template := storetest.Event("s", k, 1)
	if err := st.Append(b.Context(), storetest.Event("s", provenance.KindSessionStarted, 0)); err != nil {
		b.Fatal(err)
	}
	b.SetParallelism(parallelism)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			e := *template
			if err := st.Append(b.Context(), &e); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.StopTimer()
	if err := st.Close(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkAppendRead(b *testing.B)       { benchmark(b, provenance.KindResourceRead, 32) }
func BenchmarkAppendDurable(b *testing.B)    { benchmark(b, provenance.KindPolicyDenied, 64) }
func BenchmarkAppendOneRead(b *testing.B)    { benchmarkOne(b, provenance.KindResourceRead) }
func BenchmarkAppendOneDurable(b *testing.B) { benchmarkOne(b, provenance.KindPolicyDenied) }

func benchmarkOne(b *testing.B, k provenance.Kind) {
	st, err := filestore.Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	template := storetest.Event("s", k, 1)
	for b.Loop() {
		e := *template
		if err := st.Append(b.Context(), &e); err != nil {
			b.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkVerify(b *testing.B) {
	dir := b.TempDir()
	st, err := filestore.Open(dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 10_000 {
		if err := st.Append(b.Context(), storetest.Event("s", provenance.KindResourceRead, i)); err != nil {
			b.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := filestore.Verify(dir, "s"); err != nil {
			b.Fatal(err)
		}
	}
}
