package skills

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

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

// folder is an open directory for the walk of a scan. It never follows a link.
type folder interface {
	// list returns the entries that matter to a scan, unsorted: directories, links, and any entry with the
	// name of a skill file. If there are more than limit, more is true.
	list(limit int) (entries []entry, more bool, err error)
	// sub opens a subdirectory.
	sub(name string) (folder, error)
	// read returns the content of a file that list reported as regular, in buf if it fits. The mark is not
	// settled.
	read(name string, limit int64, buf []byte) ([]byte, mark, error)
	// mark returns the current mark of a file that list reported as regular. It is not settled.
	mark(name string) (mark, error)
	// look returns the mark of the file or directory at a slash-separated path below, without following a
	// final link. The mark is unknown if the file does not exist, or if look is not cheaper than opening it.
	// Earlier links in the path are followed, so look can only confirm that a known file is unchanged.
	look(path string) mark
	// barren reports whether a subdirectory is known to have neither directories nor a skill file, and
	// returns its mark from before that check.
	barren(name string) (mark, bool)
	close()
}

// entry is a directory entry; mode has only type bits.
type entry struct {
	name string
	mode fs.FileMode
}

const (
	upperFile = "SKILL.md"
	lowerFile = "skill.md"
)

// nestedFiles are the skill files of nested skills. Other spellings are found at the top of a skill only:
// most directories in skills are not listed, so each name costs a call.
var nestedFiles = []string{upperFile, lowerFile, "SKILL.MD", "Skill.md"}

// relevant reports whether an entry matters to a scan.
func relevant(name string, mode fs.FileMode) bool {
	return strings.EqualFold(name, upperFile) || mode&(fs.ModeDir|fs.ModeSymlink) != 0 && !Ignored(name) ||
		name == HostingDir && mode.IsDir()
}

// descend opens a directory below f. The path must not contain links.
func descend(f folder, rel string) (folder, error) {
	// f belongs to the caller and stays open; only directories that were opened on the way are closed.
	at, opened := f, false
	for name := range strings.SplitSeq(rel, "/") {
		next, err := at.sub(name)
		if opened {
			at.close()
		}
		if err != nil {
			return nil, err
		}
		at, opened = next, true
	}
	return at, nil
}

// genericFolder reads through an os.Root or an fs.FS, on systems without a faster implementation.
type genericFolder struct {
	tree tree
	rel  string
	own  bool // close closes tree
}

func (g genericFolder) close() {
	if g.own {
		g.tree.close()
	}
}

func (g genericFolder) mark(name string) (mark, error) {
	info, err := g.tree.lstat(path.Join(g.rel, name))
	if err != nil {
		return mark{}, err
	}
	if !info.Mode().IsRegular() {
		return mark{}, ErrNotFile
	}
	return markOf(info), nil
}

func (g genericFolder) look(string) mark { return mark{} }

func (g genericFolder) barren(string) (mark, bool) { return mark{}, false }

func (g genericFolder) list(limit int) (entries []entry, more bool, err error) {
	all, err := g.tree.list(g.rel)
	if err == io.EOF {
		err = nil
	}
	for _, e := range all {
		if !relevant(e.Name(), e.Type()) {
			continue
		}
		if len(entries) == limit {
			return entries, true, nil
		}
		entries = append(entries, entry{e.Name(), e.Type()})
	}
	return entries, false, err
}

func (g genericFolder) sub(name string) (folder, error) {
	rel := name
	if name != "." {
		rel = path.Join(g.rel, name)
	}
	// The name was a directory when it was listed; if it was replaced by a link since, opening it would
	// follow the link.
	info, err := g.tree.lstat(rel)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: filepath.FromSlash(rel), Err: fs.ErrNotExist}
	}
	return genericFolder{tree: g.tree, rel: rel}, nil
}

func (g genericFolder) read(name string, limit int64, buf []byte) ([]byte, mark, error) {
	// readTree follows links, which a folder must not.
	if _, err := g.mark(name); err != nil {
		return nil, mark{}, err
	}
	return readTree(g.tree, path.Join(g.rel, name), limit, buf)
}

// readTree reads a regular file of a tree and follows links within the tree.
func readTree(t tree, name string, limit int64, buf []byte) ([]byte, mark, error) {
	file, info, err := openFile(t, name)
	if err != nil {
		return nil, mark{}, err
	}
	defer file.Close()
	data, err := readLimited(file, info.Size(), limit, buf)
	return data, markOf(info), err
}

// readLimited reads r to its end. size is its expected size.
//
// Errors: ErrTooLarge.
func readLimited(r io.Reader, size, limit int64, buf []byte) ([]byte, error) {
	if size > limit {
		return nil, ErrTooLarge
	}
	// One byte more than the limit shows that a file grew after its size was read.
	data := bytes.NewBuffer(buf[:0])
	data.Grow(int(max(size, 0)) + bytes.MinRead)
	_, err := data.ReadFrom(io.LimitReader(fsys.Ending(r, size), limit+1))
	if err != nil {
		return data.Bytes(), cause(err)
	}
	if int64(data.Len()) > limit {
		return data.Bytes(), ErrTooLarge
	}
	return data.Bytes(), nil
}

// mark is the stat data that shows whether a file changed since it was read.
type mark struct {
	size         int64
	mtime, ctime int64 // nanoseconds since 1970
	inode, dev   uint64
	known        bool // the system provides all of the above
	settled      bool // the file had not changed for settleTime when it was read
}

// settleTime is how long a file must have been unchanged for its times to identify its bytes: two changes
// within the resolution of a clock look the same.
const settleTime = 2 * time.Second

// readAt returns the mark of a file that was read at now.
func (m mark) readAt(now time.Time) mark {
	m.settled = now.UnixNano()-max(m.mtime, m.ctime) >= int64(settleTime)
	return m
}

// vouches reports whether a file whose mark is now has the same bytes as when m was made. Times can miss a
// change: a write through a shared mapping need not update them.
func (m mark) vouches(now mark) bool {
	// Whether now is settled does not matter: the bytes were read when m was made.
	now.settled = m.settled
	return m == now && m.known && m.settled
}

// component returns an error for names that the kernel would resolve to another directory.
func component(name string) error {
	if name == "" || name == ".." || strings.ContainsAny(name, "/\x00") {
		return &fs.PathError{Op: "openat", Path: name, Err: fs.ErrInvalid}
	}
	return nil
}
