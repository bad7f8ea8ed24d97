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

// maxPending is how many files are synced together: one by one, each would wait for the disk, but each needs
// an open file.
const maxPending = 32

// An incoming file is a complete copy that does not have its final name yet.
type incoming struct {
	to         *dir
	name, temp string
	size       int64 // size of the layer's file
	named      bool  // it has the name temp in to
	f          *os.File
	digest     string
	w          sandbox.Write
	err        error
}

// file copies a file of the layer into its target directory.
func (a *applier) file(from, to *dir, name, p string, size int64) {
	in := &incoming{
		to: to, name: name, temp: ".skillsd-" + rand.Text(), size: size,
		w: sandbox.Write{Path: p, Op: "write"},
	}
	if err := a.fetch(in, from); err != nil {
		in.w.Refused = reason(err)
		a.unapplied.sizes[size] = true
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
	// This is opened before the copy, so that owner and mode come from the file that existed when the copy
	// began.
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
		// The whole content is needed, because a secret may cross the boundary of two parts.
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
	in.digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	if a.couldRead(src) {
		in.w.Digest = in.digest
	}
	if err := a.own(in.f, src, in.to, old); err != nil {
		return err
	}
	keepTime(in.f, info.ModTime(), old)
	return nil
}

// create creates an unnamed file, which vanishes with a killed server, or a named file where the file system
// does not support unnamed ones.
func (in *incoming) create() error {
	if in.createAs(".", unix.O_TMPFILE) == nil {
		return nil
	}
	err := in.createAs(in.temp, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW)
	in.named = err == nil
	return err
}

func (in *incoming) createAs(name string, flags int) error {
	fd, err := unix.Openat(int(in.to.Fd()), name, flags|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	in.f = os.NewFile(uintptr(fd), in.temp)
	return nil
}

// enter gives the file its final name, atomically replacing another file.
func (in *incoming) enter() error {
	dir := int(in.to.Fd())
	if !in.named {
		// Only a named file can replace another.
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

// flush gives the pending files their final names once their bytes are on disk. After a crash, each file is
// the complete old or new one.
func (a *applier) flush() {
	stop := a.ctx.Err() != nil
	for _, in := range a.pending {
		if stop {
			in.err = a.stopped()
			continue
		}
		// This starts writing all files, while the first is waited for. Sync reports the errors.
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
			a.unapplied.sizes[in.size] = true
			in.discard()
		} else if e, err := statAt(int(in.f.Fd()), "", unix.AT_EMPTY_PATH); err == nil {
			st := e.state()
			st.Digest = in.digest
			a.made[in.w.Path] = st
		}
		// After Sync, nothing can fail.
		_ = in.f.Close()
		a.add(in.w)
	}
	a.pending = a.pending[:0]
	for _, d := range a.held {
		_ = d.Close()
	}
	a.held = a.held[:0]
}

// makeWay checks the entry that a file replaces, and deletes it if it is a directory.
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

// release closes a directory, which releases its lock, once no pending file belongs in it.
func (a *applier) release(d *dir) {
	a.held = append(a.held, d)
	if len(a.pending) == 0 || len(a.held) >= maxPending {
		a.flush()
	}
}
