package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A tree that somebody else could write is not used: its bytes may change after they were hashed. It is stored
// anew.
func TestTreeOfAnotherUser(t *testing.T) {
	const somebody = 65534
	for name, give := range map[string]func(dir string) error{
		"file, by its mode":      func(dir string) error { return os.Chmod(filepath.Join(dir, "scripts/run.sh"), 0o522) },
		"directory, by its mode": func(dir string) error { return os.Chmod(filepath.Join(dir, "scripts"), 0o775) },
		"file":                   func(dir string) error { return os.Chown(filepath.Join(dir, "scripts/run.sh"), somebody, -1) },
		"directory":              func(dir string) error { return os.Chown(dir, somebody, -1) },
	} {
		t.Run(name, func(t *testing.T) {
			s, tree, dir := stored(t)
			if err := give(dir); errors.Is(err, os.ErrPermission) {
				t.Skipf("missing capability: giving files away: %v", err)
			} else if err != nil {
				t.Fatal(err)
			}
			_, err := s.Tree(t.Context(), tree.Digest)
			wantCorrupt(t, err)
			if !strings.Contains(err.Error(), "others can write it") && !strings.Contains(err.Error(), "another user") {
				t.Errorf("Tree = %v", err)
			}
			if _, err := s.Put(t.Context(), sample.files(), sample.open); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(filepath.Join(dir, "scripts/run.sh"))
			if err != nil || info.Mode().Perm()&0o022 != 0 {
				t.Errorf("stored anew: %v, %v", info.Mode(), err)
			}
			if _, err := s.Tree(t.Context(), tree.Digest); err != nil {
				t.Errorf("the tree that was stored anew: %v", err)
			}
		})
	}
}
