package config

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// What changes after the configuration was read is a change, also before anybody looked for one.
func TestRulesChangedSinceLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	for _, text := range []string{"allow: [a:scripts/x.sh]\n", "allow: []\n"} {
		if err := os.WriteFile(path, []byte("allow: [a:scripts/x.sh]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p := &Process{File: path, Env: func(string) (string, bool) { return "", false }}
		if err := p.Load(io.Discard); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		want := Written
		if text == "allow: [a:scripts/x.sh]\n" {
			want = Unchanged
		}
		if got := p.RulesChanged()(); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// A file that was written before it came to its place is told from one that is written there.
func TestChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
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
	touch := func() {
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	how := changed(path)
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
		{"removed and made", func() { remove(); write(path+".other", ""); write(path, "second") }, Written},
		{"touched", touch, Unchanged},
		{"opened to others", func() { os.Chmod(path, 0o644) }, Written},
	} {
		step.change()
		if got := how(); got != step.want {
			t.Errorf("%s: %d, want %d", step.name, got, step.want)
		}
	}
}
