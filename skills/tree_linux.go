package skills

import (
	"errors"
	"io"
	"io/fs"
	"strings"
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
