package serve

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Cells in files are their user's alone, are changed by one process at a time, and end.
func TestCellFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "approvals")
	cells := cellFiles(dir)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			err := cells.Change(t.Context(), "count", time.Hour, func(was []byte) []byte { return append(was, 'x') })
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	value := func(life time.Duration) (got string, err error) {
		err = cells.Change(t.Context(), "count", life, func(was []byte) []byte { got = string(was); return nil })
		return got, err
	}
	if got, err := value(time.Hour); got != "xxxxxxxx" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	files := 0
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", d.Name(), info.Mode())
		}
		files++
		return err
	})
	if err != nil || files != 3 { // the directory, its lock and one cell
		t.Errorf("%d files, %v", files, err)
	}
	old := time.Now().Add(-2 * time.Hour)
	list, err := filepath.Glob(filepath.Join(dir, "????????????????*"))
	if err != nil || len(list) != 1 || os.Chtimes(list[0], old, old) != nil {
		t.Fatalf("%v, %v", list, err)
	}
	if got, err := value(time.Hour); got != "" || err != nil {
		t.Errorf("after its time: %q, %v", got, err)
	}
	err = cells.Change(t.Context(), "other", time.Hour, func([]byte) []byte { return []byte("y") })
	if _, gone := os.Stat(list[0]); err != nil || !os.IsNotExist(gone) {
		t.Errorf("a cell is kept after its time: %v, %v", err, gone)
	}
}

// What others can write, or a link in the place of a cell, is read by nobody.
func TestCellFilesExposed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "approvals")
	cells := cellFiles(dir)
	set := func() error {
		return cells.Change(t.Context(), "a", time.Hour, func([]byte) []byte { return []byte("x") })
	}
	if err := set(); err != nil {
		t.Fatal(err)
	}
	list, err := filepath.Glob(filepath.Join(dir, "????????????????*"))
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	if err := os.Chmod(list[0], 0o666); err != nil {
		t.Fatal(err)
	}
	if set() == nil {
		t.Error("a cell that others can write is read")
	}
	target := filepath.Join(t.TempDir(), "target")
	if err := os.Rename(list[0], target); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(target, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, list[0]); err != nil {
		t.Fatal(err)
	}
	if set() == nil {
		t.Error("a link is read")
	}
	if err := os.Remove(list[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if set() == nil {
		t.Error("a directory that others can write is used")
	}
}
