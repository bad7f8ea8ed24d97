package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// device is an events.jsonl on a disk that can be told to fail.
type device struct {
	file
	syncs atomic.Int64

	mu       sync.Mutex
	room     int // bytes that a write may still take, when limited
	limited  bool
	badSync  bool
	badTrunc bool
	gate     chan struct{} // a sync waits until it is closed
	onSync   func()
}

var errDevice = errors.New("device failed")

func (d *device) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func (d *device) WriteAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.limited && len(p) > d.room {
		n, _ := d.file.WriteAt(p[:d.room], off)
		return n, errDevice
	}
	return d.file.WriteAt(p, off)
}

func (d *device) Sync() error {
	d.syncs.Add(1)
	d.mu.Lock()
	gate := d.gate
	d.mu.Unlock()
	if gate != nil {
		<-gate
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.badSync {
		return errDevice
	}
	if d.onSync != nil {
		d.onSync()
	}
	return d.file.Sync()
}

func (d *device) Truncate(size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.badTrunc {
		return errDevice
	}
	return d.file.Truncate(size)
}

func onDevice(t *testing.T, dir string, opts Options) (*Store, *device) {
	t.Helper()
	d := new(device)
	opts.wrap = func(f file) file {
		d.file = f
		return d
	}
	st, err := Open(dir, &opts)
	if err != nil {
		t.Fatal(err)
	}
	return st, d
}

func mustVerify(t *testing.T, dir string, events int) {
	t.Helper()
	r, err := Verify(dir, "s")
	if err != nil || r.Events != events || r.Torn != 0 {
		t.Fatalf("Verify = %+v, %v, want %d events", r, err, events)
	}
}

func TestFailedWriteLeavesNoTrace(t *testing.T) {
	dir := t.TempDir()
	st, d := onDevice(t, dir, Options{})
	storetest.Append(t, st, "s", provenance.KindSessionStarted)
	for _, room := range []int{0, 1, 100} {
		d.set(func() { d.limited, d.room = true, room })
		for _, k := range []provenance.Kind{provenance.KindResourceRead, provenance.KindScriptRequested} {
			e := storetest.Event("s", k, 1)
			if err := st.Append(t.Context(), e); !errors.Is(err, provenance.ErrUnavailable) || e.Seq != 0 {
				t.Fatalf("Append with room for %d bytes = %v, seq %d", room, err, e.Seq)
			}
		}
		mustVerify(t, dir, 1)
	}
	d.set(func() { d.badTrunc = true })
	if err := st.Append(t.Context(), storetest.Event("s", provenance.KindResourceRead, 1)); err == nil {
		t.Fatal("Append succeeded on a failed device")
	}
	d.set(func() { d.limited = false })
	if err := st.Append(t.Context(), storetest.Event("s", provenance.KindResourceRead, 1)); err == nil {
		t.Fatal("Append succeeded behind a partial line")
	}
	d.set(func() { d.badTrunc = false })
	storetest.Append(t, st, "s", provenance.KindResourceRead, provenance.KindScriptRequested)
	mustVerify(t, dir, 3)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, dir, 3)
}

// What was acknowledged before a failed sync is written again, for the pages may be lost.
func TestFailedSyncIsRepaired(t *testing.T) {
	dir := t.TempDir()
	st, d := onDevice(t, dir, Options{Commit: time.Hour})
	storetest.Append(t, st, "s", provenance.KindSessionStarted, provenance.KindResourceRead, provenance.KindSkillActivated)
	d.set(func() { d.badSync = true })
	e := storetest.Event("s", provenance.KindScriptRequested, 1)
	if err := st.Append(t.Context(), e); !errors.Is(err, provenance.ErrUnavailable) || e.Seq != 0 {
		t.Fatalf("Append = %v, seq %d", err, e.Seq)
	}
	mustVerify(t, dir, 3)
	if err := st.Append(t.Context(), storetest.Event("s", provenance.KindResourceRead, 1)); !errors.Is(err, provenance.ErrUnavailable) {
		t.Fatalf("Append while the record is in doubt = %v", err)
	}
	path := filepath.Join(dir, "s", provenance.EventsFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lost := len(data) - 100
	if err := os.WriteFile(path, append(data[:lost:lost], make([]byte, 100)...), 0o600); err != nil {
		t.Fatal(err)
	}
	d.set(func() { d.badSync = false })
	storetest.Append(t, st, "s", provenance.KindScriptRequested)
	mustVerify(t, dir, 4)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

// After a failed sync a later one says nothing of what was written before, neither in the session nor in
// another one that has the same file.
func TestFailedSyncOfFile(t *testing.T) {
	if !syncsLater {
		t.Skip("files are synced when they are written")
	}
	sameFile := func(was fs.FileInfo, name string) bool {
		t.Helper()
		is, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return os.SameFile(was, is)
	}
	for _, of := range []string{provenance.PolicySnapshotFile, provenance.ShownDir} {
		for _, lost := range []bool{false, true} {
			name, dir := of, t.TempDir()
			st, err := Open(dir, &Options{Commit: time.Hour, Quiet: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if of != provenance.ShownDir {
				if _, err := st.Put(t.Context(), "s", name, []byte("{}")); err != nil {
					t.Fatal(err)
				}
			} else {
				storetest.Append(t, st, "s", provenance.KindSessionStarted)
				storetest.Append(t, st, "other", provenance.KindSessionStarted)
				for _, id := range []string{"s", "other"} {
					sum, err := st.Keep(t.Context(), id, []byte("text"))
					if err != nil {
						t.Fatal(err)
					}
					name = provenance.ShownName(sum)
				}
			}
			path := filepath.Join(dir, st.held("s").dirName(), name)
			was, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			var failed atomic.Bool
			st.synced.file = func(dir *os.Root, file string) error {
				if file != name || failed.Swap(true) {
					return syncFile(dir, file)
				}
				if lost { // the kernel has read from the disk what it did not write
					if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, make([]byte, was.Size()), 0o600),
						os.Chtimes(path, was.ModTime(), was.ModTime())); err != nil {
						t.Error(err)
					}
				}
				return errDevice
			}
			sync := func(id string) error {
				return st.Append(t.Context(), storetest.Event(id, provenance.KindScriptRequested, 1))
			}
			for range 2 {
				switch err := sync("s"); {
				case lost && !errors.Is(err, provenance.ErrUnavailable):
					t.Errorf("%s is lost, and an event after it is recorded: %v", name, err)
				case !lost && err != nil:
					t.Fatal(err)
				}
			}
			if !lost && sameFile(was, filepath.Join(dir, "s", name)) {
				t.Errorf("%s was not written again", name)
			}
			if of == provenance.ShownDir && !lost {
				if err := sync("other"); err != nil {
					t.Fatal(err)
				}
				storetest.Append(t, st, "later", provenance.KindSessionStarted)
				if _, err := st.Keep(t.Context(), "later", []byte("text")); err != nil {
					t.Fatal(err)
				}
				for _, id := range []string{"other", "later"} {
					if sameFile(was, filepath.Join(dir, id, name)) {
						t.Errorf("session %s has the file of %s whose sync failed", id, name)
					}
				}
			}
			if err := st.Close(); !lost && err != nil {
				t.Fatal(err)
			}
		}
	}
	st, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	snapshot := func(id string) fs.FileInfo {
		t.Helper()
		_, err := st.Put(t.Context(), id, provenance.PolicySnapshotFile, make([]byte, minShared))
		info, errInfo := os.Stat(st.Path(st.held(id).dirName(), provenance.PolicySnapshotFile))
		if err := errors.Join(err, errInfo); err != nil {
			t.Fatal(err)
		}
		return info
	}
	was := snapshot("first")
	st.synced.file = func(*os.Root, string) error { return errDevice }
	if os.SameFile(was, snapshot("second")) {
		t.Error("a session has a snapshot that could not be synced")
	}
}

// What the end of a session could not sync is written again when the session is opened.
func TestFailedSyncBeforeReopened(t *testing.T) {
	dir := t.TempDir()
	st, d := onDevice(t, dir, Options{Commit: time.Hour})
	storetest.Append(t, st, "s", provenance.KindSessionStarted, provenance.KindResourceRead)
	d.set(func() { d.badSync = true })
	st.Release("s")
	d.set(func() { d.badSync = false })
	if err := st.Take(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s", provenance.EventsFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(data[len(data)-100:]) // which the kernel has not written
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	storetest.Append(t, st, "s", provenance.KindScriptRequested)
	mustVerify(t, dir, 3)
	if err := st.Close(); !errors.Is(err, provenance.ErrUnavailable) { // the end of the first turn
		t.Error(err)
	}
}

// So is a text that the end of a session could neither sync nor write again, whether an event that waited
// names it or one of the next turn does.
func TestFailedSyncOfTextBeforeReopened(t *testing.T) {
	if !syncsLater {
		t.Skip("files are synced when they are written")
	}
	for _, named := range []bool{false, true} {
		dir := t.TempDir()
		st, err := Open(dir, &Options{Commit: time.Hour, Quiet: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		storetest.Append(t, st, "s", provenance.KindSessionStarted)
		sum, err := st.Keep(t.Context(), "s", []byte("text"))
		if err != nil {
			t.Fatal(err)
		}
		if named {
			storetest.Append(t, st, "s", provenance.KindResourceRead)
		}
		name := provenance.ShownName(sum)
		path := filepath.Join(dir, "s", name)
		was, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		away := path + ".away"
		var failed sync.Once
		st.synced.file = func(dir *os.Root, file string) error {
			if file != name {
				return syncFile(dir, file)
			}
			failed.Do(func() { // nothing can be written in the place of a directory
				if err := errors.Join(os.Rename(path, away), os.Mkdir(path, 0o700)); err != nil {
					t.Error(err)
				}
			})
			return errDevice
		}
		st.Release("s")
		if err := errors.Join(os.Remove(path), os.Rename(away, path)); err != nil {
			t.Fatal(err)
		}
		st.synced.file = syncFile
		storetest.Append(t, st, "s", provenance.KindScriptRequested)
		if is, err := os.Stat(path); err != nil || os.SameFile(was, is) {
			t.Errorf("named %t: an event is recorded after a text that is lost (%v)", named, err)
		}
		events := 2
		if named {
			events++
		}
		mustVerify(t, dir, events)
		_ = st.Close()
	}
}

func TestCloseReportsLostEvents(t *testing.T) {
	st, d := onDevice(t, t.TempDir(), Options{Commit: time.Hour})
	storetest.Append(t, st, "s", provenance.KindSessionStarted, provenance.KindResourceRead)
	d.set(func() { d.badSync = true })
	if err := st.Close(); !errors.Is(err, provenance.ErrUnavailable) {
		t.Errorf("Close with events that are not on stable storage = %v, want ErrUnavailable", err)
	}
}

func TestDurableKindsAreSynced(t *testing.T) {
	st, d := onDevice(t, t.TempDir(), Options{Commit: time.Hour})
	storetest.Append(t, st, "s", provenance.KindSessionStarted)
	for _, tc := range []struct {
		kind provenance.Kind
		want int64
	}{
		{provenance.KindResourceRead, 0}, {provenance.KindSkillActivated, 0}, {provenance.KindPolicyWarned, 0},
		{provenance.KindScriptRequested, 1}, {provenance.KindScriptExecuted, 1}, {provenance.KindPolicyDenied, 1},
		{provenance.KindApprovalAsked, 1}, {provenance.KindApprovalAnswered, 1},
	} {
		before := d.syncs.Load()
		storetest.Append(t, st, "s", tc.kind)
		if got := d.syncs.Load() - before; got != tc.want {
			t.Errorf("%s made %d syncs before it was acknowledged, want %d", tc.kind, got, tc.want)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestConcurrentDurableAppendsShareSyncs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		st, d := onDevice(t, dir, Options{Commit: time.Hour, Quiet: time.Hour})
		storetest.Append(t, st, "s", provenance.KindSessionStarted)
		before := d.syncs.Load()
		gate := make(chan struct{})
		d.set(func() { d.gate = gate })
		const n = 50
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				if err := st.Append(t.Context(), storetest.Event("s", provenance.KindScriptRequested, 1)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(gate)
		wg.Wait()
		if got := d.syncs.Load() - before; got > 2 {
			t.Errorf("%d durable appends, all but the first waiting for a sync, made %d syncs, want 2", n, got)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	})
	mustVerify(t, dir, 51)
}

// Events reach stable storage within Commit, and views are written after Quiet, never per call.
func TestTimes(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		st, d := onDevice(t, dir, Options{})
		storetest.Append(t, st, "s", provenance.KindSessionStarted)
		view := filepath.Join(dir, "s", provenance.ResourceReadsFile)
		for range 5 {
			before := d.syncs.Load()
			storetest.Append(t, st, "s", provenance.KindResourceRead)
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if got := d.syncs.Load() - before; got != 1 {
				t.Errorf("%d syncs in 100 ms after an event, want 1", got)
			}
			time.Sleep(800 * time.Millisecond)
			synctest.Wait()
			if _, err := os.Stat(view); err == nil {
				t.Fatal("a view was written 0.9 s after an event")
			}
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if _, err := os.Stat(view); err != nil {
			t.Errorf("1 s after the last event: %v", err)
		}
		if r, err := Verify(dir, "s"); err != nil || len(r.Stale) != 0 {
			t.Errorf("Verify = %+v, %v", r, err)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// While the disk is too slow for the views of a session, one goroutine waits to write them, not one more after
// each event.
func TestViewsHaveOneWriter(t *testing.T) {
	dir := t.TempDir()
	st, err := Open(dir, &Options{Quiet: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	for range maxWriting {
		st.viewing <- struct{}{}
	}
	storetest.Append(t, st, "s", provenance.KindSessionStarted)
	for range 100 {
		storetest.Append(t, st, "s", provenance.KindResourceRead)
	}
	writers, stacks := 0, make([]byte, 1<<20)
	for end := time.Now().Add(time.Minute); writers == 0 && time.Now().Before(end); runtime.Gosched() {
		writers = bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte(").writeViews("))
	}
	if writers != 1 {
		t.Errorf("%d goroutines write the views, want 1", writers)
	}
	for range maxWriting {
		<-st.viewing
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err := Verify(dir, "s"); err != nil || len(r.Stale) != 0 {
		t.Errorf("Verify = %+v, %v", r, err)
	}
}

// What a session begins with is on stable storage before its first event, and what comes later at once.
func TestFirstFilesAreSyncedBeforeTheFirstEvent(t *testing.T) {
	if !syncsLater {
		t.Skip("files are synced when they are written")
	}
	st, d := onDevice(t, t.TempDir(), Options{Commit: time.Hour, Quiet: time.Hour})
	put := func(want ...string) {
		t.Helper()
		if _, err := st.Put(t.Context(), "s", provenance.PolicySnapshotFile, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if got := st.held("s").unsynced.names; !slices.Equal(got, want) {
			t.Errorf("%q are to be synced, want %q", got, want)
		}
	}
	put(provenance.SessionFile, provenance.PolicySnapshotFile)
	s, synced := st.held("s"), make(chan bool, 10)
	d.set(func() { d.onSync = func() { synced <- !s.unsynced.any } })
	storetest.Append(t, st, "s", provenance.KindSessionStarted)
	if !<-synced {
		t.Error("the first event was synced before the files that the session begins with")
	}
	put()
	// The directory of the texts is not there yet: with the first of them, its name has to be synced.
	for _, rooted := range []bool{false, true} {
		if s.unsynced.rooted != rooted {
			t.Errorf("the name of the directory of texts is synced: %v, want %v", !rooted, rooted)
		}
		if _, err := st.Keep(t.Context(), "s", []byte("text")); err != nil {
			t.Fatal(err)
		}
		storetest.Append(t, st, "s", provenance.KindPolicyDenied)
		if !<-synced {
			t.Error("an event was synced before its text")
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

// Where only names of texts are new, the directory that is open is synced. Its failure is that of the event that
// names a text; if it was closed meanwhile, it is opened again.
func TestNamesOfTextsAreSynced(t *testing.T) {
	if !syncsLater {
		t.Skip("the names of texts are on stable storage when they are made")
	}
	st, _ := onDevice(t, t.TempDir(), Options{Commit: time.Hour, Quiet: time.Hour})
	storetest.Append(t, st, "s", provenance.KindSessionStarted)
	if _, err := st.Keep(t.Context(), "s", []byte("text")); err != nil {
		t.Fatal(err)
	}
	storetest.Append(t, st, "s", provenance.KindPolicyDenied)
	s, r, closed := st.held("s"), newPipe(t), newPipe(t)
	closed.Close()
	for _, texts := range []*os.File{s.texts, closed, nil, r} { // a pipe cannot be synced
		s.shown.mu.Lock()
		s.texts = texts
		s.shown.mu.Unlock()
		s.unsynced.add()
		err := s.syncTexts()
		if fails := texts == r; (err != nil) != fails || s.unsynced.any != fails {
			t.Errorf("syncTexts = %v, to be synced: %v", err, s.unsynced.any)
		}
	}
	if err := s.syncTexts(); err == nil {
		t.Error("what could not be synced is not tried again")
	}
	s.shown.mu.Lock()
	s.closeTexts()
	s.shown.mu.Unlock()
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

func newPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r
}

// No event that names a text is on stable storage before the text: neither when it is synced for itself, nor
// by the timer, nor with the end of the session. A text that cannot be synced is an event that cannot.
func TestTextsAreSyncedBeforeEvents(t *testing.T) {
	for _, name := range []string{"durable event", "timer", "end", "large record", "links"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			commit := time.Hour
			if name == "timer" {
				commit = time.Millisecond
			}
			st, d := onDevice(t, dir, Options{Commit: commit})
			keep := func(id string) {
				for i := range 40 {
					if _, err := st.Keep(t.Context(), id, fmt.Appendf(nil, "text %d", i)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if name == "links" { // to files that are on stable storage; their names are not
				storetest.Append(t, st, "before", provenance.KindSessionStarted)
				keep("before")
				storetest.Append(t, st, "before", provenance.KindPolicyDenied)
				st.Release("before")
			}
			storetest.Append(t, st, "s", provenance.KindSessionStarted)
			s := st.held("s")
			synced := make(chan int, 1000)
			d.set(func() {
				d.onSync = func() {
					s.unsynced.mu.Lock()
					defer s.unsynced.mu.Unlock()
					left := len(s.unsynced.names)
					if s.unsynced.any {
						left++
					}
					synced <- left
				}
			})
			keep("s")
			if left := len(s.unsynced.names); name == "links" && syncsLater && (left != 0 || !s.unsynced.any) {
				t.Errorf("%d files that are on stable storage are to be synced, their names: %v", left, s.unsynced.any)
			}
			storetest.Append(t, st, "s", provenance.KindSkillActivated)
			switch name {
			case "durable event", "links":
				storetest.Append(t, st, "s", provenance.KindPolicyDenied)
			case "large record":
				for len(synced) == 0 {
					e := storetest.Event("s", provenance.KindSkillActivated, 1)
					e.Detail = strings.Repeat("x", 600<<10)
					if err := st.Append(t.Context(), e); err != nil {
						t.Fatal(err)
					}
				}
			case "end":
				if err := st.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if left := <-synced; left != 0 {
				t.Errorf("the record was synced with %d of 40 texts or their names to be synced", left)
			}
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
	dir := t.TempDir()
	st, _ := onDevice(t, dir, Options{Commit: time.Hour})
	storetest.Append(t, st, "s", provenance.KindSessionStarted)
	if _, err := st.Keep(t.Context(), "s", []byte("text")); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(dir, "s", provenance.ShownDir)
	if err := errors.Join(os.Rename(kept, kept+"-away"), os.WriteFile(kept, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := st.Append(t.Context(), storetest.Event("s", provenance.KindPolicyDenied, 1)); !errors.Is(err, provenance.ErrUnavailable) {
		t.Errorf("an event after a text that cannot be synced = %v", err)
	}
	if err := errors.Join(os.Remove(kept), os.Rename(kept+"-away", kept)); err != nil {
		t.Fatal(err)
	}
	storetest.Append(t, st, "s", provenance.KindPolicyDenied)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	mustVerify(t, dir, 2)
}
