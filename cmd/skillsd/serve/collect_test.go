package serve

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// With a bound of bytes a server does not wait an hour until it deletes what has come since.
func TestCollectsSoon(t *testing.T) {
	dir := t.TempDir()
	write := func(id string) {
		t.Helper()
		st, err := filestore.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		storetest.Append(t, st, id, provenance.KindSessionStarted)
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write("before")
	st, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	synctest.Test(t, func(t *testing.T) {
		p := &Plan{options: &Options{}, Records: st}
		p.options.Records.GC.Total = 1 // byte
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go p.collect(ctx, nil, slog.New(slog.DiscardHandler))
		left := func() (n int) {
			synctest.Wait()
			for range st.Sessions(ctx, time.Time{}) {
				n++
			}
			return n
		}
		if n := left(); n != 0 {
			t.Fatalf("at the start %d sessions are left", n)
		}
		write("since")
		time.Sleep(collectSoon - time.Second)
		if n := left(); n != 1 {
			t.Errorf("within a minute %d sessions are left, want 1", n)
		}
		time.Sleep(2 * time.Second)
		if n := left(); n != 0 {
			t.Errorf("after a minute %d sessions are left", n)
		}
	})
}

// What takes long to delete does not have the records grow past the total for twenty times as long.
func TestCollectWait(t *testing.T) {
	for _, tt := range []struct {
		total   int64
		deleted int
		took    time.Duration
		want    time.Duration
	}{
		{0, 0, time.Second, time.Hour}, {0, 9, time.Minute, time.Hour},
		{1, 0, time.Second, time.Minute}, {1, 0, 10 * time.Second, 200 * time.Second}, {1, 0, time.Hour, time.Hour},
		{1, 1, 10 * time.Second, time.Minute}, {1, 99, time.Hour, time.Minute},
	} {
		if got := collectWait(tt.total, tt.deleted, tt.took); got != tt.want {
			t.Errorf("collectWait(%d, %d, %v) = %v, want %v", tt.total, tt.deleted, tt.took, got, tt.want)
		}
	}
}
