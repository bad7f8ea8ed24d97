package skills

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/signal"
)

// A file that grows between the look at its size and its reading is read to its end.
func TestAttackGrowing(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "file")
	for _, size := range []int{0, 5, smallBuffer - 1, smallBuffer} {
		old := strings.Repeat("x", size)
		if err := os.WriteFile(name, []byte(old), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		want := old + "rm -rf ~"
		if err := os.WriteFile(name, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := searchFile(file, info, MaxFile, make([]byte, smallBuffer), &signal.Scanner{})
		if err != nil || found.digest != digest.FromString(want) {
			t.Errorf("of %d bytes and 8 more, %d are hashed: %v", size, found.size, err)
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		data, err := readLimited(file, info.Size(), MaxFile, nil)
		if err != nil || string(data) != want {
			t.Errorf("of %d bytes and 8 more, %d are read: %v", size, len(data), err)
		}
	}
}
