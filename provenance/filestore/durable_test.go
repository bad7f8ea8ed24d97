package filestore_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// A session whose directory is removed under the server takes no more events: they would be lost.
func TestDirectoryRemoved(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a system where an open file can be removed")
	}
	dir := t.TempDir()
	st := open(t, dir, &filestore.Options{Quiet: time.Hour})
	storetest.Append(t, st, "s", provenance.KindSessionStarted)
	storetest.Append(t, st, "other", provenance.KindSessionStarted)
	if err := os.RemoveAll(filepath.Join(dir, "s")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := st.Append(t.Context(), storetest.Event("s", provenance.KindScriptRequested, 2))
		if !errors.Is(err, provenance.ErrUnavailable) || strings.Contains(err.Error(), dir) {
			t.Errorf("Append to a removed session = %v, want ErrUnavailable", err)
		}
	}
	if _, err := st.Put(t.Context(), "s", "outputs/o.stdout", []byte("x")); !errors.Is(err, provenance.ErrUnavailable) {
		t.Errorf("Put in a removed session = %v, want ErrUnavailable", err)
	}
	// One made in its place is not taken for it.
	if err := os.Mkdir(filepath.Join(dir, "s"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Keep(t.Context(), "s", []byte("x")); !errors.Is(err, provenance.ErrUnavailable) {
		t.Errorf("Keep in a replaced session = %v, want ErrUnavailable", err)
	}
	storetest.Append(t, st, "other", provenance.KindScriptRequested)
	if err := st.Close(); !errors.Is(err, provenance.ErrUnavailable) {
		t.Errorf("Close with a removed session = %v, want that its views were not written", err)
	}
	verify(t, dir, "other")
}

// A text whose name was made in a directory that no longer is the session's is named by no event, although that
// directory is open and can be synced.
func TestDirectoryReplacedByACopy(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a system where an open directory can be renamed")
	}
	dir, away := t.TempDir(), filepath.Join(t.TempDir(), "s")
	st := open(t, dir, &filestore.Options{Quiet: time.Hour})
	for _, id := range []string{"other", "s"} {
		storetest.Append(t, st, id, provenance.KindSessionStarted)
		keep(t, st, id, []byte("first"))
		storetest.Append(t, st, id, provenance.KindPolicyDenied)
	}
	keep(t, st, "other", []byte("second"))
	storetest.Append(t, st, "other", provenance.KindPolicyDenied)
	if err := os.Rename(filepath.Join(dir, "s"), away); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "s"), os.DirFS(away)); err != nil {
		t.Fatal(err)
	}
	keep(t, st, "s", []byte("second"))
	for _, kind := range []provenance.Kind{provenance.KindSkillActivated, provenance.KindPolicyDenied} {
		if err := st.Append(t.Context(), storetest.Event("s", kind, 3)); !errors.Is(err, provenance.ErrUnavailable) {
			t.Errorf("Append of %s to a replaced session = %v, want ErrUnavailable", kind, err)
		}
	}
	if err := st.Close(); !errors.Is(err, provenance.ErrUnavailable) {
		t.Errorf("Close with a replaced session = %v, want that its views were not written", err)
	}
	verify(t, dir, "other")
	verify(t, dir, "s")
}

// The clock may jump: sequence numbers order events, and their times are what the clock said.
func TestClockGoesBack(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	var mu sync.Mutex
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}
	st := open(t, dir, &filestore.Options{Now: clock})
	var want []time.Time
	for _, jump := range []time.Duration{0, time.Hour, -48 * time.Hour, time.Second, -10 * 365 * 24 * time.Hour} {
		mu.Lock()
		now = now.Add(jump)
		want = append(want, now)
		mu.Unlock()
		e := storetest.Event("s", provenance.KindPolicyDenied, 1)
		e.Time = time.Time{}
		if err := st.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, st)
	i := 0
	for e, err := range filestore.ReadEvents(dir, "s") {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq != uint64(i+1) || !e.Time.Equal(want[i]) {
			t.Errorf("event %d has seq %d and time %v, want %v", i, e.Seq, e.Time, want[i])
		}
		i++
	}
	verify(t, dir, "s")
	storetest.Append(t, open(t, dir, nil), "s", provenance.KindSessionResumed)
}

// Two servers share a directory, and never a session: the second is refused until the first is done.
func TestTwoServers(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir, nil), open(t, dir, &filestore.Options{LockWait: time.Millisecond})
	var wg sync.WaitGroup
	for i, st := range []*filestore.Store{a, b} {
		wg.Go(func() {
			for n := range 50 {
				for _, id := range []string{"x", "y"}[i : i+1] {
					if err := st.Append(t.Context(), storetest.Event(id, provenance.KindPolicyDenied, n)); err != nil {
						t.Error(err)
					}
					if _, err := st.Keep(t.Context(), id, []byte{byte(n)}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for range 3 {
		if err := b.Append(t.Context(), storetest.Event("x", provenance.KindSessionResumed, 1)); !errors.Is(err, provenance.ErrUnavailable) {
			t.Errorf("Append to the session of another server = %v, want ErrUnavailable", err)
		}
	}
	states := map[string]provenance.State{}
	for s, err := range b.Sessions(t.Context(), time.Time{}) {
		if err != nil {
			t.Fatal(err)
		}
		states[s.ID] = s.State
	}
	if states["x"] != provenance.StateOpen || states["y"] != provenance.StateOpen {
		t.Errorf("sessions are %v, want both open", states)
	}
	closeStore(t, a)
	storetest.Append(t, b, "x", provenance.KindSessionResumed)
	closeStore(t, b)
	for id, events := range map[string]int{"x": 51, "y": 50} {
		if r := verify(t, dir, id); r.Events != events {
			t.Errorf("session %s has %d events, want %d", id, r.Events, events)
		}
	}
}

// A session that is neither ended nor open has crashed, whatever its files say.
func TestSessionsAfterCrash(t *testing.T) {
	dir := t.TempDir()
	record(t, dir, "ended")
	st := open(t, dir, nil)
	storetest.Append(t, st, "crashed", provenance.KindSessionStarted)
	closeStore(t, st)
	path := filepath.Join(dir, "crashed", provenance.SessionFile)
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	// What a killed server leaves: a session.json that is behind the record.
	st = open(t, dir, &filestore.Options{Quiet: time.Hour})
	storetest.Append(t, st, "killed", provenance.KindSessionStarted)
	storetest.Read(t, st, "killed", provenance.SessionFile)
	storetest.Append(t, st, "killed", provenance.KindSkillActivated, provenance.KindPolicyDenied)
	killed := filepath.Join(dir, "copy")
	if err := os.CopyFS(killed, os.DirFS(filepath.Join(dir, "killed"))); err != nil {
		t.Fatal(err)
	}
	closeStore(t, st)
	if err := os.RemoveAll(filepath.Join(dir, "killed")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(killed, filepath.Join(dir, "killed")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	st = open(t, dir, nil)
	defer closeStore(t, st)
	got := map[string]string{}
	for s, err := range st.Sessions(t.Context(), time.Time{}) {
		got[s.ID] = string(s.State)
		if s.ID == "killed" && (s.Head.Seq != 3 || s.Counts.Activations != 1) {
			t.Errorf("the session of a killed server is %+v, want 3 events", s)
		}
		if err != nil {
			t.Errorf("session %s: %v", s.ID, err)
		}
	}
	// The empty directory is not a session.
	if got["ended"] != "ended" || got["crashed"] != "crashed" || got["killed"] != "crashed" || len(got) != 3 {
		t.Errorf("Sessions gave %v", got)
	}
}
