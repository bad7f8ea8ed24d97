package install

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// maxHeldList is how many entries a directory may have.
const maxHeldList = 100_000

// heldDir is a directory that stays the same one if another takes its name. No link leads out of it, and
// opening a named pipe does not wait.
type heldDir struct{ root *os.Root }

func (h heldDir) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return h.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|fsys.NonBlock, 0)
}

func (h heldDir) Stat(name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrInvalid}
	}
	return h.root.Stat(filepath.FromSlash(name))
}

func (h heldDir) ReadDir(name string) ([]fs.DirEntry, error) {
	file, err := h.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	dir, ok := file.(fs.ReadDirFile)
	if !ok {
		return nil, &fs.PathError{Op: "list", Path: name, Err: errors.ErrUnsupported}
	}
	entries, err := dir.ReadDir(maxHeldList + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(entries) > maxHeldList {
		return nil, &fs.PathError{Op: "list", Path: name, Err: errors.New("too many entries")}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}
