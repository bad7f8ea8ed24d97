package jetstream_test

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/jetstream"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
)

// BenchmarkAppend compares durable appends with those of a filestore, by one writer, by 64 in one session and
// by 64 in a session each. The servers of the cluster share the disk and the processors.
func BenchmarkAppend(b *testing.B) {
	files, err := filestore.Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer files.Close()
	cluster, err := jetstream.Open(b.Context(), clustertest.StartApart(b, 3).Connect(b), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer cluster.Close()
	for _, of := range []struct {
		name  string
		store provenance.Store
	}{{"files", files}, {"cluster", cluster}} {
		for _, load := range []struct{ writers, sessions int }{{1, 1}, {64, 1}, {64, 64}} {
			b.Run(fmt.Sprintf("%s/%d-writers/%d-sessions", of.name, load.writers, load.sessions), func(b *testing.B) {
				run := rand.Text()
				next := make(chan int)
				go func() {
					defer close(next)
					for i := range b.N {
						next <- i
					}
				}()
				begin, done := time.Now(), make(chan error)
				for w := range load.writers {
					go func() {
						for range next {
							e := event(fmt.Sprint(run, w%load.sessions), "requested")
							if err := of.store.Append(b.Context(), e); err != nil {
								done <- err
								return
							}
						}
						done <- nil
					}()
				}
				for range load.writers {
					if err := <-done; err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N)/time.Since(begin).Seconds(), "events/s")
			})
		}
	}
}
