package skills

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

// fdTree is the directory of a skill by its descriptor. The kernel confines links to it, so a file is opened
// with one system call, where os.Root needs several for each directory in the path.
type fdTree struct {
	fdFolder
	dirs   []dirMark // listed directories, with marks from before the listing
	others bool      // an entry is neither a regular file nor a directory
}

// openBeneath opens the directory of a location with openat2. It reports false if that is not supported by
// the kernel, or if there is a link in the path.
func (p location) openBeneath() (tree, bool) {
	if p.skillFile != "" {
		return nil, false
	}
	// The path was free of links when it was found. A directory that was replaced by a link since must not
	// lead elsewhere.
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := retry(func() (int, error) { return unix.Openat2(unix.AT_FDCWD, p.onDisk(), &how) })
	if err != nil {
		return nil, false
	}
	return &fdTree{fdFolder: fdFolder{fd: fd}}, true
}

// at opens a path below the directory.
func (t *fdTree) at(op, name string, flags uint64) (fd int, err error) {
	// RESOLVE_BENEATH refuses each link that leaves the directory on the way, even if it comes back.
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH}
	// EAGAIN: a directory in a path with ".." was renamed. The retries are limited in case that never ends.
	for range 16 {
		fd, err = retry(func() (int, error) { return unix.Openat2(t.fd, name, &how) })
		if err != unix.EAGAIN {
			break
		}
	}
	switch err {
	case nil:
		return fd, nil
	// openat2(2) reports with EXDEV that the path would leave the directory.
	case unix.EXDEV:
		return -1, ErrOutsideRoot
	}
	return -1, &fs.PathError{Op: op, Path: name, Err: err}
}

func (t *fdTree) info(name string, flags uint64) (fs.FileInfo, error) {
	fd, err := t.at("stat", name, unix.O_PATH|flags)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return fsys.File(fd, name).Stat()
}

func (t *fdTree) lstat(name string) (fs.FileInfo, error) { return t.info(name, unix.O_NOFOLLOW) }
func (t *fdTree) stat(name string) (fs.FileInfo, error)  { return t.info(name, 0) }

// isFile reports whether a path leads to a regular file. Only the type of the target is checked:
// [fdTree.open] refuses links that lead out. If all listed entries were files and directories, there is no
// further check: a file replaced since is opened without blocking, and its descriptor shows the type.
func (t *fdTree) isFile(name string) bool {
	if len(t.dirs) > 0 && !t.others {
		return true
	}
	_, err := t.markBelow(name, unix.S_IFREG)
	return err == nil
}

func (t *fdTree) open(name string) (fs.File, error) {
	fd, err := t.at("open", name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return fsys.File(fd, name), nil
}

func (t *fdTree) list(name string) ([]fs.DirEntry, error) {
	fd, err := t.at("open", name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	dir := fdFolder{fd: fd}
	defer dir.close()
	// Taken before the listing, so that a change during the listing changes the mark.
	was, err := dir.markBelow("", unix.S_IFDIR)
	if err != nil {
		return nil, err
	}
	t.dirs = append(t.dirs, dirMark{join("", name), was})
	var entries []fs.DirEntry
	err = dir.entries(func(raw []byte, kind byte) bool {
		e := dirEntry{string(raw), dir.mode(raw, kind)}
		t.others = t.others || e.mode&^fs.ModeDir != 0
		entries = append(entries, e)
		return len(entries) < maxList
	})
	if err != nil {
		return entries, err
	}
	if len(entries) == 0 {
		err = io.EOF // like ReadDir of an empty *os.File
	}
	return entries, err
}

// listed returns the directories of an index that was made with a tree, or nil if marks might not detect
// every change. All were listed after began; more means that some were left out.
func (x *Index) listed(t tree, began time.Time, more bool) *listedDirs {
	// Marks of directories and regular files show each change; the target of a link may change without them.
	f, ok := t.(*fdTree)
	if !ok || f.others || more || len(x.ignored) > 0 {
		return nil
	}
	for i := range f.dirs {
		f.dirs[i].mark = f.dirs[i].mark.readAt(began)
	}
	return &listedDirs{x, f.dirs}
}

type dirEntry entry

func (e dirEntry) Name() string               { return e.name }
func (e dirEntry) IsDir() bool                { return e.mode.IsDir() }
func (e dirEntry) Type() fs.FileMode          { return e.mode }
func (e dirEntry) Info() (fs.FileInfo, error) { return nil, errors.ErrUnsupported }

// known returns the cached index of the directory, or nil, and its record. untouched is false if some files
// changed since; the index is then valid only for the others.
func (s *Skill) known(t tree) (x *Index, value string, untouched bool) {
	f, ok := t.(*fdTree)
	if !ok || s.opts.Cache.empty() {
		return nil, "", false
	}
	top, err := f.markBelow("", unix.S_IFDIR)
	if err != nil {
		return nil, "", false
	}
	value, ok = s.opts.Cache.value(ofIndex, top.identity())
	if !ok || !strings.HasPrefix(value, s.subject()) {
		return nil, "", false
	}
	listed, same := s.unpackIndex(value)
	if listed == nil {
		return nil, "", false
	}
	if same && listed.unchanged(f.fdFolder) {
		s.state.listed.Store(listed)
		return listed.index, value, true
	}
	return listed.index, value, false
}

// fdFolder is a directory by its descriptor. It needs one system call per step of a scan, where os.Root needs
// several; a scan of thousands of skills spends its time in them. Like os.Root, it opens single components
// relative to their parent, and the kernel refuses links.
type fdFolder struct {
	fd     int
	counts uint64 // the device, if st_nlink includes subdirectories; else 0
}

const folderFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK

// openBase opens a directory with a trusted path.
func openBase(dir string) (folder, error) {
	fd, err := retry(func() (int, error) { return unix.Open(dir, folderFlags, 0) })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	f := fdFolder{fd: fd}
	var fsinfo unix.Statfs_t
	var stat unix.Stat_t
	if unix.Fstatfs(fd, &fsinfo) == nil && unix.Fstat(fd, &stat) == nil {
		// On Btrfs and overlayfs the link count of a directory does not include its subdirectories.
		switch fsinfo.Type {
		case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC:
			f.counts = uint64(stat.Dev)
		}
	}
	return f, nil
}

func (f fdFolder) look(path string) mark {
	var stat unix.Stat_t
	err := unix.Fstatat(f.fd, path, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if kind := stat.Mode & unix.S_IFMT; err != nil || kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return mark{}
	}
	return newMark(&stat)
}

// barren recognizes a directory without subdirectories by its link count of two, for its name and ".". So
// three cheap calls save opening and listing it.
func (f fdFolder) barren(name string) (mark, bool) {
	var stat, none unix.Stat_t
	if f.counts == 0 || component(name) != nil ||
		unix.Fstatat(f.fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return mark{}, false
	}
	// Another file system may be mounted there, whose link counts mean something else.
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR || stat.Nlink != 2 || uint64(stat.Dev) != f.counts {
		return mark{}, false
	}
	for _, file := range nestedFiles {
		if unix.Fstatat(f.fd, name+"/"+file, &none, unix.AT_SYMLINK_NOFOLLOW) != unix.ENOENT {
			return mark{}, false
		}
	}
	return newMark(&stat), true
}

func retry[T any](call func() (T, error)) (T, error) {
	for {
		if v, err := call(); err != unix.EINTR {
			return v, err
		}
	}
}

func (f fdFolder) close() { unix.Close(f.fd) }

func (f fdFolder) sub(name string) (folder, error) {
	if err := component(name); err != nil {
		return nil, err
	}
	fd, err := retry(func() (int, error) { return unix.Openat(f.fd, name, folderFlags, 0) })
	if err != nil {
		return nil, &fs.PathError{Op: "openat", Path: name, Err: err}
	}
	return fdFolder{fd: fd, counts: f.counts}, nil
}

func (f fdFolder) list(limit int) (entries []entry, more bool, err error) {
	err = f.entries(func(name []byte, kind byte) bool {
		mode := f.mode(name, kind)
		if !relevant(string(name), mode) {
			return true
		}
		more = len(entries) == limit
		if !more {
			entries = append(entries, entry{string(name), mode})
		}
		return !more
	})
	return entries, more, err
}

// listBuffers are buffers for getdents: a scan lists tens of thousands of directories.
var listBuffers = sync.Pool{New: func() any { return new([8192]byte) }}

// entries calls yield with the name and type of each entry until it returns false. The name is valid only
// during the call.
func (f fdFolder) entries(yield func(name []byte, kind byte) bool) error {
	buf := listBuffers.Get().(*[8192]byte)
	defer listBuffers.Put(buf)
	for {
		n, err := retry(func() (int, error) { return unix.Getdents(f.fd, buf[:]) })
		if n <= 0 || err != nil {
			return err
		}
		for rest := buf[:n]; len(rest) > 0; {
			// A struct linux_dirent64: inode and offset (8 bytes each), length (2), type (1), and the name up
			// to a NUL.
			size := binary.NativeEndian.Uint16(rest[16:18])
			name, _, _ := bytes.Cut(rest[8+8+2+1:size], []byte{0})
			if n := string(name); n != "." && n != ".." && !yield(name, rest[18]) {
				return nil
			}
			rest = rest[size:]
		}
	}
}

// mode returns the type of an entry. Some file systems do not report it in the listing.
func (f fdFolder) mode(name []byte, kind byte) fs.FileMode {
	if kind == unix.DT_UNKNOWN {
		var stat unix.Stat_t
		if unix.Fstatat(f.fd, string(name), &stat, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return fs.ModeIrregular
		}
		// DT_ values are the type bits of st_mode, shifted (IFTODT in glibc).
		kind = byte(stat.Mode & unix.S_IFMT >> 12)
	}
	switch kind {
	case unix.DT_REG:
		return 0
	case unix.DT_DIR:
		return fs.ModeDir
	case unix.DT_LNK:
		return fs.ModeSymlink
	}
	return fs.ModeIrregular
}

func (f fdFolder) read(name string, limit int64, buf []byte) ([]byte, mark, error) {
	if err := component(name); err != nil {
		return nil, mark{}, err
	}
	// The file was regular when it was listed. If it was replaced since, the flags keep open from following a
	// link or blocking on a pipe, and fstat shows the new type.
	fd, err := retry(func() (int, error) {
		return unix.Openat(f.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, mark{}, cause(&fs.PathError{Op: "open", Path: name, Err: err})
	}
	defer unix.Close(fd)
	m, err := fdFolder{fd: fd}.markBelow("", unix.S_IFREG)
	if err != nil {
		return nil, mark{}, err
	}
	data, err := readLimited(fsys.File(fd, name), m.size, limit, buf)
	return data, m, err
}

func newMark(stat *unix.Stat_t) mark {
	return mark{size: stat.Size, mtime: stat.Mtim.Nano(), ctime: stat.Ctim.Nano(), inode: stat.Ino,
		dev: uint64(stat.Dev), known: true}
}

func (f fdFolder) mark(name string) (mark, error) {
	if err := component(name); err != nil {
		return mark{}, err
	}
	return f.markBelow(name, unix.S_IFREG)
}

func markOf(info fs.FileInfo) mark {
	m := mark{size: info.Size(), mtime: info.ModTime().UnixNano()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		m.ctime, m.inode, m.dev, m.known = stat.Ctim.Nano(), stat.Ino, uint64(stat.Dev), true
	}
	return m
}

// untouched reports whether the directory of a skill has exactly the files of its index, and the mark of each
// vouches for its bytes. It is false for every skill that [Skill.Verify] would find changed, for other kinds
// of files, and on any error. It needs one system call per file and directory, because it runs at every load
// and every run: a directory is listed again only if its mark changed, as it does when an entry is created,
// removed or renamed.
func (s *Skill) untouched(ctx context.Context, index *Index) bool {
	if s.location.fsys != nil {
		return false
	}
	top, err := s.location.folder()
	if err != nil {
		return false
	}
	defer top.close()
	listed := s.state.listed.Load()
	if ctx.Err() == nil && listed != nil && listed.index == index && listed.unchanged(top) {
		return true
	}
	look := lookOver{index: index, seen: make([]bool, len(index.Files)), directories: s.opts.MaxFiles,
		now: s.opts.Now()}
	if !look.over(ctx, top, "", 0) || slices.Contains(look.seen, false) {
		return false
	}
	s.state.listed.Store(&listedDirs{index, look.dirs})
	return true
}

// folder opens the directory of a location without following links below the base.
func (p location) folder() (fdFolder, error) {
	if t, ok := p.openBeneath(); ok {
		return t.(*fdTree).fdFolder, nil
	}
	base, err := openBase(p.base)
	if err != nil {
		return fdFolder{}, err
	}
	defer base.close()
	top, err := descend(base, p.rel)
	if err != nil {
		return fdFolder{}, err
	}
	return top.(fdFolder), nil
}

// unchanged reports whether no directory and no file changed since they were last compared with the index.
// The mark of a directory is checked before the marks of its entries.
func (l *listedDirs) unchanged(top fdFolder) bool {
	for _, d := range l.dirs {
		now, err := top.markBelow(d.path, unix.S_IFDIR)
		if err != nil || !d.mark.vouches(now) {
			return false
		}
	}
	for i := range l.index.Files {
		now, err := top.markBelow(l.index.Files[i].Path, unix.S_IFREG)
		if err != nil || !l.index.marks[i].vouches(now) {
			return false
		}
	}
	return true
}

// markBelow returns the mark of a file or directory of a type at any depth; path "" is the folder itself.
func (f fdFolder) markBelow(path string, kind uint32) (mark, error) {
	var stat unix.Stat_t
	_, err := retry(func() (int, error) {
		if path == "" {
			return 0, unix.Fstat(f.fd, &stat)
		}
		return 0, unix.Fstatat(f.fd, path, &stat, unix.AT_SYMLINK_NOFOLLOW)
	})
	if err != nil {
		return mark{}, err
	}
	if stat.Mode&unix.S_IFMT != kind {
		return mark{}, ErrNotFile
	}
	return newMark(&stat), nil
}

// lookOver compares directories on disk with an index.
type lookOver struct {
	index       *Index
	seen        []bool // for each file of the index; during renames, a listing may name a file twice
	directories int    // how many more may be read
	dirs        []dirMark
	now         time.Time
}

// over reports whether a directory and its subdirectories match the index. above is its path with a trailing
// slash, or "" for the top.
func (l *lookOver) over(ctx context.Context, dir fdFolder, above string, depth int) bool {
	l.directories--
	if l.directories < 0 || depth > maxFileDepth || ctx.Err() != nil {
		return false
	}
	// Taken before the listing, so that a change during the listing changes the mark.
	was, err := dir.markBelow("", unix.S_IFDIR)
	if err != nil {
		return false
	}
	l.dirs = append(l.dirs, dirMark{strings.TrimSuffix(above, "/"), was.readAt(l.now)})
	same := true
	err = dir.entries(func(raw []byte, kind byte) bool {
		name := string(raw)
		switch {
		case Ignored(name):
		case kind == unix.DT_DIR:
			below, err := dir.sub(name)
			same = err == nil
			if same {
				same = l.over(ctx, below.(fdFolder), above+name+"/", depth+1)
				below.close()
			}
		default:
			at := l.index.at(above + name)
			now, err := dir.mark(name) // an error unless it is a regular file
			same = at >= 0 && err == nil && l.index.marks[at].vouches(now)
			if same {
				l.seen[at] = true
			}
		}
		return same
	})
	return same && err == nil
}
