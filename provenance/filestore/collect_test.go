package filestore_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// aged makes ended sessions that were last written so many days before now.
func aged(t *testing.T, dir string, now time.Time, days map[string]int) {
	t.Helper()
	for id, n := range days {
		st := open(t, dir, nil)
		storetest.Append(t, st, id, provenance.KindSessionStarted)
		keep(t, st, id, []byte("of all"))
		keep(t, st, id, []byte("of "+id))
		closeStore(t, st)
		at := now.Add(-time.Duration(n) * 24 * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, id, provenance.EventsFile), at, at); err != nil {
			t.Fatal(err)
		}
	}
}

func sessions(t *testing.T, dir string) []string {
	t.Helper()
	var ids []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, en := range entries {
		ids = append(ids, en.Name())
	}
	return ids
}

func collect(t *testing.T, dir string, opts provenance.CollectOptions) (ids []string) {
	t.Helper()
	list, err := filestore.Collect(t.Context(), dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if c.Err != nil && !errors.Is(c.Err, provenance.ErrHeld) {
			t.Errorf("session %s: %v", c.ID, c.Err)
		}
		if c.Err == nil {
			if c.Bytes == 0 {
				t.Errorf("session %s has no bytes", c.ID)
			}
			ids = append(ids, c.ID)
		}
	}
	return ids
}

func TestCollect(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	aged(t, dir, now, map[string]int{"a": 40, "b": 35, "c": 31, "d": 1, "held": 50})
	st := open(t, dir, nil)
	storetest.Append(t, st, "held", provenance.KindSessionResumed)
	old := now.Add(-50 * 24 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "held", provenance.EventsFile), old, old); err != nil {
		t.Fatal(err)
	}
	before := now.Add(-30 * 24 * time.Hour)
	all := sessions(t, dir)
	if got := collect(t, dir, provenance.CollectOptions{Before: before, DryRun: true}); !slices.Equal(got,
		[]string{"c", "b", "a"}) {
		t.Errorf("a dry run would delete %v", got)
	}
	if got := sessions(t, dir); !slices.Equal(got, all) {
		t.Errorf("a dry run left %v", got)
	}
	if got := collect(t, dir, provenance.CollectOptions{Before: before, Keep: 2}); !slices.Equal(got,
		[]string{"b", "a"}) {
		t.Errorf("with two kept Collect deleted %v", got)
	}
	// What a crash left of a deletion goes with the next.
	if err := os.Rename(filepath.Join(dir, "c"), filepath.Join(dir, "~gc-x")); err != nil {
		t.Fatal(err)
	}
	if got := collect(t, dir, provenance.CollectOptions{Before: before}); len(got) != 0 {
		t.Errorf("Collect deleted %v", got)
	}
	if got := sessions(t, dir); !slices.Equal(got, []string{"d", "held", "~new", "~shown"}) {
		t.Errorf("left are %v", got)
	}
	storetest.Append(t, st, "held", provenance.KindResourceRead)
	closeStore(t, st)
	verify(t, dir, "held")
	verify(t, dir, "d")
	if got := sessions(t, filepath.Join(dir, "~shown")); len(got) != 3 {
		t.Errorf("of what was shown %d files are pooled, want those of the two sessions left", len(got))
	}
	if _, err := filestore.Collect(t.Context(), filepath.Join(dir, "none"),
		provenance.CollectOptions{}); err != nil {
		t.Errorf("Collect in a directory that is not there = %v", err)
	}
}

// The end of a session does not count as its use: a server that stops ends all of them at once.
func TestCollectByLastUse(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, nil)
	at := time.Now()
	appendLater := func(id string, kind provenance.Kind) {
		t.Helper()
		e := storetest.Event(id, kind, 1)
		at = at.Add(time.Minute)
		e.Time = at
		if err := st.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"first", "second", "third"} {
		appendLater(id, provenance.KindSessionStarted)
	}
	appendLater("first", provenance.KindResourceRead)
	for _, id := range []string{"third", "first", "second"} {
		appendLater(id, provenance.KindSessionEnded)
	}
	closeStore(t, st)
	if got := collect(t, dir, provenance.CollectOptions{Total: 1, Keep: 1}); !slices.Equal(got,
		[]string{"third", "second"}) {
		t.Errorf("Collect deleted %v, want all but the one used last", got)
	}
}

// A server that waits for the lock of a session that is being deleted does not write to what is gone.
func TestSessionDeletedWhileWaitedFor(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		aged(t, dir, time.Now(), map[string]int{"s": 40})
		st := open(t, dir, nil)
		done := make(chan error, 1)
		go func() {
			e := storetest.Event("s", provenance.KindSessionResumed, i)
			done <- st.Append(context.WithoutCancel(t.Context()), e)
		}()
		if _, err := filestore.Collect(t.Context(), dir,
			provenance.CollectOptions{Before: time.Now()}); err != nil {
			t.Fatal(err)
		}
		switch err := <-done; {
		case err == nil:
			closeStore(t, st)
			verify(t, dir, "s")
			if err := os.RemoveAll(filepath.Join(dir, "s")); err != nil {
				t.Fatal(err)
			}
		case !errors.Is(err, provenance.ErrUnavailable) && !errors.Is(err, provenance.ErrNotFound):
			t.Fatalf("Append to a session that is being deleted = %v", err)
		default:
			closeStore(t, st)
		}
		_ = os.RemoveAll(filepath.Join(dir, "s"))
	}
}

// A directory that is no session's is not collected, whatever its name: the directory of records may be
// one that holds other things too.
func TestCollectLeavesOthersAlone(t *testing.T) {
	dir := t.TempDir()
	const shaped = "ses_019aa6f0-7c00-7000-8000-000000000000"
	const upper = "ses_019AA6F0-7C00-7000-8000-000000000001"
	aged(t, dir, time.Now(), map[string]int{"job": 40, "unlocked": 40, "noted": 40})
	for _, name := range []string{"unlocked/" + provenance.LockFile, "unlocked/" + provenance.SessionFile,
		"noted/" + provenance.EventsFile, "noted/" + provenance.LockFile} {
		if err := os.Remove(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"notes", "ses_notes", "empty", "odd", shaped, "linux", upper} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"notes/todo.txt", "ses_notes/todo.txt", shaped + "/todo.txt",
		"linux/" + provenance.EventsFile} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// What would be a record is a directory.
	if err := os.MkdirAll(filepath.Join(dir, "odd", provenance.EventsFile, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	// A run id that was claimed for a session which never began has no directory; the name of a session that
	// an earlier version began is enough.
	st := open(t, dir, nil)
	if err := st.Claim(t.Context(), "claimed"); err != nil {
		t.Fatal(err)
	}
	closeStore(t, st)
	began, err := provenance.NewSessionID()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, began), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		list, err := filestore.Collect(t.Context(), dir,
			provenance.CollectOptions{Before: time.Now().Add(time.Hour), DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, c := range list {
			if c.Err != nil {
				t.Errorf("%s: %v", c.ID, c.Err)
			}
			ids = append(ids, c.ID)
		}
		slices.Sort(ids)
		if want := []string{"job", "noted", began, "unlocked"}; !slices.Equal(ids, want) {
			t.Errorf("Collect (dry run: %v) took %v, want %v", dry, ids, want)
		}
	}
	if got, want := sessions(t, dir), []string{"empty", "linux", "notes", "odd", upper, shaped, "ses_notes",
		"~new", "~shown"}; !slices.Equal(got, want) {
		t.Errorf("left are %v, want %v", got, want)
	}
}
