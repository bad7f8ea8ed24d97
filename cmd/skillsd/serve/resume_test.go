package serve

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
)

// Why a session that another server has open cannot be resumed is one sentence.
func TestResumeOfAnOpenSession(t *testing.T) {
	dir := t.TempDir()
	first, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := filestore.Open(dir, &filestore.Options{LockWait: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	start := func(kind provenance.Kind) *provenance.Event {
		return &provenance.Event{Kind: kind, Session: "ses_a", Principal: "local", Row: []byte(`{"server":{"version":"v","protocol":"p"}}`)}
	}
	if err := first.Append(t.Context(), start(provenance.KindSessionStarted)); err != nil {
		t.Fatal(err)
	}
	err = second.Append(t.Context(), start(provenance.KindSessionResumed))
	if !errors.Is(err, provenance.ErrUnavailable) {
		t.Fatalf("Append = %v", err)
	}
	got := unwritable("ses_a", fmt.Errorf("resume ses_a: %w", err))
	if want := "--resume ses_a: the session cannot be written to: another process holds it"; got.Error() != want {
		t.Errorf("%v, want %s", got, want)
	}
}
