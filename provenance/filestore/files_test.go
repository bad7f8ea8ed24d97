package filestore_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// run records a run that printed n bytes.
func run(t *testing.T, st provenance.Store, id string, i, n int) provenance.File {
	t.Helper()
	f, err := st.Put(t.Context(), id, provenance.OutputName(fmt.Sprintf("%s:tool:%d", id, i), "stdout"), bytes.Repeat([]byte{byte('a' + i%26)}, n))
	if err != nil {
		t.Fatal(err)
	}
	e := storetest.Event(id, provenance.KindScriptExecuted, i)
	e.Files = []provenance.File{f}
	if err := st.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	return f
}

func outputs(t *testing.T, dir, id string) map[string]int64 {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, id, provenance.OutputsDir))
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]int64)
	for _, en := range entries {
		info, err := en.Info()
		if err != nil {
			t.Fatal(err)
		}
		found[provenance.OutputsDir+"/"+en.Name()] = info.Size()
	}
	return found
}

func TestOldOutputsMakeRoom(t *testing.T) {
	const limit = 1000
	dir := t.TempDir()
	st := open(t, dir, &filestore.Options{Outputs: limit})
	storetest.Append(t, st, "s", provenance.KindSessionStarted)
	waiting, err := st.Put(t.Context(), "s", "outputs/waiting.stdout", make([]byte, 100))
	if err != nil {
		t.Fatal(err)
	}
	var files []provenance.File
	for i := range 30 {
		files = append(files, run(t, st, "s", i, 90))
		var sum int64
		for _, size := range outputs(t, dir, "s") {
			sum += size
		}
		if sum > limit {
			t.Fatalf("after %d runs %d bytes are kept, limit %d", i+1, sum, limit)
		}
		if i == 15 {
			closeStore(t, st)
			st = open(t, dir, &filestore.Options{Outputs: limit})
		}
	}
	left := outputs(t, dir, "s")
	if _, ok := left[files[0].Name]; ok {
		t.Error("the oldest output is still there")
	}
	if _, ok := left[files[29].Name]; !ok {
		t.Error("the newest output is gone")
	}
	if _, ok := left[waiting.Name]; !ok {
		t.Error("an output whose event was yet to come is gone")
	}
	if _, err := st.Put(t.Context(), "s", files[29].Name, []byte("other")); !errors.Is(err, provenance.ErrInvalid) {
		t.Errorf("Put of a recorded output = %v, want ErrInvalid", err)
	}
	if _, err := st.Put(t.Context(), "s", "outputs/large.stdout", make([]byte, 2*limit)); err != nil {
		t.Errorf("Put of an output over the limit = %v", err)
	}
	if left := outputs(t, dir, "s"); len(left) != 2 {
		t.Errorf("beside one output over the limit %v are left, want the one without an event", left)
	}
	closeStore(t, st)
	removed := 0
	for e, err := range filestore.ReadEvents(dir, "s") {
		if err != nil {
			t.Fatal(err)
		}
		gone, err := e.Removed()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range gone {
			if f != files[removed] {
				t.Errorf("removed %s, want %s, the oldest", f.Name, files[removed].Name)
			}
			removed++
		}
	}
	if r := verify(t, dir, "s"); r.Removed != removed || removed != 30 || len(r.Unrecorded) != 2 {
		t.Errorf("Verify = %+v, want %d removed and 2 without an event", r, removed)
	}
}

// A crash between the event and the removal leaves files that the next process deletes.
func TestRemovalIsFinished(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, &filestore.Options{Outputs: 100})
	storetest.Append(t, st, "s", provenance.KindSessionStarted)
	first := run(t, st, "s", 1, 90)
	run(t, st, "s", 2, 90)
	closeStore(t, st)
	path := filepath.Join(dir, "s", first.Name)
	if err := os.WriteFile(path, make([]byte, 90), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, dir, "s"); len(r.Unrecorded) != 1 {
		t.Errorf("Verify with a file that was removed = %+v, want it unrecorded", r)
	}
	st = open(t, dir, nil)
	storetest.Append(t, st, "s", provenance.KindSessionResumed)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the removed output is there after opening the session: %v", err)
	}
	closeStore(t, st)
}

// An event cannot excuse the absence of what it does not name as it was recorded.
func TestForgedRemoval(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, nil)
	storetest.Append(t, st, "s", provenance.KindSessionStarted)
	f := run(t, st, "s", 1, 90)
	f.Size++
	row, err := provenance.Encode(provenance.OutputsRemoved{Type: provenance.TypeOutputsRemoved, Files: []provenance.File{f}})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Append(t.Context(), &provenance.Event{Kind: provenance.KindOutputsRemoved, Session: "s", Principal: "local", Row: row}); err != nil {
		t.Fatal(err)
	}
	closeStore(t, st)
	wantDifference(t, dir, "removal of what no event names")
}

// Many small outputs make room like large ones.
func TestManyOutputsMakeRoom(t *testing.T) {
	const many = 10_000
	dir := t.TempDir()
	st := open(t, dir, nil)
	e := storetest.Event("s", provenance.KindScriptExecuted, 1)
	if err := os.MkdirAll(filepath.Join(dir, "s", provenance.OutputsDir), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range many {
		f := provenance.File{Name: fmt.Sprintf("outputs/%d", i), Size: 1, Digest: digest.FromString("x")}
		if err := os.WriteFile(filepath.Join(dir, "s", f.Name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		e.Files = append(e.Files, f)
	}
	if err := st.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	last := run(t, st, "s", 2, 1)
	left := outputs(t, dir, "s")
	if _, ok := left[last.Name]; !ok || len(left) > many*3/4+1 || left["outputs/9999"] != 1 {
		t.Errorf("of %d outputs %d are left", many+1, len(left))
	}
	closeStore(t, st)
	if r := verify(t, dir, "s"); r.Removed != many+1-len(left) {
		t.Errorf("Verify = %+v, want %d removed", r, many+1-len(left))
	}
}
