// Package testtree writes trees of files for tests.
package testtree

import (
	"os"
	"path/filepath"
	"testing"
)

// Write writes files, by their paths with slashes, below a directory, and creates the directories between.
func Write(tb testing.TB, dir string, files map[string]string) {
	tb.Helper()
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
}

// New writes files below a new directory, which is removed when the test ends.
func New(tb testing.TB, files map[string]string) (dir string) {
	tb.Helper()
	dir = tb.TempDir()
	Write(tb, dir, files)
	return dir
}
