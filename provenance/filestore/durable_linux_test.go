package filestore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// nobody is who plays parts that need permissions to count, where the tests run as root.
const nobody = 65534

// ordinary runs a part in a copy of this binary whose user permissions hold for.
func ordinary(t *testing.T, part string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "filestore")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error { return os.Chmod(path, 0o700) })
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	cmd := child(t, part, dir)
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Skipf("needs the capability to give files away: %v", err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Path, cmd.Dir = reachable(t, cmd.Path), dir
	}
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); errors.Is(err, fs.ErrPermission) {
		t.Skipf("needs a test binary that another user can run: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, out.String())
	}
}

// reachable copies a program to where every user can run it.
func reachable(t *testing.T, program string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "filestore")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	to := filepath.Join(dir, "program")
	data, err := os.ReadFile(program)
	if err == nil {
		err = os.WriteFile(to, data, 0o755)
	}
	if err == nil {
		err = errors.Join(os.Chmod(to, 0o755), os.Chmod(dir, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func TestPermissionLost(t *testing.T)    { ordinary(t, "permission") }
func TestReadOnlyDirectory(t *testing.T) { ordinary(t, "read-only") }

// losePermission takes the right to write to a session away and gives it back: what is open stays
// writable, new files are refused, and nothing acknowledged is lost.
func losePermission(dir string) error {
	ctx := context.Background()
	st, err := filestore.Open(dir, nil)
	if err != nil {
		return err
	}
	if err := st.Append(ctx, storetest.Event("s", provenance.KindSessionStarted, 1)); err != nil {
		return err
	}
	session := filepath.Join(dir, "s")
	for _, path := range []string{session, dir} {
		if err := os.Chmod(path, 0o500); err != nil {
			return err
		}
	}
	if err := st.Append(ctx, storetest.Event("s", provenance.KindScriptRequested, 2)); err != nil {
		return fmt.Errorf("append to an open record: %w", err)
	}
	if _, err := st.Put(ctx, "s", "outputs/o.stdout", []byte("x")); !errors.Is(err, provenance.ErrUnavailable) || strings.Contains(err.Error(), dir) {
		return fmt.Errorf("put without permission = %v", err)
	}
	if _, err := st.Keep(ctx, "s", []byte("x")); !errors.Is(err, provenance.ErrUnavailable) || strings.Contains(err.Error(), dir) {
		return fmt.Errorf("keep without permission = %v", err)
	}
	if err := st.Append(ctx, storetest.Event("t", provenance.KindSessionStarted, 1)); !errors.Is(err, provenance.ErrUnavailable) {
		return fmt.Errorf("a session without permission = %v", err)
	}
	if err := os.Chmod(session, 0); err != nil {
		return err
	}
	if err := st.Append(ctx, storetest.Event("s", provenance.KindPolicyDenied, 3)); err != nil {
		return fmt.Errorf("append to an open record: %w", err)
	}
	if err := st.Close(); !errors.Is(err, provenance.ErrUnavailable) {
		return fmt.Errorf("close without permission = %v, want that the views were not written", err)
	}
	for _, path := range []string{dir, session} {
		if err := os.Chmod(path, 0o700); err != nil {
			return err
		}
	}
	return again(dir, 3)
}

// again opens a session that had so many events, adds one and verifies it.
func again(dir string, events int) error {
	st, err := filestore.Open(dir, nil)
	if err != nil {
		return err
	}
	kind := provenance.KindSessionResumed
	if events == 0 {
		kind = provenance.KindSessionStarted
	}
	if err := st.Append(context.Background(), storetest.Event("s", kind, 9)); err != nil {
		return err
	}
	if err := st.Close(); err != nil {
		return err
	}
	r, err := filestore.Verify(dir, "s")
	if err != nil || r.Events != events+1 || len(r.Stale) > 0 {
		return fmt.Errorf("verify = %+v, %v, want %d events", r, err, events+1)
	}
	return nil
}

// readOnly begins in a directory that cannot be written, where sessions can still be read.
func readOnly(dir string) error {
	ctx := context.Background()
	if err := again(dir, 0); err != nil {
		return err
	}
	session := filepath.Join(dir, "s")
	for _, path := range []string{filepath.Join(session, provenance.EventsFile), filepath.Join(session, provenance.LockFile), session, dir} {
		if err := os.Chmod(path, 0o500); err != nil {
			return err
		}
	}
	st, err := filestore.Open(dir, nil)
	if err != nil {
		return err
	}
	for _, id := range []string{"s", "t"} {
		err := st.Append(ctx, storetest.Event(id, provenance.KindSessionStarted, 1))
		if !errors.Is(err, provenance.ErrUnavailable) || strings.Contains(err.Error(), dir) {
			return fmt.Errorf("append to %s in a read-only directory = %v", id, err)
		}
	}
	if list, err := filestore.List(dir); err != nil || len(list) != 1 {
		return fmt.Errorf("list = %v, %v", list, err)
	}
	if _, err := filestore.Verify(dir, "s"); err != nil {
		return err
	}
	if err := st.Close(); err != nil {
		return err
	}
	for _, path := range []string{dir, session} {
		if err := os.Chmod(path, 0o700); err != nil {
			return err
		}
	}
	for _, name := range []string{provenance.EventsFile, provenance.LockFile} {
		if err := os.Chmod(filepath.Join(session, name), 0o600); err != nil {
			return err
		}
	}
	return again(dir, 1)
}

// opened counts the descriptors of this process that are the lock of a session below dir.
func opened(t *testing.T, path string) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("needs /proc: %v", err)
	}
	for _, en := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + en.Name()); err == nil && to == path {
			n++
		}
	}
	return n
}

// Who waited for the lock of a session whose directory was taken away meanwhile does not write to it.
func TestSessionTakenAwayWhileWaitedFor(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a, b := open(t, dir, &filestore.Options{Quiet: time.Hour}), open(t, dir, &filestore.Options{LockWait: time.Hour})
	storetest.Append(t, a, "s", provenance.KindSessionStarted)
	lock := filepath.Join(dir, "s", provenance.LockFile)
	done := make(chan error, 1)
	go func() {
		done <- b.Append(context.WithoutCancel(t.Context()), storetest.Event("s", provenance.KindSessionResumed, 1))
	}()
	for opened(t, lock) < 2 {
		runtime.Gosched()
	}
	if err := os.Rename(filepath.Join(dir, "s"), filepath.Join(dir, "~away")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "s"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); !errors.Is(err, provenance.ErrUnavailable) {
		t.Errorf("Close of a session that was taken away = %v, want that its views were not written", err)
	}
	if err := <-done; !errors.Is(err, provenance.ErrUnavailable) {
		t.Errorf("Append to a session that was taken away = %v, want ErrUnavailable", err)
	}
	storetest.Append(t, b, "s", provenance.KindSessionStarted)
	closeStore(t, b)
	if r := verify(t, dir, "s"); r.Events != 1 {
		t.Errorf("the session made in its place has %d events, want 1", r.Events)
	}
}
