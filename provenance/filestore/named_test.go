package filestore_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// Digests are found in the records of sessions wherever they stand, whatever a session is called.
func TestDropNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	used, unused := digest.FromString("used"), digest.FromString("unused")
	for name, text := range map[string]string{
		"at the end":      `{"tree":"` + used.String(),
		"alone":           used.Encoded(),
		"over a boundary": strings.Repeat("x", 1<<16-10) + used.Encoded() + "\n" + strings.Repeat("y", 1<<16),
		"after digits":    strings.Repeat("a", 100) + "\n" + used.String() + `"}`,
		"longer":          "a" + unused.Encoded() + " " + unused.Encoded() + "0 " + used.Encoded(),
	} {
		session := filepath.Join(dir, name, "job-17")
		if err := errors.Join(os.MkdirAll(session, 0o700), os.WriteFile(filepath.Join(session, provenance.EventsFile), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		left := map[digest.Digest]bool{used: true, unused: true}
		if err := filestore.DropNamed(t.Context(), filepath.Join(dir, name), left); err != nil || left[used] || !left[unused] {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
	left := map[digest.Digest]bool{used: true}
	if err := filestore.DropNamed(t.Context(), filepath.Join(dir, "nowhere"), left); err != nil || len(left) != 1 {
		t.Errorf("without sessions: left %v, %v", left, err)
	}
}

// What cannot be searched is an error, for it may name more; what has no record names nothing.
func TestDropNamedFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st := open(t, dir, nil)
	e := storetest.Event("ses_1", provenance.KindSessionStarted, 1)
	named, other := digest.FromString("named"), digest.FromString("other")
	e.Got = named.String()
	if err := st.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	closeStore(t, st)
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "empty"), 0o700), os.WriteFile(filepath.Join(dir, "file"), []byte(other.Encoded()), 0o600)); err != nil {
		t.Fatal(err)
	}
	left := map[digest.Digest]bool{named: true, other: true}
	if err := filestore.DropNamed(t.Context(), dir, left); err != nil || left[named] || !left[other] {
		t.Errorf("left %v, %v", left, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := filestore.DropNamed(ctx, dir, left); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled context = %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "odd", provenance.EventsFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := filestore.DropNamed(t.Context(), dir, left); err == nil || strings.Contains(err.Error(), dir) {
		t.Errorf("of a record that is none = %v", err)
	}
}
