package config

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// A file that was written before it came to its place is told from one that is written there.
func TestChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	place := func() (string, error) { return path, nil }
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rename := func() {
		t.Helper()
		old := time.Now().Add(-time.Minute)
		write(path+".new", "other")
		if err := os.Chtimes(path+".new", old, old); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	remove := func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	renamed := Replaced
	if runtime.GOOS != "linux" {
		renamed = Written
	}
	how := changed(place)
	for _, step := range []struct {
		name   string
		change func()
		want   Change
	}{
		{"none there", func() {}, Unchanged},
		{"made", func() { write(path, "first") }, Written},
		{"as before", func() {}, Unchanged},
		{"longer", func() { write(path, "first and second") }, Written},
		{"renamed", rename, renamed},
		{"removed", remove, Written},
		{"made again", func() { write(path, "first") }, Written},
		{"removed and made", func() { remove(); write(path+".other", ""); write(path, "first") }, Written},
	} {
		step.change()
		if got := how(); got != step.want {
			t.Errorf("%s: %d, want %d", step.name, got, step.want)
		}
	}
}
