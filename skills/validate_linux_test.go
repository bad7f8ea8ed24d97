package skills_test

import (
	"context"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/skills"
)

// A pipe without a writer, or a device, must neither be waited for nor read.
func TestValidateDirSpecialFiles(t *testing.T) {
	t.Parallel()
	pipe := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(pipe, "SKILL.md"), 0o600); err != nil {
		t.Fatal(err)
	}
	linked := t.TempDir()
	writeTree(t, linked, map[string]string{"SKILL.md": "-> pipe"})
	if err := unix.Mkfifo(filepath.Join(linked, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	device := t.TempDir()
	writeTree(t, device, map[string]string{"SKILL.md": "-> /dev/zero"})
	for _, dir := range []string{pipe, linked, device} {
		if got := skills.ValidateDir(context.Background(), dir); len(got) != 1 || got[0].Rule != "V3" {
			t.Errorf("ValidateDir = %v, want V3", got)
		}
	}
}
