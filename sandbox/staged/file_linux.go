package staged

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

// maxWaiting is how many files are made durable at a time: one after the other each would wait for
// the disk, and each is an open file.
const maxWaiting = 32

// An incoming file is a whole copy beside the place it is for.
type incoming struct {
	to         *place
	name, temp string
	named      bool // and so there for everyone, as temp
	f          *os.File
	w          sandbox.Write
	err        error
}

func (a *applier) file(from *os.Root, to *place, name, p string, size int64) {
	in := incoming{to: to, name: name, temp: ".skillsd-" + rand.Text(), w: sandbox.Write{Path: p, Op: "write"}}
	if err := a.fetch(&in, from); err != nil {
		in.w.Refused = reason(err)
		a.lost.file(p, size)
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
	old := in.replaced()
	defer old.close()
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
	if err := a.own(f, src, in.to, old); err != nil {
		return err
	}
	keepTime(f, info.ModTime(), old)
	return nil
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
		a.finish(p)
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
		a.lost.file(in.w.Path, in.w.Size)
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
		a.finish(p)
		p.close()
		return
	}
	a.held = append(a.held, p)
	if len(a.held) == maxWaiting {
		a.flush()
	}
}
