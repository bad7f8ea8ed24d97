package staged

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

// maxBelow is how many directories deep the deletion of a workspace's directory goes.
const maxBelow = 200

// lockEvery is how often a directory is tried whose lock somebody holds.
const lockEvery = 5 * time.Millisecond

// Why an entry of the workspace is left alone.
var (
	errNotDir  = errors.New("not a directory")
	errMounted = errors.New("a file system is mounted there")
	errChanged = errors.New("changed while the script ran")
	errGit     = errors.New("would make or change a git repository")
	errHolds   = errors.New("holds a protected name")
	errIsDir   = errors.New("a directory is in its place")
	errDeep    = errors.New("what is below is too deep")
	errLate    = errors.New("applying took longer than the run may take")
	errCancel  = errors.New("the run was cancelled before this was applied")
	errShared  = errors.New("a directory keeps its owner's rights and becomes writable for nobody else")
	errMoved   = errors.New("it may be what was moved to where a change was refused")
	errTop     = errors.New("the workspace itself keeps its mode")
)

// A place is a directory of the workspace. Nothing of another mount is reached through it: a command
// does not see what is mounted below a staged workspace, so none of its changes is meant for that.
type place struct {
	root  *os.Root
	self  *os.File
	mount uint64
	was   *entry // the directory itself, as it was entered
	then  mode   // what it gets when all is in it
}

// An entry is what stands in a place, links not followed.
type entry struct {
	unix.Statx_t
	mounted bool
}

func (e *entry) isDir() bool { return e.Mode&unix.S_IFMT == unix.S_IFDIR }

func (e *entry) isRegular() bool { return e.Mode&unix.S_IFMT == unix.S_IFREG }

func (e *entry) changedSince(t time.Time) bool {
	return time.Unix(e.Ctime.Sec, int64(e.Ctime.Nsec)).After(t)
}

// An inode is a file under whatever name.
type inode struct {
	major, minor uint32
	number       uint64
}

func (e *entry) inode() inode { return inode{e.Dev_major, e.Dev_minor, e.Ino} }

// foreign reports whether somebody else changed an entry since the run began: taking one of its other
// names away changes a file too.
func (a *applier) foreign(e *entry) bool { return e.changedSince(a.Began) && !a.unlinked[e.inode()] }

// unlink notes that an entry is about to lose a name.
func (a *applier) unlink(e *entry) {
	if !e.isDir() && e.Nlink > 1 {
		a.unlinked[e.inode()] = true
	}
}

func openPlace(dir *os.File) (*place, error) {
	root, err := rootOf(dir)
	if err != nil {
		return nil, err
	}
	return newPlace(root)
}

// newPlace owns root from then on.
func newPlace(root *os.Root) (*place, error) {
	self, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	p := &place{root: root, self: self}
	e, err := p.statx("", unix.AT_EMPTY_PATH)
	if err == nil && e.Mask&unix.STATX_MNT_ID == 0 {
		err = unix.ENOSYS
	}
	if err != nil {
		p.close()
		return nil, err
	}
	p.mount, p.was = e.Mnt_id, e
	return p, nil
}

func (p *place) close() { _, _ = p.self.Close(), p.root.Close() }

func (p *place) statx(name string, flags int) (*entry, error) {
	e := &entry{}
	flags |= unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	for {
		err := unix.Statx(int(p.self.Fd()), name, flags, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &e.Statx_t)
		if !errors.Is(err, unix.EINTR) {
			return e, err
		}
	}
}

// stat looks at an entry by its name.
func (p *place) stat(name string) (*entry, error) {
	e, err := p.statx(name, 0)
	e.mounted = err == nil && e.Mnt_id != p.mount
	return e, err
}

// enter opens a directory that is no link and was none when it was opened.
func (p *place) enter(name string) (*place, error) {
	want, err := p.stat(name)
	switch {
	case err != nil:
		return nil, err
	case want.mounted:
		return nil, errMounted
	case !want.isDir():
		return nil, errNotDir
	}
	root, err := p.root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	sub, err := newPlace(root)
	if err != nil {
		return nil, err
	}
	got, err := sub.statx("", unix.AT_EMPTY_PATH)
	switch {
	case err != nil:
	case sub.mount != p.mount:
		err = errMounted
	case got.Ino != want.Ino || got.Dev_major != want.Dev_major || got.Dev_minor != want.Dev_minor:
		err = errNotDir
	}
	if err != nil {
		sub.close()
		return nil, err
	}
	return sub, nil
}

func (p *place) has(name string) bool {
	_, err := p.stat(name)
	return err == nil
}

// lock keeps others from applying to the same directory until it is closed: each of two runs may
// leave a harmless half of what both together must not make. Other servers know of the lock too, and
// so do those of a workspace inside this one. File systems without locks are used without.
func (a *applier) lock(dir *place) (refused string) {
	if a.Outcome != sandbox.Exited {
		return ""
	}
	again := time.NewTicker(lockEvery)
	defer again.Stop()
	for {
		err := unix.Flock(int(dir.self.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return ""
		}
		select {
		case <-a.ctx.Done():
			return "another run's changes are being applied there, or something else has locked the directory"
		case <-again.C:
		}
	}
}

// stopped is why nothing more is applied once the applier's context has ended.
func (a *applier) stopped() error {
	if errors.Is(a.ctx.Err(), context.DeadlineExceeded) {
		return errLate
	}
	return errCancel
}

// reason is the public part of an error: what failed, without paths.
func reason(err error) string {
	if errors.Is(err, errTooLarge) {
		return "all changes together are too large"
	}
	for _, known := range []error{errNotDir, errMounted, errChanged, errGit, errHolds, errIsDir, errDeep, errLate, errCancel, errShared, errTop, errMoved} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, fs.ErrNotExist):
		return "no such file or directory"
	}
	return "cannot be applied"
}

var errTooLarge = errors.New("all changes together are too large")

// rootOf opens a directory handle for access that cannot leave it.
func rootOf(dir *os.File) (*os.Root, error) {
	return os.OpenRoot("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
}

// gitLike reports whether the directory would look like a repository without a .git, whose
// configuration git obeys wherever it is called in it: HEAD, and beside it either the objects and
// references or the name of the directory that has them.
func gitLike(from []fs.DirEntry, to *place) bool {
	has := func(name string) bool {
		for _, e := range from {
			if fold(e.Name()) == fold(name) {
				return true
			}
		}
		return to != nil && to.has(name)
	}
	return has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}
