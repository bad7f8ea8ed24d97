package filestore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// of returns an event of a principal.
func of(principal, session string, kind provenance.Kind) *provenance.Event {
	e := storetest.Event(session, kind, 1)
	e.Principal = principal
	return e
}

func wantFull(t *testing.T, doing string, err error, what string) {
	t.Helper()
	full, ok := errors.AsType[*provenance.FullError](err)
	if !ok || full.Principal != "alice" || !strings.Contains(full.What, what) ||
		!errors.Is(err, provenance.ErrUnavailable) {
		t.Errorf("%s = %v, want the records of alice to be full of %s", doing, err, what)
	}
}

// A principal that reaches its quota is refused, what it began is concluded, and nobody else notices.
func TestQuota(t *testing.T) {
	dir := t.TempDir()
	quota := filestore.Quota{Sessions: 2}
	opts := &filestore.Options{Quota: func(principal string) filestore.Quota {
		if principal == "alice" {
			return quota
		}
		return filestore.Quota{}
	}}
	st := open(t, dir, opts)
	record := func(principal, id string, kind provenance.Kind) error {
		return st.Append(t.Context(), of(principal, id, kind))
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"a", "b"} {
		must(record("alice", id, provenance.KindSessionStarted))
	}
	wantFull(t, "a third session", record("alice", "c", provenance.KindSessionStarted), "2 of 2 sessions")
	must(record("alice", "a", provenance.KindResourceRead))
	for i := range 4 {
		must(record("bob", fmt.Sprint("bob", i), provenance.KindSessionStarted))
	}
	must(record("alice", "b", provenance.KindSessionEnded))

	// A later process counts what is there, and outputs on their own.
	must(st.Close())
	quota = filestore.Quota{Outputs: 1 << 20, Bytes: 10 << 20}
	st = open(t, dir, opts)
	must(record("alice", "a", provenance.KindScriptRequested))
	if _, err := st.Put(t.Context(), "a", "outputs/o.stdout", make([]byte, 900<<10)); err != nil {
		t.Fatal(err)
	}
	must(record("alice", "a", provenance.KindScriptRequested))
	_, err := st.Reserve(t.Context(), "a", 200<<10)
	wantFull(t, "room for an outcome", err, "bytes of outputs")
	release, err := st.Reserve(t.Context(), "a", 80<<10)
	must(err)
	_, err = st.Reserve(t.Context(), "a", 80<<10)
	wantFull(t, "room next to the first", err, "bytes of outputs")
	release()
	release()
	release, err = st.Reserve(t.Context(), "a", 80<<10)
	must(err)
	release()
	if _, err := st.Put(t.Context(), "a", "outputs/p.stdout", make([]byte, 200<<10)); err != nil {
		t.Fatalf("the output of a run that was admitted: %v", err)
	}
	wantFull(t, "a request", record("alice", "a", provenance.KindScriptRequested), "bytes of outputs")
	must(record("alice", "a", provenance.KindScriptExecuted))
	must(record("alice", "a", provenance.KindSessionEnded))
	wantFull(t, "a request after the end", record("alice", "d", provenance.KindSessionStarted), "outputs")
	must(record("bob", "bob0", provenance.KindScriptRequested))

	// Deleting what is old makes room at once.
	list, err := st.Collect(t.Context(), provenance.CollectOptions{Before: time.Now().Add(time.Hour)})
	must(err)
	var gone []string
	for _, c := range list {
		if c.Err == nil {
			gone = append(gone, c.ID)
		}
	}
	slices.Sort(gone)
	if !slices.Equal(gone, []string{"a", "b", "bob1", "bob2", "bob3"}) {
		t.Errorf("Collect deleted %v", gone)
	}
	must(record("alice", "d", provenance.KindSessionStarted))
	must(st.Close())
}

func TestCollectTotal(t *testing.T) {
	dir := t.TempDir()
	aged(t, dir, time.Now(), map[string]int{"a": 4, "b": 3, "c": 2, "d": 1})
	for _, id := range []string{"a", "b", "c", "d"} {
		if err := os.WriteFile(filepath.Join(dir, id, "extra"), make([]byte, 100<<10), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		opts provenance.CollectOptions
		want []string
	}{
		{provenance.CollectOptions{Total: 1 << 20}, nil},
		{provenance.CollectOptions{Total: 250 << 10, Keep: 3}, []string{"a"}},
		{provenance.CollectOptions{Total: 250 << 10}, []string{"b"}},
		{provenance.CollectOptions{Total: 1}, []string{"d", "c"}},
	} {
		if got := collect(t, dir, c.opts); !slices.Equal(got, c.want) {
			t.Errorf("Collect(%+v) deleted %v, want %v", c.opts, got, c.want)
		}
	}
}
