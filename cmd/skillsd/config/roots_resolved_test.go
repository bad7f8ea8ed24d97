package config

import (
	"os"
	"path/filepath"
	"testing"
)

// TestResolved resolves the links of the part of a path that exists, and keeps the rest.
func TestResolved(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"l": "a", "dangling": "none/x", "loop": "loop", "a/up": "../a/b"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Skipf("missing capability: symbolic links: %v", err)
		}
	}
	for path, want := range map[string]string{
		"a/b": "a/b", "l/b": "a/b", "l/b/c/d": "a/b/c/d", "l/c/d": "a/c/d", "c/d": "c/d", "a/up/q/r": "a/b/q/r",
		"dangling": "dangling", "dangling/y": "dangling/y", "dangling/y/z": "dangling/y/z",
		"loop": "loop", "loop/x": "loop/x", "f/x": "f/x",
	} {
		if got := Resolved(filepath.Join(dir, path)); got != filepath.Join(dir, want) {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	t.Chdir(dir)
	for path, want := range map[string]string{"": ".", ".": ".", "l/x": "a/x", "none/x": "none/x"} {
		if got := Resolved(path); got != filepath.FromSlash(want) {
			t.Errorf("%q is %q, want %q", path, got, want)
		}
	}
}
