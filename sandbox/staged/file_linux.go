package staged

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

// maxPending is how many files are made durable at a time: one after the other each would wait for the
// disk, and each is an open file.
const maxPending = 32

// An incoming file is a whole copy that is not in its place yet.
type incoming struct {
	to         *dir
	name, temp string
	size       int64 // of the layer's file
	named      bool  // it is in to as temp
	f          *os.File
	w          sandbox.Write
	err        error
}

// file copies a file of the layer next to its place.
func (a *applier) file(from, to *dir, name, p string, size int64) {
	in := &incoming{
		to: to, name: name, temp: ".skillsd-" + rand.Text(), size: size,
		w: sandbox.Write{Path: p, Op: "write"},
	}
	if err := a.fetch(in, from); err != nil {
		in.w.Refused = reason(err)
		a.lost.sizes[size] = true
		a.add(in.w)
		return
	}
	a.pending = append(a.pending, in)
	if len(a.pending) == maxPending {
		a.flush()
	}
}

func (a *applier) fetch(in *incoming, from *dir) (err error) {
	src, err := from.open(in.name)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := src.Stat()
	switch {
	case err != nil:
		return err
	case info.Size() > a.left:
		return errLarge
	}
	// Opened before the copy, so that rights are taken over from the file that was there when it began.
	old := in.replaced()
	defer old.close()
	if err := in.create(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = in.f.Close()
			in.discard()
		}
	}()
	sum := sha256.New()
	var whole bytes.Buffer
	to := io.MultiWriter(in.f, sum)
	if a.Workspace.Withhold != nil {
		// A secret may lie across any two parts.
		to = io.MultiWriter(in.f, sum, &whole)
	}
	in.w.Size, err = io.Copy(to, io.LimitReader(src, a.left+1))
	switch {
	case err != nil:
		return err
	case in.w.Size > a.left:
		return errLarge
	case a.Workspace.Withhold != nil && a.Workspace.Withhold(whole.Bytes()):
		return errSecret
	}
	a.left -= in.w.Size
	if a.couldRead(src) {
		in.w.Digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	}
	if err := a.own(in.f, src, in.to, old); err != nil {
		return err
	}
	keepTime(in.f, info.ModTime(), old)
	return nil
}

// create makes a file without a name, of which a server that is killed leaves nothing, or one with a
// name where the file system has no such files.
func (in *incoming) create() error {
	err := in.createAs(".", unix.O_TMPFILE)
	if err != nil {
		err = in.createAs(in.temp, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW)
		in.named = err == nil
	}
	return err
}

func (in *incoming) createAs(name string, flags int) error {
	fd, err := unix.Openat(int(in.to.Fd()), name, flags|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	in.f = os.NewFile(uintptr(fd), in.temp)
	return err
}

// enter puts the file in its place, where it replaces another file in one step.
func (in *incoming) enter() error {
	dir := int(in.to.Fd())
	if !in.named {
		// Only a file that has a name can replace another.
		err := unix.Linkat(unix.AT_FDCWD, procPath(in.f), dir, in.temp, unix.AT_SYMLINK_FOLLOW)
		if err != nil {
			return err
		}
		in.named = true
	}
	return unix.Renameat(dir, in.temp, dir, in.name)
}

func (in *incoming) discard() {
	if in.named {
		_ = in.to.remove(in.temp, false)
	}
}

// flush puts the pending files in their places once their bytes are on disk: whatever ends the server
// or the machine then, each file is the old or the new one, whole.
func (a *applier) flush() {
	stop := a.ctx.Err() != nil
	for _, in := range a.pending {
		if stop {
			in.err = a.stopped()
			continue
		}
		// The disk can begin with all while the first is waited for; errors come from Sync.
		_ = unix.SyncFileRange(int(in.f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	}
	for _, in := range a.pending {
		if in.err == nil {
			in.err = in.f.Sync()
		}
	}
	for _, in := range a.pending {
		if in.err == nil {
			in.err = a.makeWay(in)
		}
		if in.err == nil {
			in.err = in.enter()
		}
		if in.err != nil {
			in.w.Refused, in.w.Digest = reason(in.err), ""
			a.lost.sizes[in.size] = true
			in.discard()
		}
		_ = in.f.Close() // after Sync nothing is left that could fail
		a.add(in.w)
	}
	a.pending = a.pending[:0]
	for _, d := range a.held {
		_ = d.Close()
	}
	a.held = a.held[:0]
}

// makeWay looks at what is in the place of a file, and deletes it if it is a directory.
func (a *applier) makeWay(in *incoming) error {
	e, err := in.to.stat(in.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case e.Mnt_id != in.to.mount:
		return errMounted
	case e.isDir() && !a.remove(in.to, in.name, in.w.Path, nil):
		return errIsDir
	case !e.isDir() && a.foreign(&e):
		return errChanged
	}
	a.noteUnlink(&e)
	return nil
}

// release closes a directory, and with it gives up its lock, once no file waits to be put in it.
func (a *applier) release(d *dir) {
	a.held = append(a.held, d)
	if len(a.pending) == 0 || len(a.held) >= maxPending {
		a.flush()
	}
}
