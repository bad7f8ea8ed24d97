package filestore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

func playPlatform(part, dir string) error {
	parts := map[string]func(string) error{"limit": outgrow, "descriptors": fill, "too many": overfill, "permission": losePermission, "read-only": readOnly}
	play := parts[part]
	if play == nil {
		return fmt.Errorf("no part %q", part)
	}
	if err := play(dir); err != nil {
		return err
	}
	os.Exit(0)
	return nil
}

// outgrow lets the kernel cut a line short with the process's limit on the size of files, at each
// of many places.
func outgrow(dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	st, err := filestore.Open(dir, nil)
	if err != nil {
		return err
	}
	ctx := context.Background()
	events := 0
	for room := int64(0); room < 250; room += 37 {
		if err := st.Append(ctx, storetest.Event("s", provenance.KindResourceRead, events)); err != nil {
			return fmt.Errorf("append with room: %w", err)
		}
		events++
		path := filepath.Join(dir, "s", provenance.EventsFile)
		before, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := limitFiles(uint64(int64(len(before)) + room)); err != nil {
			return err
		}
		e := storetest.Event("s", provenance.KindScriptRequested, 1)
		err = st.Append(ctx, e)
		if !errors.Is(err, provenance.ErrUnavailable) || !errors.Is(err, syscall.EFBIG) || e.Seq != 0 {
			return fmt.Errorf("append over the limit = %v, seq %d", err, e.Seq)
		}
		if err := limitFiles(^uint64(0)); err != nil {
			return err
		}
		after, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if string(after) != string(before) {
			return fmt.Errorf("a failed append left %q", strings.TrimPrefix(string(after), string(before)))
		}
	}
	if err := st.Close(); err != nil {
		return err
	}
	r, err := filestore.Verify(dir, "s")
	if err == nil && r.Events != events {
		err = fmt.Errorf("%d events, want %d", r.Events, events)
	}
	return err
}

func limitFiles(size uint64) error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
		return err
	}
	l.Cur = min(size, l.Max)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l)
}

func TestPartialWriteIsCutOff(t *testing.T) {
	cmd := child(t, "limit", t.TempDir())
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestFullDisk(t *testing.T) {
	dir := mountSmall(t, "256k")
	st := open(t, dir, nil)
	storetest.Append(t, st, "s", provenance.KindSessionStarted)
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 200<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	recorded := 1
	var err error
	for range 1000 {
		if err = st.Append(t.Context(), storetest.Event("s", provenance.KindResourceRead, recorded)); err != nil {
			break
		}
		recorded++
	}
	if !errors.Is(err, provenance.ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("Append on a full disk = %v", err)
	}
	if strings.Contains(err.Error(), dir) {
		t.Errorf("error shows the host path: %v", err)
	}
	if _, err := st.Put(t.Context(), "s", "outputs/o.stdout", make([]byte, 64<<10)); !errors.Is(err, provenance.ErrUnavailable) {
		t.Errorf("Put on a full disk = %v", err)
	}
	if err := st.Append(t.Context(), storetest.Event("new", provenance.KindSessionStarted, 1)); !errors.Is(err, provenance.ErrUnavailable) {
		t.Errorf("a session on a full disk: %v", err)
	}
	if r := verify(t, dir, "s"); r.Events != recorded || r.Torn != 0 || len(r.Unrecorded) != 0 {
		t.Errorf("Verify on a full disk = %+v, want %d events", r, recorded)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	storetest.Append(t, st, "s", provenance.KindScriptRequested)
	storetest.Append(t, st, "new", provenance.KindSessionStarted)
	closeStore(t, st)
	if r := verify(t, dir, "s"); r.Events != recorded+1 || len(r.Stale) != 0 {
		t.Errorf("Verify with space again = %+v", r)
	}
	verify(t, dir, "new")
}

// mountSmall mounts a small file system.
func mountSmall(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size+",mode=0700"); err != nil {
		t.Skipf("needs the capability to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillUp takes all free space.
func fillUp(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size >= 512; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}

// What is reserved is there although the disk was filled meanwhile.
func TestReservedRoom(t *testing.T) {
	dir := mountSmall(t, "4m")
	st := open(t, dir, &filestore.Options{Floor: 1 << 20})
	storetest.Append(t, st, "s", provenance.KindSessionStarted, provenance.KindScriptRequested)
	if _, err := st.Reserve(t.Context(), "s", 4<<20); !errors.Is(err, provenance.ErrUnavailable) {
		t.Fatalf("Reserve of more than there is = %v", err)
	}
	release, err := st.Reserve(t.Context(), "s", 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Reserve(t.Context(), "s", 1<<20); !errors.Is(err, provenance.ErrUnavailable) {
		t.Errorf("Reserve below the floor = %v", err)
	}
	fillUp(t, filepath.Join(dir, "filler"))
	output := make([]byte, 1<<20)
	if _, err := st.Put(t.Context(), "s", "outputs/o.stdout", output); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("Put into reserved room = %v", err)
	}
	for _, kind := range []provenance.Kind{provenance.KindResourceRead, provenance.KindScriptRequested} {
		err := st.Append(t.Context(), storetest.Event("s", kind, 1))
		if !errors.Is(err, provenance.ErrUnavailable) || strings.Contains(err.Error(), dir) {
			t.Errorf("Append of %s on a full disk = %v", kind, err)
		}
	}
	release()
	if _, err := st.Put(t.Context(), "s", "outputs/o.stdout", output); err != nil {
		t.Errorf("the output of a run on a full disk: %v", err)
	}
	storetest.Append(t, st, "s", provenance.KindScriptExecuted, provenance.KindSessionEnded)
	closeStore(t, st)
	if r := verify(t, dir, "s"); r.Events != 4 {
		t.Errorf("Verify = %+v", r)
	}
	if names := sessions(t, dir); !slices.Equal(names, []string{"filler", "s", "~new"}) {
		t.Errorf("left are %v", names)
	}
}
