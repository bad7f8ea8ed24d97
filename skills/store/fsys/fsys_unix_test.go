//go:build unix

package fsys_test

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Opening a named pipe for reading would wait for a writer that never comes.
func TestNamedPipe(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := fsys.Open(pipe); !errors.Is(err, fsys.ErrNotRegular) {
		t.Errorf("Open: %v, want ErrNotRegular", err)
	}
	if _, _, err := fsys.OpenIn(openRoot(t, dir), "pipe"); !errors.Is(err, fsys.ErrNotRegular) {
		t.Errorf("OpenIn: %v, want ErrNotRegular", err)
	}
}
