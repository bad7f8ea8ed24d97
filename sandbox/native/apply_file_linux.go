package native

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

// maxWaiting is how many files are made durable at a time: one after the other each would wait for
// the disk, and each is an open file.
const maxWaiting = 32

const accessList = "system.posix_acl_access"

// An incoming file is a whole copy beside the place it is for.
type incoming struct {
	to         *place
	name, temp string
	named      bool // and so there for everyone, as temp
	f          *os.File
	w          sandbox.Write
	err        error
}

func (a *applier) file(from *os.Root, to *place, name, p string) {
	in := incoming{to: to, name: name, temp: ".skillsd-" + rand.Text(), w: sandbox.Write{Path: p, Op: "write"}}
	if err := a.fetch(&in, from); err != nil {
		in.w.Refused = reason(err)
		a.add(in.w)
		return
	}
	a.waiting = append(a.waiting, in)
	if len(a.waiting) == maxWaiting {
		a.flush()
	}
}

// fetch copies a file of the layer.
func (a *applier) fetch(in *incoming, from *os.Root) (err error) {
	src, err := from.OpenFile(in.name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	info, err := src.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	case info.Size() > a.left:
		return errTooLarge
	}
	var old uint32
	if e, err := in.to.stat(in.name); err == nil && e.Mode&unix.S_IFMT == unix.S_IFREG {
		old = uint32(e.Mode)
	}
	f, err := in.create()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			in.discard()
		}
	}()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(src, a.left+1))
	if err == nil && n > a.left {
		err = errTooLarge
	}
	if err != nil {
		return err
	}
	a.left -= n
	in.f, in.w.Size = f, n
	if a.wasReadable(src, info) {
		in.w.Digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	}
	return a.own(f, src, in.to, old)
}

// create makes a file without a name, of which a server that is killed leaves nothing, or a named one
// where the file system has no such files.
func (in *incoming) create() (*os.File, error) {
	fd, err := unix.Openat(int(in.to.self.Fd()), ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), in.temp), nil
	}
	in.named = true
	return in.to.root.OpenFile(in.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// enter puts the file in its place, where one file takes the place of another at once.
func (in *incoming) enter() error {
	if !in.named {
		// Only a file that has a name can take another's place.
		from := "/proc/self/fd/" + strconv.Itoa(int(in.f.Fd()))
		if err := unix.Linkat(unix.AT_FDCWD, from, int(in.to.self.Fd()), in.temp, unix.AT_SYMLINK_FOLLOW); err != nil {
			return err
		}
		in.named = true
	}
	return in.to.root.Rename(in.temp, in.name)
}

func (in *incoming) discard() {
	if in.named {
		_ = in.to.root.Remove(in.temp)
	}
}

// wasReadable reports whether the command could read a file of the layer: a server of root's reads
// also those of others that the command has only moved, and a digest tells what is in them.
func (a *applier) wasReadable(src *os.File, info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !a.root || ok && int(st.Uid) == a.owner:
		return true
	case !ok || hasList(src):
		return false
	case int(st.Gid) == a.group:
		return st.Mode&0o040 != 0
	}
	return st.Mode&0o004 != 0
}

func hasList(f *os.File) bool {
	n, err := unix.Fgetxattr(int(f.Fd()), accessList, nil)
	return err == nil && n > 0
}

// own gives f, which is new in a directory, its owner, mode and access list. What the command made
// belongs to the directory's owner and is writable by nobody else, unless the file whose place it
// takes was. What belonged to somebody else, and was only moved or written to, stays as it was.
func (a *applier) own(f, src *os.File, in *place, old uint32) error {
	var st, made unix.Stat_t
	if err := errors.Join(unix.Fstat(int(src.Fd()), &st), unix.Fstat(int(f.Fd()), &made)); err != nil {
		return err
	}
	mode := st.Mode&0o755 | st.Mode&old&0o022
	if made.Mode&unix.S_IFMT == unix.S_IFDIR {
		mode |= 0o700 | made.Mode&unix.S_ISGID
	}
	if !a.root {
		return unix.Fchmod(int(f.Fd()), mode)
	}
	uid, gid := int(st.Uid), int(st.Gid)
	foreign := uid != a.owner
	if foreign {
		mode = st.Mode&0o777 | made.Mode&unix.S_ISGID
	} else {
		e, err := in.statx("", unix.AT_EMPTY_PATH)
		if err != nil {
			return err
		}
		uid, gid = int(e.Uid), int(e.Gid)
	}
	if err := f.Chown(uid, gid); err != nil {
		return err
	}
	if foreign {
		if err := copyList(f, src); err != nil {
			return err
		}
	}
	return unix.Fchmod(int(f.Fd()), mode)
}

// copyList carries an access list over: without it the mode's bits for the group, which are the
// list's mask, would be the group's rights.
func copyList(f, src *os.File) error {
	if !hasList(src) {
		err := unix.Fremovexattr(int(f.Fd()), accessList)
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
			return nil
		}
		return err
	}
	buf := make([]byte, 64<<10)
	n, err := unix.Fgetxattr(int(src.Fd()), accessList, buf)
	if err != nil {
		return err
	}
	return unix.Fsetxattr(int(f.Fd()), accessList, buf[:n], 0)
}

// flush puts the files that wait in their places once their bytes are on disk: whatever ends the
// server then, each file is the old or the new one, whole.
func (a *applier) flush() {
	stop := a.ctx.Err() != nil
	for i := range a.waiting {
		if !stop {
			// The disk can begin with all while the first is waited for; the error comes from Sync.
			_ = unix.SyncFileRange(int(a.waiting[i].f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
		}
	}
	for i := range a.waiting {
		in := &a.waiting[i]
		if stop {
			in.err = a.stopped()
		} else {
			in.err = in.f.Sync()
		}
	}
	for i := range a.waiting {
		a.place(&a.waiting[i])
	}
	a.waiting = a.waiting[:0]
	for _, p := range a.held {
		p.close()
	}
	a.held = a.held[:0]
}

func (a *applier) place(in *incoming) {
	if in.err == nil {
		in.err = a.clear(in)
	}
	if in.err == nil {
		in.err = in.enter()
	}
	if in.err != nil {
		in.w.Refused, in.w.Digest = reason(in.err), ""
		in.discard()
	}
	_ = in.f.Close() // after Sync there is nothing left to fail
	a.add(in.w)
}

// clear makes way for a file.
func (a *applier) clear(in *incoming) error {
	e, err := in.to.stat(in.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case e.mounted:
		return errMounted
	case e.isDir() && !a.remove(in.to, in.name, in.w.Path, ""):
		return errIsDir
	case !e.isDir() && a.foreign(e):
		return errChanged
	}
	a.unlink(e)
	return nil
}

// release closes a directory once no file waits to be put in it.
func (a *applier) release(p *place) {
	if len(a.waiting) == 0 {
		p.close()
		return
	}
	a.held = append(a.held, p)
	if len(a.held) == maxWaiting {
		a.flush()
	}
}
