package skills_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// stateDir is a temporary directory for stored trees, whose read-only directories an ordinary user
// could not clean up.
func stateDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	return dir
}
