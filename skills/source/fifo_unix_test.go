//go:build unix

package source_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/skillsd/skillsd/skills/source"
)

// A FIFO in the place of an archive is refused at once: nobody will ever write to it.
func TestZipIsFIFO(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "skills.zip")
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Skipf("missing capability: FIFOs: %v", err)
	}
	if _, err := source.NewZip(path).Open("."); err == nil ||
		!strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("error = %v", err)
	}
}
