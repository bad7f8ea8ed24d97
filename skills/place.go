package skills

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// Errors of reading a file of a skill. They carry no place of this machine.
var (
	ErrNotIndexed  = errors.New("file is not in the skill's index")
	ErrNotFound    = errors.New("file does not exist")
	ErrNotFile     = errors.New("not a regular file")
	ErrOutsideRoot = errors.New("a link leads out of the directory")
	ErrPermission  = errors.New("permission denied")
	ErrTooLarge    = errors.New("file is larger than the limit")
)

// place is where the directory of a skill is.
type place struct {
	base string // a directory of this machine, free of links; unused with fsys
	fsys fs.FS
	rel  string // slash-separated, below base or fsys, free of links when it was found
}

// key identifies the directory: two skills with the same one are the same.
func (p place) key(root *Root) string {
	if p.fsys != nil {
		return strings.Join([]string{root.Dir, root.Prefix, p.rel}, "\x00")
	}
	return filepath.Join(p.base, filepath.FromSlash(p.rel))
}

// open opens the directory for reads below it. The caller closes the tree.
//
// Errors: the sentinels above.
func (p place) open() (tree, error) {
	if p.fsys != nil {
		sub, err := fs.Sub(p.fsys, p.rel)
		return fsTree{sub}, cause(err)
	}
	base, err := os.OpenRoot(p.base)
	if err != nil {
		return nil, cause(err)
	}
	if p.rel == "." {
		return osTree{base}, nil
	}
	defer base.Close()
	root, err := base.OpenRoot(filepath.FromSlash(p.rel))
	if err != nil {
		return nil, cause(err)
	}
	return osTree{root}, nil
}

// tree is a directory whose links are followed only where they lead to something within it.
type tree interface {
	lstat(name string) (fs.FileInfo, error)
	stat(name string) (fs.FileInfo, error)
	list(name string) ([]fs.DirEntry, error)
	open(name string) (fs.File, error) // must not be called for anything but a regular file
	close()
}

// openFile opens a regular file of a tree. Anything else is not opened.
func openFile(t tree, name string) (fs.File, fs.FileInfo, error) {
	info, err := t.stat(name)
	if err != nil {
		return nil, nil, cause(err)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, ErrNotFile
	}
	file, err := t.open(name)
	if err != nil {
		return nil, nil, cause(err)
	}
	if info, err = file.Stat(); err == nil && !info.Mode().IsRegular() {
		err = ErrNotFile
	}
	if err != nil {
		file.Close()
		return nil, nil, cause(err)
	}
	return file, info, nil
}

// cause maps an error of the file system to one that names no place.
func cause(err error) error {
	if err == nil {
		return nil
	}
	var pathErr *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return ErrNotFound
	case errors.Is(err, fs.ErrPermission):
		return ErrPermission
	case errors.Is(err, syscall.ELOOP):
		return ErrNotFound
	case errors.As(err, &pathErr):
		// os.Root has no exported error for this.
		if pathErr.Err.Error() == "path escapes from parent" {
			return ErrOutsideRoot
		}
		return pathErr.Err
	}
	return err
}

type osTree struct{ root *os.Root }

func (t osTree) lstat(name string) (fs.FileInfo, error) {
	return t.root.Lstat(filepath.FromSlash(name))
}
func (t osTree) stat(name string) (fs.FileInfo, error) { return t.root.Stat(filepath.FromSlash(name)) }
func (t osTree) close()                                { t.root.Close() }

func (t osTree) open(name string) (fs.File, error) {
	return t.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|nonblock, 0)
}

func (t osTree) list(name string) ([]fs.DirEntry, error) {
	dir, err := t.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.ReadDir(maxList)
}

// maxList is the most entries of one directory that are looked at.
const maxList = 100_000

// fsTree has no links: what an [fs.FS] does about them is its own matter.
type fsTree struct{ fsys fs.FS }

func (t fsTree) lstat(name string) (fs.FileInfo, error)  { return fs.Stat(t.fsys, name) }
func (t fsTree) stat(name string) (fs.FileInfo, error)   { return fs.Stat(t.fsys, name) }
func (t fsTree) list(name string) ([]fs.DirEntry, error) { return fs.ReadDir(t.fsys, name) }
func (t fsTree) open(name string) (fs.File, error)       { return t.fsys.Open(name) }
func (t fsTree) close()                                  {}

// join joins slash-separated paths, "" and "." for nothing.
func join(elements ...string) string {
	if joined := path.Join(elements...); joined != "." {
		return joined
	}
	return ""
}
