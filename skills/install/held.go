package install

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// heldDir is a directory that stays the same one if another takes its name. No link leads out of it, and
// opening a named pipe does not wait.
type heldDir struct{ root *os.Root }

func (h heldDir) Open(name string) (fs.File, error) { return h.open(name, 0) }

func (h heldDir) open(name string, flag int) (*os.File, error) {
	return h.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|fsys.NonBlock|flag, 0)
}

func (h heldDir) Stat(name string) (fs.FileInfo, error) { return h.root.Stat(filepath.FromSlash(name)) }

func (h heldDir) ReadDir(name string) ([]fs.DirEntry, error) {
	dir, err := h.open(name, fsys.Directory)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	const most = 100_000
	entries, err := dir.ReadDir(most + 1)
	if len(entries) > most {
		return nil, fmt.Errorf("%s has more than %d entries", name, most)
	}
	if err == io.EOF {
		err = nil
	}
	return entries, err
}
