package staged

import (
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A dir is an open directory of the layer or of the workspace. Its entries are accessed by single names;
// links are not followed and other mounts are not entered. A command does not see the mounts below a staged
// workspace, so none of its changes is meant for them.
type dir struct {
	*os.File
	mount uint64
	entry // the directory itself, as of when it was opened or refreshed
}

// openDir opens the directory of a handle again.
func openDir(f *os.File) (*dir, error) {
	d, err := openAt(int(f.Fd()), ".")
	if err != nil {
		return nil, err
	}
	if d.Mask&unix.STATX_MNT_ID == 0 {
		_ = d.Close()
		return nil, errors.ErrUnsupported
	}
	return d, nil
}

func openAt(parent int, name string) (*dir, error) {
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil, errNotDir
	case err != nil:
		return nil, err
	}
	d := &dir{File: os.NewFile(uintptr(fd), name)}
	if err := d.refresh(); err != nil {
		_ = d.Close()
		return nil, err
	}
	d.mount = d.Mnt_id
	return d, nil
}

// refresh reads the attributes of the directory again.
func (d *dir) refresh() (err error) {
	d.entry, err = statAt(int(d.Fd()), "", unix.AT_EMPTY_PATH)
	return err
}

// enter opens a directory in d, or d again for ".".
func (d *dir) enter(name string) (*dir, error) {
	sub, err := openAt(int(d.Fd()), name)
	if err != nil {
		return nil, err
	}
	if sub.mount != d.mount {
		_ = sub.Close()
		return nil, errMounted
	}
	return sub, nil
}

// reach opens the directory at a path below d, or d again for "".
func (d *dir) reach(p string) (*dir, error) {
	at, err := d.enter(".")
	for name := range strings.SplitSeq(p, "/") {
		if err != nil || name == "" {
			break
		}
		parent := at
		at, err = parent.enter(name)
		_ = parent.Close()
	}
	return at, err
}

// parent opens the directory of the entry at a path below d, and returns the name of the entry there.
func (d *dir) parent(p string) (in *dir, name string, err error) {
	above, name := path.Split(p)
	in, err = d.reach(strings.TrimSuffix(above, "/"))
	return in, name, err
}

// names returns the current names in d, sorted.
func (d *dir) names() ([]string, error) {
	if _, err := d.Seek(0, 0); err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// stat returns the entry with the given name in d.
func (d *dir) stat(name string) (entry, error) { return statAt(int(d.Fd()), name, 0) }

// open opens a regular file.
func (d *dir) open(name string) (*os.File, error) {
	// With O_NONBLOCK, a named pipe does not block the server.
	fd, err := unix.Openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	if !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, errNotRegular
	}
	return f, nil
}

func (d *dir) readlink(name string) (string, error) {
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(int(d.Fd()), name, buf)
	return string(buf[:max(n, 0)]), err
}

// remove deletes a file, a link or an empty directory.
func (d *dir) remove(name string, directory bool) error {
	flags := 0
	if directory {
		flags = unix.AT_REMOVEDIR
	}
	return unix.Unlinkat(int(d.Fd()), name, flags)
}

// An entry is the attributes of a file or directory.
type entry struct{ unix.Statx_t }

func statAt(parent int, name string, flags int) (e entry, err error) {
	// A look at a name must not mount a file system.
	flags |= unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	err = unix.EINTR
	for errors.Is(err, unix.EINTR) {
		err = unix.Statx(parent, name, flags, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &e.Statx_t)
	}
	return e, err
}

func (e *entry) isDir() bool { return e.Mode&unix.S_IFMT == unix.S_IFDIR }

func (e *entry) isRegular() bool { return e.Mode&unix.S_IFMT == unix.S_IFREG }

func (e *entry) isLink() bool { return e.Mode&unix.S_IFMT == unix.S_IFLNK }

// isWhiteout reports whether an entry of the layer marks a deletion.
func (e *entry) isWhiteout() bool {
	return e.Mode&unix.S_IFMT == unix.S_IFCHR && e.Rdev_major == 0 && e.Rdev_minor == 0
}

func (e *entry) permissions() uint32 { return uint32(e.Mode) & 0o777 }

func (e *entry) changedSince(t time.Time) bool {
	return time.Unix(e.Ctime.Sec, int64(e.Ctime.Nsec)).After(t)
}

// An inode identifies a file independently of its names.
type inode struct {
	major, minor uint32
	number       uint64
}

func (e *entry) inode() inode { return inode{e.Dev_major, e.Dev_minor, e.Ino} }

// A refusal is the reason why a change is not applied, in words for a client.
type refusal string

func (r refusal) Error() string { return string(r) }

const (
	errNotDir     = refusal("not a directory")
	errNotRegular = refusal("not a regular file or directory")
	errMounted    = refusal("a file system is mounted there")
	errChanged    = refusal("changed while the script ran")
	errGit        = refusal("would make or change a git repository")
	errHolds      = refusal("holds a protected name")
	errHoldsPath  = refusal("holds a protected path")
	errName       = refusal("protected name")
	errSecret     = refusal("holds a secret")
	errPath       = refusal("protected path")
	errPrint      = refusal("name with control or invalid characters")
	errIsDir      = refusal("a directory is in its place")
	errDeep       = refusal("what is below is too deep")
	errMany       = refusal("there are more changes than are applied")
	errLarge      = refusal("all changes together are too large")
	errLate       = refusal("applying took longer than the run may take")
	errCancel     = refusal("the run was cancelled before this was applied")
	errLocked     = refusal("another run's changes are being applied there, " +
		"or something else has locked the directory")
	errMode      = refusal("a directory that was there keeps its mode")
	errOwner     = refusal("the file that it replaces belongs to another user or group")
	errMoved     = refusal("it may be what was moved to where a change was refused")
	errUnread    = refusal("the change cannot be read")
	errUnreadDir = refusal("the changes cannot be read")
)

// reason returns the public part of an error: the failure without paths. It returns "" for nil.
func reason(err error) string {
	if err == nil {
		return ""
	}
	if r, ok := errors.AsType[refusal](err); ok {
		return string(r)
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return "cannot be applied"
}
