package filestore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// One server at a time serves from a directory; looking whether one does keeps none from it.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	if Served(dir) || Served(filepath.Join(dir, "none")) {
		t.Error("Served = true, where nothing serves")
	}
	release, err := Serve(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !Served(dir) {
		t.Error("Served = false")
	}
	if _, err := Serve(dir); !errors.Is(err, ErrServing) {
		t.Errorf("a second Serve = %v", err)
	}
	if err := release(); err != nil || Served(dir) {
		t.Errorf("after release (%v) Served = %v", err, Served(dir))
	}
	release, err = Serve(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, servingLock)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(t.TempDir(), "elsewhere"), filepath.Join(dir, servingLock)); err != nil {
		t.Skipf("missing capability to make links: %v", err)
	}
	if _, err := Serve(dir); err == nil {
		t.Error("Serve followed a link")
	}
}
