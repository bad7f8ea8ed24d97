// Package testtree writes trees of files for tests.
package testtree

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Write writes files, by their paths with slashes, below a directory, and creates the directories between.
func Write(tb testing.TB, dir string, files map[string]string) {
	tb.Helper()
	write(tb, dir, files, 0o644)
}

// Executable is like Write, but files whose names end in .sh are executable. It returns the directory.
func Executable(tb testing.TB, dir string, files map[string]string) string {
	tb.Helper()
	write(tb, dir, files, 0o755)
	return dir
}

func write(tb testing.TB, dir string, files map[string]string, script os.FileMode) {
	tb.Helper()
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			tb.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, ".sh") {
			mode = script
		}
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
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
