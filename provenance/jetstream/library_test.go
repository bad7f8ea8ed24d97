package jetstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsstream "github.com/nats-io/nats.go/jetstream"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/jetstream"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
)

// What is read at another server is what was put, or an error: never other bytes.
func TestLibrary(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Start(t, 3)
	enemy, err := natsstream.New(cluster.ConnectTo(t, 2))
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int, create bool, patience time.Duration) *jetstream.Library {
		t.Helper()
		conn := cluster.ConnectTo(t, i)
		for end := time.Now().Add(time.Minute); ; {
			l, err := jetstream.OpenLibrary(t.Context(), conn, &jetstream.Options{Patience: patience}, create)
			if err == nil {
				return l
			}
			if !errors.Is(err, provenance.ErrUnavailable) || time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	_, err = jetstream.OpenLibrary(t.Context(), cluster.Connect(t), nil, false)
	if !jetstream.IsUnused(err) {
		t.Fatalf("before the first: %v", err)
	}
	here, there := at(0, true, 0), at(1, false, 0)
	hasty, nearest := at(1, false, time.Second), at(0, false, time.Second) // for what does not come
	if _, _, err := there.Manifest(t.Context()); !errors.Is(err, provenance.ErrNotFound) {
		t.Errorf("no manifest: %v", err)
	}
	const part = 256 << 10
	subject := func(sum digest.Digest, n int) string { return fmt.Sprintf("skillsd.skill.%s.%d", sum.Encoded(), n) }
	for _, size := range []int{0, 1, part, part + 1, 3 * part} {
		data := bytes.Repeat([]byte{byte(size), 7}, size)[:size]
		sum := digest.FromBytes(data)
		for range 2 { // once more changes nothing
			if err := here.Put(t.Context(), sum, data); err != nil {
				t.Fatal(err)
			}
		}
		got, err := there.Get(t.Context(), sum, int64(size))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: got %d, %v", size, len(got), err)
		}
	}
	stream, err := enemy.Stream(t.Context(), "skillsd-skills")
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State; n.Msgs != 8 || n.LastSeq != 8 {
		t.Errorf("the stream has %d messages of %d", n.Msgs, n.LastSeq)
	}
	data := bytes.Repeat([]byte{'x'}, 2*part+5)
	sum := digest.FromBytes(data)
	publish := func(n int, data []byte, chunks string) func() error {
		return func() error {
			_, err := enemy.PublishMsg(t.Context(), &nats.Msg{Subject: subject(sum, n), Data: data,
				Header: nats.Header{"Chunks": {chunks}}})
			return err
		}
	}
	for name, tt := range map[string]struct {
		most   int64
		change func() error
		want   error
	}{
		"too large": {2*part + 4, func() error { return nil }, provenance.ErrInvalid},
		"tampered":  {1 << 30, publish(1, bytes.Repeat([]byte{'y'}, part), "3"), provenance.ErrUnavailable},
		"longer":    {3 * part, publish(2, bytes.Repeat([]byte{'x'}, part+1), "3"), provenance.ErrInvalid},
		"endless":   {1 << 30, publish(2, data[2*part:], "4000000000"), provenance.ErrUnavailable},
		"no number": {1 << 30, publish(0, data[:part], ""), provenance.ErrUnavailable},
		"missing": {1 << 30, func() error {
			return stream.Purge(t.Context(), natsstream.WithPurgeSubject(subject(sum, 1)))
		}, provenance.ErrUnavailable},
	} {
		if err := here.Put(t.Context(), sum, data); err != nil {
			t.Fatal(err)
		}
		if err := tt.change(); err != nil {
			t.Fatal(err)
		}
		reader := there
		if tt.want == provenance.ErrUnavailable {
			reader = hasty
		}
		if got, err := reader.Get(t.Context(), sum, tt.most); !errors.Is(err, tt.want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if err := here.Put(t.Context(), sum, data); err != nil {
		t.Fatal(err)
	}
	if got, err := there.Get(t.Context(), sum, int64(len(data))); err != nil || !bytes.Equal(got, data) {
		t.Errorf("put again: %d bytes, %v", len(got), err)
	}
	revision := uint64(0)
	for _, manifest := range []string{"first", "second"} {
		if err := here.SetManifest(t.Context(), []byte(manifest), revision); err != nil {
			t.Fatal(err)
		}
		if err := there.SetManifest(t.Context(), []byte("meanwhile"), revision); !errors.Is(err, provenance.ErrTaken) {
			t.Errorf("over %q, which it has not read: %v", manifest, err)
		}
		var got []byte
		got, revision, err = there.Manifest(t.Context())
		if err != nil || string(got) != manifest {
			t.Errorf("manifest %q, %v", got, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := there.Get(ended, sum, 1<<30); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	// A leader that has lost the others answers for some seconds.
	cluster.Stop(1)
	cluster.Stop(2)
	for err = nil; err == nil; time.Sleep(50 * time.Millisecond) {
		_, err = nearest.Get(t.Context(), sum, 1<<30)
	}
	if !errors.Is(err, provenance.ErrSilent) {
		t.Errorf("without the other servers: %v", err)
	}
}
