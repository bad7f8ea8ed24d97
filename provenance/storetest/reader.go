package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// testReader checks that the Reader half finds what the Writer half recorded.
func testReader(t *testing.T, st provenance.Store) {
	ctx := t.Context()
	text, output := []byte("shown\n"), []byte("printed\n")
	Append(t, st, "s", provenance.KindSessionStarted, provenance.KindSkillActivated)
	shown, err := st.Keep(ctx, "s", text)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := st.Put(ctx, "s", provenance.OutputName("s:run_skill_script:1", "stdout"), output)
	if err != nil {
		t.Fatal(err)
	}
	ran := Event("s", provenance.KindScriptExecuted, 3)
	ran.Files = []provenance.File{kept}
	if err := st.Append(ctx, ran); err != nil {
		t.Fatal(err)
	}
	Append(t, st, "s", provenance.KindSessionEnded)
	Append(t, st, "open", provenance.KindSessionStarted)

	list, err := provenance.ListSessions(ctx, st)
	if err != nil || len(list) != 2 || list[0].ID != "s" && list[1].ID != "s" {
		t.Fatalf("ListSessions = %+v, %v", list, err)
	}
	var names []string
	for name, err := range st.Files(ctx, "s") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	for _, want := range []string{
		provenance.ActivationsFile, provenance.SessionFile, kept.Name, provenance.ShownName(shown),
	} {
		if !slices.Contains(names, want) {
			t.Errorf("Files = %q, want %s in it", names, want)
		}
	}
	if slices.Contains(names, provenance.EventsFile) {
		t.Errorf("Files = %q, with the record", names)
	}
	for name, want := range map[string][]byte{kept.Name: output, provenance.ShownName(shown): text} {
		if got := stored(t, st, "s", name); !bytes.Equal(got, want) {
			t.Errorf("Stored(%s) = %q, want %q", name, got, want)
		}
	}
	for _, name := range names {
		if _, err := st.Stored(ctx, "other", name); !errors.Is(err, provenance.ErrNotFound) {
			t.Errorf("Stored(%s) of an unknown session = %v, want ErrNotFound", name, err)
		}
	}
	for _, err := range st.Files(ctx, "other") {
		if !errors.Is(err, provenance.ErrNotFound) {
			t.Errorf("Files of an unknown session = %v, want ErrNotFound", err)
		}
	}

	for id, events := range map[string]int{"s": 4, "open": 1} {
		found, err := st.Verify(ctx, id)
		if err != nil || found.Events != events || found.Session.ID != id {
			t.Errorf("Verify(%s) = %+v, %v, want %d events", id, found, err, events)
		}
	}
	if _, err := st.Verify(ctx, "other"); !errors.Is(err, provenance.ErrNotFound) {
		t.Errorf("Verify of an unknown session = %v, want ErrNotFound", err)
	}

	unknown := digest.FromString("named nowhere")
	left := map[digest.Digest]bool{kept.Digest: true, unknown: true}
	if err := st.DropNamed(ctx, left); err != nil || len(left) != 1 || !left[unknown] {
		t.Errorf("DropNamed left %v, %v, want the digest that no session names", left, err)
	}
}

// testCollect checks that sessions which ended are deleted whole, and open ones never.
func testCollect(t *testing.T, st provenance.Store) {
	ctx, later := t.Context(), time.Now().Add(time.Hour)
	for i := range 2 {
		Append(t, st, fmt.Sprint("ended", i), provenance.KindSessionStarted, provenance.KindSessionEnded)
	}
	Append(t, st, "open", provenance.KindSessionStarted)
	collect := func(opts provenance.CollectOptions) (deleted int) {
		t.Helper()
		all, err := st.Collect(ctx, opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			switch {
			case c.ID == "open" && !errors.Is(c.Err, provenance.ErrHeld):
				t.Errorf("Collect of an open session: %v, want ErrHeld", c.Err)
			case c.ID != "open" && c.Err != nil:
				t.Errorf("Collect of %s: %v", c.ID, c.Err)
			case c.Err == nil:
				deleted++
			}
		}
		return deleted
	}
	if n := collect(provenance.CollectOptions{Before: time.Now().Add(-time.Hour)}); n != 0 {
		t.Errorf("Collect deleted %d sessions that were just written", n)
	}
	if n := collect(provenance.CollectOptions{Before: later, Keep: 3}); n != 0 {
		t.Errorf("Collect deleted %d of the sessions to keep", n)
	}
	for _, dry := range []bool{true, false} {
		if n := collect(provenance.CollectOptions{Before: later, DryRun: dry}); n != 2 {
			t.Errorf("Collect (dry run %t) deleted %d sessions, want 2", dry, n)
		}
	}
	if list, err := provenance.ListSessions(ctx, st); err != nil || len(list) != 1 || list[0].ID != "open" {
		t.Errorf("after Collect there are %+v, %v", list, err)
	}
	if _, err := cfharness.Recall(ctx, st, "ended0"); !errors.Is(err, provenance.ErrNotFound) {
		t.Errorf("a deleted session can be read: %v", err)
	}
}

// stored returns a file of a session as it was last written.
func stored(t *testing.T, st provenance.Reader, session, name string) []byte {
	t.Helper()
	r, err := st.Stored(t.Context(), session, name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
