package jetstream_test

import (
	"context"
	"crypto/rand"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/jetstream"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
	"github.com/skillsd/skillsd/provenance/storetest"
)

func TestMain(m *testing.M) {
	clustertest.Main()
	os.Exit(m.Run())
}

func open(t *testing.T, conn *nats.Conn, opts *jetstream.Options) *jetstream.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st, err := jetstream.Open(ctx, conn, opts)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// One server and three keep the contract of a store, and the three that of turns too.
func TestStore(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		conn := clustertest.Start(t, 1).Connect(t)
		storetest.Run(t, func(t *testing.T) provenance.Store {
			return open(t, conn, &jetstream.Options{Prefix: rand.Text(), Replicas: 1})
		})
	})
	t.Run("three", func(t *testing.T) {
		cluster := clustertest.Start(t, 3)
		one, other := cluster.Connect(t), cluster.Connect(t)
		storetest.Run(t, func(t *testing.T) provenance.Store {
			return open(t, one, &jetstream.Options{Prefix: rand.Text()})
		})
		storetest.RunTurns(t, func(t *testing.T) (a, b provenance.Store) {
			opts := &jetstream.Options{Prefix: rand.Text()}
			return open(t, one, opts), open(t, other, opts)
		})
	})
}
