package skills

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// Errors of reading a file of a skill. They contain no path of this machine.
var (
	ErrNotIndexed  = errors.New("file is not in the skill's index")
	ErrNotFound    = errors.New("file does not exist")
	ErrNotFile     = errors.New("not a regular file")
	ErrOutsideRoot = errors.New("a link leads out of the directory")
	ErrPermission  = errors.New("permission denied")
	ErrTooLarge    = errors.New("file is larger than the limit")
	ErrExhausted   = errors.New("too many files are open") // temporary; the file is sound
)

// location locates the directory of a skill.
type location struct {
	base string // a directory of this machine, with links resolved; unused with fsys
	fsys fs.FS
	rel  string // slash-separated, below base or fsys, without links when found
	// skillFile is the target of the skill file if that is a link, relative to base and without links when
	// found; else "".
	skillFile string
}

// key identifies the directory: skills with equal keys are the same skill.
func (p location) key(root *Root) string {
	if p.fsys != nil {
		// No path contains NUL, so different triples have different keys.
		return strings.Join([]string{root.Dir, root.Prefix, p.rel}, "\x00")
	}
	return p.onDisk()
}

// onDisk returns the path of the directory, for a location that is not in an fs.FS.
func (p location) onDisk() string { return filepath.Join(p.base, filepath.FromSlash(p.rel)) }

// open opens the directory for reads below it. The caller closes the tree.
//
// Errors: the sentinels above.
func (p location) open() (tree, error) {
	if p.fsys != nil {
		return openFS(p.fsys, p.rel)
	}
	if t, ok := p.openBeneath(); ok {
		return t, nil
	}
	base, err := os.OpenRoot(p.base)
	if err != nil {
		return nil, cause(err)
	}
	if p.rel == "." {
		return osTree{base}, nil
	}
	root, err := base.OpenRoot(filepath.FromSlash(p.rel))
	if err != nil {
		base.Close()
		return nil, cause(err)
	}
	if p.skillFile != "" {
		return linkedTree{osTree{root}, osTree{base}, p.skillFile}, nil
	}
	base.Close()
	return osTree{root}, nil
}

// Gone reports whether the file of the skill no longer exists. A skill that cannot be accessed is not gone.
func (s *Skill) Gone() bool {
	t, err := s.location.open()
	if err != nil {
		return errors.Is(cause(err), ErrNotFound)
	}
	defer t.close()
	_, err = t.lstat(s.File)
	return errors.Is(cause(err), ErrNotFound)
}

// follow returns the location of a skill whose skill file is a link to the skill file of another directory in
// base.
//
// Errors: ErrOutsideRoot also for a link to a file with another name: write access to one skill must not be
// enough to have any file of the root served.
func (p location) follow(name string) (location, error) {
	// A root that is itself a skill has no other directory to link to.
	if p.fsys != nil || p.rel == "." {
		return p, ErrOutsideRoot
	}
	target, err := filepath.EvalSymlinks(filepath.Join(p.onDisk(), name))
	if err != nil {
		return p, cause(err)
	}
	if last := filepath.Base(target); !within(p.base, target) || last != upperFile && last != lowerFile {
		return p, ErrOutsideRoot
	}
	p.skillFile = strings.Trim(filepath.ToSlash(target[len(p.base):]), "/")
	return p, nil
}

// linkedTree is the directory of a skill whose skill file is in another directory of base.
type linkedTree struct {
	osTree
	base      osTree
	skillFile string
}

func (t linkedTree) lstat(name string) (fs.FileInfo, error) {
	if name == upperFile || name == lowerFile {
		return t.base.lstat(t.skillFile)
	}
	return t.osTree.lstat(name)
}

func (t linkedTree) stat(name string) (fs.FileInfo, error) {
	if name == upperFile || name == lowerFile {
		return t.base.stat(t.skillFile)
	}
	return t.osTree.stat(name)
}

func (t linkedTree) open(name string) (fs.File, error) {
	if name == upperFile || name == lowerFile {
		return t.base.open(t.skillFile)
	}
	return t.osTree.open(name)
}

func (t linkedTree) close() {
	t.osTree.close()
	t.base.close()
}

// tree is a directory in which only links with a target within it are followed.
type tree interface {
	lstat(name string) (fs.FileInfo, error)
	stat(name string) (fs.FileInfo, error)
	list(name string) ([]fs.DirEntry, error)
	open(name string) (fs.File, error) // must be called for regular files only
	close()
}

// openFile opens a regular file of a tree. It does not open any other kind of file.
func openFile(t tree, name string) (fs.File, fs.FileInfo, error) {
	if err := regular(t, name); err != nil {
		return nil, nil, cause(err)
	}
	file, err := t.open(name)
	if err != nil {
		return nil, nil, cause(err)
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, nil, cause(err)
	}
	if !info.Mode().IsRegular() {
		file.Close()
		return nil, nil, ErrNotFile
	}
	// A private file with a second name may belong to another user who never gave it to the skill: creating a
	// hard link needs no permission to read the file.
	// The check is of the opened file, since the name may lead to another one by now.
	if info.Mode()&0o004 == 0 && fsys.Names(info) > 1 {
		file.Close()
		return nil, nil, ErrPermission
	}
	return file, info, nil
}

// regular returns ErrNotFile if a name is not a regular file, without opening it.
func regular(t tree, name string) error {
	if quick, ok := t.(interface{ isFile(string) bool }); ok && quick.isFile(name) {
		return nil
	}
	info, err := t.stat(name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return ErrNotFile
	}
	return nil
}

// cause maps an error of the file system to one without paths of this machine.
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
	// A link that leads to itself names no file.
	case errors.Is(err, syscall.ELOOP):
		return ErrNotFound
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return ErrExhausted
	case errors.As(err, &pathErr):
		// os.Root does not export this error.
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
func (t osTree) stat(name string) (fs.FileInfo, error) {
	return t.root.Stat(filepath.FromSlash(name))
}

func (t osTree) close() { t.root.Close() }

func (t osTree) open(name string) (fs.File, error) {
	return t.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|fsys.NonBlock, 0)
}

func (t osTree) list(name string) ([]fs.DirEntry, error) {
	dir, err := t.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|fsys.NonBlock|fsys.Directory, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.ReadDir(maxList)
}

// maxList is the maximum number of entries read from one directory.
const maxList = 100_000

// openFS opens a directory of an fs.FS, or of a [Source] at its current version.
func openFS(fsys fs.FS, rel string) (tree, error) {
	// Without a pin, a source that is replaced during a walk would mix files of two versions.
	if src, ok := fsys.(Source); ok {
		pinned, err := src.Pin()
		if err != nil {
			return nil, cause(err)
		}
		fsys = pinned
	}
	sub, err := fs.Sub(fsys, rel)
	if err != nil {
		return nil, cause(err)
	}
	return fsTree{sub}, nil
}

// fsFolder opens the top of an fs.FS, or of a [Source] at its current version.
func fsFolder(fsys fs.FS) (folder, error) {
	t, err := openFS(fsys, ".")
	if err != nil {
		return nil, err
	}
	if info, err := t.stat("."); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: ".", Err: errors.New("not a directory")}
	}
	return genericFolder{tree: t, rel: "."}, nil
}

// fsTree has no links: a link in an [fs.FS] is replaced by its target file, or left out.
type fsTree struct{ fsys fs.FS }

func (t fsTree) lstat(name string) (fs.FileInfo, error) { return fs.Stat(t.fsys, name) }
func (t fsTree) stat(name string) (fs.FileInfo, error)  { return fs.Stat(t.fsys, name) }
func (t fsTree) open(name string) (fs.File, error)      { return t.fsys.Open(name) }
func (t fsTree) close()                                 {}

// list returns the usable entries, and an error if there are unusable ones: a name that is not a single
// element would lead elsewhere as part of a path.
func (t fsTree) list(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(t.fsys, name)
	entries := make([]fs.DirEntry, 0, len(all))
	for _, e := range all {
		if n := e.Name(); n == "." || !fs.ValidPath(n) || strings.Contains(n, "/") {
			err = errUnusableName
			continue
		}
		if e.Type()&fs.ModeSymlink != 0 {
			// An fs.FS cannot confine links, and a scan would look for the target on this machine.
			e = t.resolve(name, e)
		}
		entries = append(entries, e)
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	// An archive may list a name twice. The index would then have two digests for one path.
	once := slices.CompactFunc(entries, func(a, b fs.DirEntry) bool { return a.Name() == b.Name() })
	if len(once) < len(entries) {
		err = errors.New("a name is listed twice")
	}
	return once, err
}

// resolve returns the entry for a link: a regular file, or an irregular one. A link to a directory may be a
// loop, and a scan would resolve it on this machine.
func (t fsTree) resolve(dir string, link fs.DirEntry) fs.DirEntry {
	info, err := fs.Stat(t.fsys, path.Join(dir, link.Name()))
	if err == nil && info.Mode().IsRegular() {
		return linkEntry{link, 0}
	}
	return linkEntry{link, fs.ModeIrregular}
}

// linkEntry is a link with the type of its target.
type linkEntry struct {
	fs.DirEntry
	mode fs.FileMode
}

func (e linkEntry) Type() fs.FileMode { return e.mode }
func (e linkEntry) IsDir() bool       { return false }

// join joins slash-separated paths, where "" and "." are empty. If dir is empty it returns name without a
// copy.
func join(dir, name string) string {
	joined := path.Clean(name)
	if dir != "" && dir != "." {
		joined = path.Join(dir, name)
	}
	if joined == "." {
		return ""
	}
	return joined
}
