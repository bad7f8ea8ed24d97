package skills

import (
	"bytes"
	"context"
	"encoding/binary"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/skills/store/fsys"
)

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
