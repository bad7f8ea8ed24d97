package filestore_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// childEnv names the part that a copy of this test binary plays, and the directory to use.
const (
	childEnv    = "FILESTORE_TEST_CHILD"
	childDirEnv = "FILESTORE_TEST_DIR"
)

func TestMain(m *testing.M) {
	dir := os.Getenv(childDirEnv)
	switch os.Getenv(childEnv) {
	case "":
		os.Exit(m.Run())
	case "append":
		fmt.Println(appendForever(dir))
	default:
		fmt.Println(playPlatform(os.Getenv(childEnv), dir))
	}
	os.Exit(1)
}

func child(t *testing.T, part, dir string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+part, childDirEnv+"="+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// appendForever records events from many goroutines and prints each that was acknowledged.
func appendForever(dir string) error {
	st, err := filestore.Open(dir, nil)
	if err != nil {
		return err
	}
	kinds := []provenance.Kind{provenance.KindScriptRequested, provenance.KindResourceRead, provenance.KindScriptExecuted}
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				e := storetest.Event(fmt.Sprintf("s%d", w%2), kinds[(w+i)%len(kinds)], i)
				if err := st.Append(context.Background(), e); err != nil {
					return
				}
				mu.Lock()
				fmt.Printf("%s %d %s\n", e.Session, e.Seq, e.Hash)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.New("appending stopped")
}

// A process is killed while it appends: what it was told is recorded is there, the chain is
// whole, and the session goes on.
func TestKilled(t *testing.T) {
	for _, lines := range []int{1, 50, 400} {
		dir := t.TempDir()
		cmd := child(t, "append", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		told := make(map[string]string)
		sc := bufio.NewScanner(out)
		for n := 0; sc.Scan(); n++ {
			var session, hash string
			var seq uint64
			// The last line may be cut short by the kill.
			if _, err := fmt.Sscanf(sc.Text(), "%s %d %s", &session, &seq, &hash); err == nil && len(hash) == 64 {
				told[fmt.Sprintf("%s:%d", session, seq)] = hash
			}
			if n == lines {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the child ended by itself")
		}
		if len(told) < lines {
			t.Fatalf("the child acknowledged %d events, want %d", len(told), lines)
		}
		checkAcknowledged(t, dir, told)
	}
}

func checkAcknowledged(t *testing.T, dir string, told map[string]string) {
	t.Helper()
	list, err := filestore.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	st := open(t, dir, nil)
	for _, s := range list {
		if s.Head.Seq == 0 {
			checkNotBegun(t, dir, &s)
		} else {
			if s.State != provenance.StateCrashed {
				t.Errorf("session %s is %s, want crashed", s.ID, s.State)
			}
			verify(t, dir, s.ID)
		}
		storetest.Append(t, st, s.ID, provenance.KindSessionResumed)
		for e, err := range filestore.ReadEvents(dir, s.ID) {
			if err != nil {
				t.Fatal(err)
			}
			if told[e.ID()] == e.Hash {
				delete(told, e.ID())
			}
		}
	}
	if len(told) > 0 {
		t.Errorf("%d acknowledged events are not in the record: %v", len(told), told)
	}
	closeStore(t, st)
	for _, s := range list {
		if r := verify(t, dir, s.ID); len(r.Stale) != 0 || r.Torn != 0 {
			t.Errorf("Verify after resuming = %+v", r)
		}
	}
}

// checkNotBegun checks a session whose process was killed before its first event was recorded: nothing
// tells it from one whose record was emptied, so it is not passed off as whole.
func checkNotBegun(t *testing.T, dir string, s *provenance.Session) {
	t.Helper()
	_, err := filestore.Verify(dir, s.ID)
	var differs *provenance.VerifyError
	if s.State != provenance.StateDamaged || !errors.As(err, &differs) {
		t.Errorf("session %s without an event is %s, Verify = %v, want damaged and a difference", s.ID, s.State, err)
	}
}

// A session has its directory with its first event: one that is killed before, with files or without, is in
// no list, keeps no name, and is gone with a later start.
func TestNoDirectoryBeforeTheFirstEvent(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, nil)
	storetest.Append(t, st, "whole", provenance.KindSessionStarted)
	if err := st.Claim(t.Context(), "claimed"); err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte("registry "), 10_000)
	for _, id := range []string{"begun", "put"} {
		if _, err := st.Put(t.Context(), id, "skill-registry.json", large); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Put(t.Context(), id, "outputs/o.stdout", []byte("out")); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Keep(t.Context(), id, []byte("shown")); err != nil {
			t.Fatal(err)
		}
	}
	storetest.Append(t, st, "begun", provenance.KindSessionStarted)
	if got, want := sessions(t, dir), []string{"begun", "whole", "~new", "~shown"}; !slices.Equal(got, want) {
		t.Fatalf("the directory has %v, want %v", got, want)
	}
	if got, want := sessions(t, filepath.Join(dir, "~new")), []string{"claimed", "put"}; !slices.Equal(got, want) {
		t.Fatalf("sessions without an event are %v, want %v", got, want)
	}
	// As a kill leaves them: nothing is released, and locks are free.
	killed := t.TempDir()
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	list, err := filestore.List(killed)
	if err != nil || len(list) != 2 {
		t.Fatalf("List = %v, %v, want the two with events", list, err)
	}
	for _, s := range list {
		if s.State != provenance.StateCrashed {
			t.Errorf("session %s is %s", s.ID, s.State)
		}
	}
	if _, err := filestore.Verify(killed, "put"); !errors.Is(err, provenance.ErrNotFound) {
		t.Errorf("Verify of a session without an event = %v", err)
	}
	again := open(t, killed, nil)
	storetest.Append(t, again, "put", provenance.KindSessionStarted)
	closeStore(t, again)
	if r := verify(t, killed, "put"); r.Events != 1 {
		t.Errorf("a session that another server begins = %+v", r)
	}
	if got := sessions(t, filepath.Join(killed, "~new")); !slices.Equal(got, []string{"claimed"}) {
		t.Errorf("a claim is gone at once: %v", got)
	}
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{killed + "/~new/claimed", dir + "/~new/claimed", dir + "/~new/put"} {
		if err := os.Chtimes(filepath.FromSlash(name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, open(t, killed, nil))
	closeStore(t, open(t, dir, nil))
	if got := sessions(t, filepath.Join(killed, "~new")); len(got) != 0 {
		t.Errorf("a later start leaves %v", got)
	}
	if got := sessions(t, filepath.Join(dir, "~new")); !slices.Equal(got, []string{"put"}) {
		t.Errorf("another server leaves %v, want what this one holds", got)
	}
	storetest.Append(t, st, "put", provenance.KindSessionStarted)
	if _, err := st.Put(t.Context(), "never", "skill-registry.json", large); err != nil {
		t.Fatal(err)
	}
	closeStore(t, st)
	verify(t, dir, "put")
	if got := sessions(t, filepath.Join(dir, "~new")); len(got) != 0 {
		t.Errorf("Close leaves %v", got)
	}
}

// An earlier version was killed between making the files of a session and its first event: this one can
// write to it.
func TestKilledBeforeTheFirstEvent(t *testing.T) {
	for _, files := range [][]string{{}, {provenance.LockFile}, {provenance.LockFile, provenance.EventsFile}} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "s"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if err := os.WriteFile(filepath.Join(dir, "s", name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		checkNotBegun(t, dir, &provenance.Session{ID: "s", State: provenance.StateDamaged})
		st := open(t, dir, nil)
		storetest.Append(t, st, "s", provenance.KindSessionStarted)
		closeStore(t, st)
		verify(t, dir, "s")
	}
}
