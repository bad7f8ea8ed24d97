package filestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// begin records the start of a session and its registry.
func begin(ctx context.Context, st provenance.Store, id string, registry []byte) error {
	if err := st.Append(ctx, storetest.Event(id, provenance.KindSessionStarted, 1)); err != nil {
		return err
	}
	return register(ctx, st, id, registry)
}

// register records a registry of a session that has begun.
func register(ctx context.Context, st provenance.Store, id string, registry []byte) error {
	f, err := st.Put(ctx, id, provenance.RegistryFile, registry)
	if err != nil {
		return err
	}
	e := storetest.Event(id, provenance.KindRegistrySnapshot, 2)
	e.Files = []provenance.File{f}
	return st.Append(ctx, e)
}

// stat returns what the kernel says of a file.
func stat(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t)
}

// diskUse is the size in bytes of what lies below dir, a file with several links counted once.
func diskUse(t *testing.T, dir string) int64 {
	t.Helper()
	seen := make(map[uint64]int64)
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			st := stat(t, path)
			seen[st.Ino] = st.Blocks * 512
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, size := range seen {
		sum += size
	}
	return sum
}

func registryPath(dir, id string) string { return filepath.Join(dir, id, provenance.RegistryFile) }

func TestEqualRegistriesAreStoredOnce(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, nil)
	registry := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	for i := range 50 {
		if err := begin(t.Context(), st, fmt.Sprintf("s%d", i), registry); err != nil {
			t.Fatal(err)
		}
	}
	if err := register(t.Context(), st, "s3", registry); err != nil {
		t.Fatal(err)
	}
	closeStore(t, st)
	if left, err := filepath.Glob(filepath.Join(dir, "*", ".*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if used := diskUse(t, dir); used > 3<<20 {
		t.Errorf("50 sessions with a registry of 1 MiB take %d bytes", used)
	}
	for i := range 50 {
		id := fmt.Sprintf("s%d", i)
		if r := verify(t, dir, id); len(r.Unrecorded)+len(r.Stale) != 0 {
			t.Errorf("Verify = %+v", r)
		}
		if info, err := os.Lstat(registryPath(dir, id)); err != nil || info.Mode() != 0o400 {
			t.Errorf("registry of %s has mode %v, %v, want 0400", id, info.Mode(), err)
		}
	}
	// A change reaches every session that has the file, and is found in each.
	changed := registryPath(dir, "s7")
	registry[0] = '!'
	if err := os.Chmod(changed, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(changed, registry, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		var ve *provenance.VerifyError
		if _, err := filestore.Verify(dir, fmt.Sprintf("s%d", i)); !errors.As(err, &ve) || ve.File != provenance.RegistryFile {
			t.Errorf("Verify of s%d with a changed registry = %v", i, err)
		}
	}
}

// What became of the file that others were to share is not passed on to the next session.
func TestChangedFilesAreNotShared(t *testing.T) {
	registry := bytes.Repeat([]byte("r"), 64<<10)
	for name, change := range map[string]func(file string) error{
		"bytes": func(file string) error {
			return errors.Join(os.Chmod(file, 0o600), os.WriteFile(file, bytes.Repeat([]byte("x"), len(registry)), 0o600))
		},
		"longer": func(file string) error {
			return errors.Join(os.Chmod(file, 0o600), os.WriteFile(file, append(bytes.Clone(registry), 'r'), 0o600))
		},
		"cut": func(file string) error {
			return errors.Join(os.Chmod(file, 0o600), os.Truncate(file, 100))
		},
		"removed": os.Remove,
		"fifo": func(file string) error {
			return errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600))
		},
		"link": func(file string) error {
			away := filepath.Join(filepath.Dir(file), "away")
			return errors.Join(os.Rename(file, away), os.Symlink("away", file))
		},
		"session removed": func(file string) error { return os.RemoveAll(filepath.Dir(file)) },
		"session is a link": func(file string) error {
			dir := filepath.Dir(file)
			away, err := os.MkdirTemp(filepath.Dir(filepath.Dir(dir)), "")
			return errors.Join(err, os.Rename(dir, filepath.Join(away, "a")), os.Symlink(filepath.Join(away, "a"), dir))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "sessions")
			st := open(t, dir, nil)
			// The session must be let go of: its directory is taken away in some of the cases.
			if err := begin(t.Context(), st, "a", registry); err != nil {
				t.Fatal(err)
			}
			storetest.Append(t, st, "a", provenance.KindSessionEnded)
			if err := change(registryPath(dir, "a")); err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{"b", "c"} {
				if err := begin(t.Context(), st, id, registry); err != nil {
					t.Fatal(err)
				}
			}
			closeStore(t, st)
			for _, id := range []string{"b", "c"} {
				if r := verify(t, dir, id); len(r.Unrecorded) != 0 {
					t.Errorf("Verify(%s) = %+v", id, r)
				}
			}
			if b, c := stat(t, registryPath(dir, "b")), stat(t, registryPath(dir, "c")); b.Ino != c.Ino || b.Nlink < 3 {
				t.Errorf("the sessions after the change and the pool share %d links, want a shared file", b.Nlink)
			}
		})
	}
}

// Where a link cannot be made the file is copied.
func TestSharedAcrossDevices(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "b")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", other, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Skipf("needs the capability to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(other, 0); err != nil {
			t.Error(err)
		}
	})
	st := open(t, dir, nil)
	registry := bytes.Repeat([]byte("r"), 64<<10)
	for _, id := range []string{"a", "b"} {
		if err := begin(t.Context(), st, id, registry); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, st)
	for _, id := range []string{"a", "b"} {
		if r := verify(t, dir, id); len(r.Unrecorded) != 0 {
			t.Errorf("Verify(%s) = %+v", id, r)
		}
	}
}

// A store that finds sessions of an earlier one, or of another process, does not need their files.
func TestStoresShareADirectory(t *testing.T) {
	dir := t.TempDir()
	registry := bytes.Repeat([]byte("r"), 64<<10)
	stores := []*filestore.Store{open(t, dir, nil), open(t, dir, nil)}
	var wg sync.WaitGroup
	for i, st := range stores {
		wg.Go(func() {
			for n := range 10 {
				if err := begin(t.Context(), st, fmt.Sprintf("s%d-%d", i, n), registry); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i, st := range stores {
		closeStore(t, st)
		for n := range 10 {
			verify(t, dir, fmt.Sprintf("s%d-%d", i, n))
		}
	}
}

func TestOutputsAreNotShared(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, nil)
	data := make([]byte, 64<<10)
	for _, id := range []string{"a", "b"} {
		storetest.Append(t, st, id, provenance.KindSessionStarted)
		if _, err := st.Put(t.Context(), id, "outputs/o.stdout", data); err != nil {
			t.Fatal(err)
		}
		if n := stat(t, filepath.Join(dir, id, "outputs/o.stdout")).Nlink; n != 1 {
			t.Errorf("an output of session %s has %d links", id, n)
		}
	}
	closeStore(t, st)
}

func limitDescriptors(n uint64) error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	l.Cur = min(n, l.Max)
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
}

func openDescriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(entries)
}

// together calls f for many sessions at once.
func together(n int, f func(id string) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = f(fmt.Sprintf("s%d", i)) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func verifyAll(dir string, n int) error {
	return together(n, func(id string) error {
		r, err := filestore.Verify(dir, id)
		if err == nil && len(r.Stale) != 0 {
			err = fmt.Errorf("%s: stale: %v", id, r.Stale)
		}
		return err
	})
}

// fill opens as many sessions as MaxOpen allows and has them all end at once.
func fill(dir string) error {
	if err := limitDescriptors(256); err != nil {
		return err
	}
	st, err := filestore.Open(dir, nil)
	if err != nil {
		return err
	}
	ctx, n := context.Background(), filestore.MaxOpen()
	if n != 32 {
		return fmt.Errorf("MaxOpen() = %d, want 32", n)
	}
	registry := make([]byte, 64<<10)
	before := openDescriptors()
	for i := range n {
		if err := begin(ctx, st, fmt.Sprintf("s%d", i), registry); err != nil {
			return err
		}
	}
	// Views that are being written hold a few for a moment.
	if used := openDescriptors() - before; used > 2*n+8*4 {
		return fmt.Errorf("%d sessions hold %d descriptors", n, used)
	}
	err = together(n, func(id string) error {
		return st.Append(ctx, storetest.Event(id, provenance.KindSessionEnded, 3))
	})
	if err := errors.Join(err, st.Close()); err != nil {
		return err
	}
	return verifyAll(dir, n)
}

// overfill opens sessions until there is no descriptor left: those that are open go on and their
// views are written when all are let go of.
func overfill(dir string) error {
	if err := limitDescriptors(128); err != nil {
		return err
	}
	// No view is written meanwhile, which takes descriptors and gives them back.
	st, err := filestore.Open(dir, &filestore.Options{Quiet: time.Hour})
	if err != nil {
		return err
	}
	ctx, n := context.Background(), 0
	for err == nil {
		err = st.Append(ctx, storetest.Event(fmt.Sprintf("s%d", n), provenance.KindSessionStarted, 1))
		if err == nil {
			n++
		}
	}
	for i := range 20 {
		if !errors.Is(err, provenance.ErrUnavailable) || !errors.Is(err, syscall.EMFILE) || errors.Is(err, provenance.ErrCorrupt) {
			return fmt.Errorf("a session over the limit: %w", err)
		}
		err = st.Append(ctx, storetest.Event(fmt.Sprintf("t%d", i), provenance.KindSessionStarted, 1))
	}
	err = together(n, func(id string) error {
		return errors.Join(
			st.Append(ctx, storetest.Event(id, provenance.KindPolicyDenied, 2)),
			st.Append(ctx, storetest.Event(id, provenance.KindSessionEnded, 3)))
	})
	if err := errors.Join(err, st.Close()); err != nil {
		return err
	}
	return limitAndVerify(dir, n)
}

func limitAndVerify(dir string, n int) error {
	if err := limitDescriptors(1024); err != nil {
		return err
	}
	return verifyAll(dir, n)
}

func TestDescriptors(t *testing.T) {
	for _, part := range []string{"descriptors", "too many"} {
		cmd := child(t, part, t.TempDir())
		var out strings.Builder
		cmd.Stdout = &out
		if err := cmd.Run(); err != nil {
			t.Errorf("%s: %v: %s", part, err, out.String())
		}
	}
}
