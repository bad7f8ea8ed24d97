package filestore_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) provenance.Store { return open(t, t.TempDir(), nil) })
}

// Short waits make commits and views overlap the appends of the suite.
func TestStoreHurried(t *testing.T) {
	storetest.Run(t, func(t *testing.T) provenance.Store {
		return open(t, t.TempDir(), &filestore.Options{Commit: time.Microsecond, Quiet: time.Microsecond})
	})
}

func TestTurns(t *testing.T) {
	storetest.RunTurns(t, func(t *testing.T) (a, b provenance.Store) {
		dir, opts := t.TempDir(), &filestore.Options{LockWait: time.Millisecond}
		return open(t, dir, opts), open(t, dir, opts)
	})
}

func open(t *testing.T, dir string, opts *filestore.Options) *filestore.Store {
	t.Helper()
	st, err := filestore.Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func closeStore(t *testing.T, st *filestore.Store) {
	t.Helper()
	if err := st.Close(); err != nil {
		t.Fatalf("Close() = %v", err)
	}
}

func verify(t *testing.T, dir, id string) *provenance.Report {
	t.Helper()
	r, err := filestore.Verify(dir, id)
	if err != nil {
		t.Fatalf("Verify(%s) = %v", id, err)
	}
	return r
}

// record makes an ended session with every kind of file.
func record(t *testing.T, dir, id string) {
	t.Helper()
	st := open(t, dir, nil)
	storetest.Append(t, st, id, provenance.KindSessionStarted)
	for name, k := range map[string]provenance.Kind{
		provenance.RegistryFile:                       provenance.KindRegistrySnapshot,
		provenance.OutputName(id+":tool:1", "stdout"): provenance.KindScriptExecuted,
	} {
		f, err := st.Put(t.Context(), id, name, []byte("{\"of\": \""+name+"\"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		e := storetest.Event(id, k, 5)
		e.Files = []provenance.File{f}
		if err := st.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	storetest.Append(t, st, id, provenance.KindSkillActivated, provenance.KindResourceRead,
		provenance.KindPolicyDenied, provenance.KindSessionEnded)
	closeStore(t, st)
}

func TestModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("missing capability: POSIX file modes")
	}
	dir := filepath.Join(t.TempDir(), "sessions")
	record(t, dir, "s")
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		want := os.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %v, want %v", path, got, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The directory of a session is created by its first event, not by opening the store or by an
// event that is refused.
func TestCreatedAtFirstEvent(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, nil)
	defer closeStore(t, st)
	bad := storetest.Event("s", "nonsense", 1)
	if err := st.Append(t.Context(), bad); err == nil {
		t.Fatal("a bad event was recorded")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Fatalf("before the first event: %v, %v", entries, err)
	}
	storetest.Append(t, st, "s", provenance.KindSessionStarted)
	for _, name := range []string{provenance.EventsFile, provenance.SessionFile} {
		if _, err := os.Stat(filepath.Join(dir, "s", name)); err != nil {
			t.Errorf("after the first event: %v", err)
		}
	}
	verify(t, dir, "s")
}

func TestLocked(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, nil)
	storetest.Append(t, first, "s", provenance.KindSessionStarted)
	second := open(t, dir, &filestore.Options{LockWait: time.Millisecond})
	defer closeStore(t, second)
	err := second.Append(t.Context(), storetest.Event("s", provenance.KindResourceRead, 1))
	if !errors.Is(err, provenance.ErrUnavailable) {
		t.Fatalf("Append to a held session = %v, want ErrUnavailable", err)
	}
	if strings.Contains(err.Error(), dir) {
		t.Errorf("error shows the host path: %v", err)
	}
	storetest.Append(t, second, "other", provenance.KindSessionStarted)
	closeStore(t, first)
	storetest.Append(t, second, "s", provenance.KindSessionResumed)
}

// An ended session is free for another process although the store stays open.
func TestReleasedAtEnd(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, nil)
	defer closeStore(t, first)
	storetest.Append(t, first, "s", provenance.KindSessionStarted, provenance.KindResourceRead, provenance.KindSessionEnded)
	if r := verify(t, dir, "s"); len(r.Stale) != 0 || r.Files != 4 {
		t.Errorf("Verify after the end = %+v", r)
	}
	second := open(t, dir, &filestore.Options{LockWait: time.Millisecond})
	defer closeStore(t, second)
	storetest.Append(t, second, "s", provenance.KindSessionResumed)
}

func TestTornLineIsDroppedAndNoted(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, nil)
	storetest.Append(t, st, "s", provenance.KindSessionStarted, provenance.KindResourceRead)
	closeStore(t, st)
	path := filepath.Join(dir, "s", provenance.EventsFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, torn := range []string{"{", string(data[:200]), strings.Repeat("\x00", 5000)} {
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(before, torn...), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := verify(t, dir, "s"); r.Torn != int64(len(torn)) {
			t.Errorf("Verify reports %d torn bytes, want %d", r.Torn, len(torn))
		}
		st := open(t, dir, nil)
		e := storetest.Append(t, st, "s", provenance.KindResourceRead)[0]
		var note *provenance.Event
		for ev, err := range st.Events(t.Context(), provenance.Query{Session: "s", From: e.Seq - 1}) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Seq == e.Seq-1 {
				note = ev
			}
		}
		if note == nil || note.Kind != provenance.KindSessionResumed || !strings.Contains(note.Detail, "torn") {
			t.Errorf("event before is %+v, want a note of the torn line", note)
		}
		closeStore(t, st)
		if r := verify(t, dir, "s"); r.Torn != 0 || len(r.Stale) != 0 {
			t.Errorf("Verify = %+v", r)
		}
	}
}

func TestBrokenRecordIsNotContinued(t *testing.T) {
	dir := t.TempDir()
	record(t, dir, "s")
	path := filepath.Join(dir, "s", provenance.EventsFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[20] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	st := open(t, dir, nil)
	defer closeStore(t, st)
	err = st.Append(t.Context(), storetest.Event("s", provenance.KindResourceRead, 1))
	if !errors.Is(err, provenance.ErrCorrupt) {
		t.Fatalf("Append to a broken record = %v, want ErrCorrupt", err)
	}
	after, err := os.ReadFile(path)
	if err != nil || string(after) != string(data) {
		t.Errorf("the broken record was changed (%v)", err)
	}
}

// A record cut at a line is a valid chain; continuing it would hide what was cut off.
func TestShortenedRecordIsNotContinued(t *testing.T) {
	dir := t.TempDir()
	record(t, dir, "s")
	path := filepath.Join(dir, "s", provenance.EventsFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, keep := range []int{0, strings.IndexByte(string(data), '\n') + 1} {
		if err := os.Truncate(path, int64(keep)); err != nil {
			t.Fatal(err)
		}
		st := open(t, dir, nil)
		err := st.Append(t.Context(), storetest.Event("s", provenance.KindSessionResumed, 1))
		if !errors.Is(err, provenance.ErrCorrupt) {
			t.Errorf("Append to %d bytes of a record = %v, want ErrCorrupt", keep, err)
		}
		closeStore(t, st)
		wantDifference(t, dir, "shortened record")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	verify(t, dir, "s")
}

func TestList(t *testing.T) {
	dir := t.TempDir()
	if list, err := filestore.List(filepath.Join(dir, "none")); err != nil || len(list) != 0 {
		t.Errorf("List of no directory = %v, %v", list, err)
	}
	record(t, dir, "ended")
	st := open(t, dir, nil)
	crashed := storetest.Event("crashed", provenance.KindSessionStarted, 100)
	if err := st.Append(t.Context(), crashed); err != nil {
		t.Fatal(err)
	}
	storetest.Append(t, st, "crashed", provenance.KindSkillActivated)
	closeStore(t, st)
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	st = open(t, dir, nil)
	defer closeStore(t, st)
	e := storetest.Event("open", provenance.KindSessionStarted, 300)
	if err := st.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	list, err := filestore.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range list {
		got = append(got, s.ID+" "+string(s.State))
	}
	if want := "open open, crashed crashed, ended ended"; strings.Join(got, ", ") != want {
		t.Errorf("List = %v, want %s", got, want)
	}
	if c := list[1].Counts; c.Activations != 1 {
		t.Errorf("counts of the crashed session are %+v", c)
	}
}
