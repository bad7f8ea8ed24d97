package session

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// BenchmarkArtifactClients is the reading of one part of a long output by 64 clients at once. It reports
// the most bytes that were in use.
func BenchmarkArtifactClients(b *testing.B) {
	bench := newBench(b, benchOptions{policy: policy.Config{Mode: policy.Disabled}})
	bench.load("demo")
	bench.runner.result.Out = []sandbox.OutFile{{Name: "blob", Data: bytes.Repeat([]byte("0123456789abcde\n"), 16<<20>>4)}}
	result, err := bench.run("demo", "scripts/ok.sh")
	if err != nil {
		b.Fatal(err)
	}
	uri := fmt.Sprintf("%s%s?offset=%d", ArtifactBase, provenance.OutputName(result.Output.OutputID, "out-0"), 1<<20)
	var most atomic.Uint64
	for b.Loop() {
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				got, err := bench.ReadArtifact(b.Context(), Call{Principal: local, Method: "resources/read"}, uri)
				var now runtime.MemStats
				runtime.ReadMemStats(&now)
				for before := most.Load(); now.HeapInuse > before && !most.CompareAndSwap(before, now.HeapInuse); before = most.Load() {
				}
				if err != nil || len(got.Data) == 0 {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
	b.ReportMetric(float64(most.Load())/(1<<20), "MiB-in-use")
}
