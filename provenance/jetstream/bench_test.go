package jetstream_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	natsstream "github.com/nats-io/nats.go/jetstream"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/jetstream"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
)

type appender interface {
	Append(ctx context.Context, e *provenance.Event) error
}

// bare publishes a message of the size of an event, and nothing else.
type bare struct{ natsstream.JetStream }

func (js bare) Append(ctx context.Context, e *provenance.Event) error {
	_, err := js.Publish(ctx, "skillsd.ev."+e.Session, bytes.Repeat([]byte("x"), 330))
	return err
}

// BenchmarkAppend compares durable appends with those of a filestore, and with bare messages, by one writer,
// by 64 in one session and by 64 in a session each. The servers of the cluster share the disk and the
// processors.
func BenchmarkAppend(b *testing.B) {
	files, err := filestore.Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer files.Close()
	conn := clustertest.StartDirect(b, 3).Connect(b)
	cluster, err := jetstream.Open(b.Context(), conn, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer cluster.Close()
	js, err := natsstream.New(conn)
	if err != nil {
		b.Fatal(err)
	}
	for _, of := range []struct {
		name  string
		store appender
	}{{"files", files}, {"cluster", cluster}, {"bare", bare{js}}} {
		for _, load := range []struct{ writers, sessions int }{{1, 1}, {64, 1}, {64, 64}} {
			b.Run(fmt.Sprintf("%s/%d-writers/%d-sessions", of.name, load.writers, load.sessions), func(b *testing.B) {
				run, sent := rand.Text(), conn.Stats().OutMsgs
				var begun atomic.Int64
				begin, done := time.Now(), make(chan error)
				for w := range load.writers {
					go func() {
						for begun.Add(1) <= int64(b.N) {
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
				sent = conn.Stats().OutMsgs - sent
				if sent > 0 {
					b.ReportMetric(float64(b.N)/float64(sent), "events/message")
				}
			})
		}
	}
}
