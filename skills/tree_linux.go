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

// fdTree is the directory of a skill by its descriptor. The kernel keeps links within it, so that a file is
// opened with one system call, where os.Root needs several for each directory on the way.
type fdTree struct {
	fdFolder
	dirs   []dirMark // that were listed, as they were before
	others bool      // something was listed that is neither a file nor a directory
}

// openBeneath opens the directory of a place. It reports false if the place must be opened by other means:
// the kernel does not know how, or there is a link on the way.
func (p place) openBeneath() (tree, bool) {
	if p.skillFile != "" {
		return nil, false
	}
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := retry(func() (int, error) { return unix.Openat2(unix.AT_FDCWD, p.onDisk(), &how) })
	if err != nil {
		return nil, false
	}
	return &fdTree{fdFolder: fdFolder{fd: fd}}, true
}

// at opens what a path below the directory leads to.
func (t *fdTree) at(op, name string, flags uint64) (fd int, err error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH}
	// EAGAIN: something was renamed on a way that has ".."; whoever renames all the time gets the error.
	for range 16 {
		fd, err = retry(func() (int, error) { return unix.Openat2(t.fd, name, &how) })
		if err != unix.EAGAIN {
			break
		}
	}
	switch err {
	case nil:
		return fd, nil
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

// isFile reports whether a path leads to a regular file. Only the type of a link's target is looked at:
// [fdTree.open] refuses links on the way. What was listed is not looked at again if all were files and
// directories: a file replaced since is opened without waiting, and its descriptor shows what it is.
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
	// Before the listing, so that a change during it changes the mark.
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
		err = io.EOF // as of an empty *os.File
	}
	return entries, err
}

// listed returns the directories of an index that was made with a tree, nil if a change of the files might
// not be a change of their marks or those of their directories. All were listed after began; more means that
// some were left out.
func (x *Index) listed(t tree, began time.Time, more bool) *listedDirs {
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

// known returns the index that the cache has of the directory, or nil, and its record. If somebody touched
// the skill since, the index only has the files that were not touched.
func (s *Skill) known(t tree) (x *Index, value string, untouched bool) {
	f, ok := t.(*fdTree)
	if !ok || s.opts.Cache.empty() {
		return nil, "", false
	}
	top, err := f.markBelow("", unix.S_IFDIR)
	if err != nil {
		return nil, "", false
	}
	value, ok = s.opts.Cache.value(ofIndex, top.place())
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
