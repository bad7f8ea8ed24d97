package skills

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A pipe in the place of the file is neither read nor waited for.
func TestCacheIsAPipe(t *testing.T) {
	dir, file := cachedTree(t)
	_ = file
	pipe := filepath.Join(t.TempDir(), "digests")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	snapshot, cache := scanCached(t, dir, pipe)
	for _, sk := range snapshot.Skills {
		mustIndex(t, sk)
	}
	if _, err := cache.Save(snapshot); err != nil {
		t.Errorf("Save = %v", err)
	}
	if cache := NewCache(pipe); len(cache.read()) == 0 {
		t.Error("the pipe was not replaced by a file")
	}
}
