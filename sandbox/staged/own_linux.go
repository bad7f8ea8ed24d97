package staged

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const accessList = "system.posix_acl_access"

// An outgoing file is a regular one whose place another takes. A nil one is none.
type outgoing struct {
	*entry
	f *os.File // opened as a path, which needs no right to read it
}

// replaced finds the file whose place an incoming one takes.
func (in *incoming) replaced() *outgoing {
	fd, err := unix.Openat(int(in.to.self.Fd()), in.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	out := &outgoing{f: os.NewFile(uintptr(fd), in.name)}
	if out.entry, err = (&place{self: out.f}).statx("", unix.AT_EMPTY_PATH); err != nil || out.Mode&unix.S_IFMT != unix.S_IFREG {
		out.close()
		return nil
	}
	return out
}

func (o *outgoing) close() {
	if o != nil {
		_ = o.f.Close()
	}
}

// wasReadable reports whether the command could read a file of the layer: a server of root's reads
// also those of others that the command has only moved, and a digest tells what is in them.
func (a *applier) wasReadable(src *os.File, info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !a.root || ok && int(st.Uid) == a.UID:
		return true
	case !ok || hasList(src):
		return false
	case int(st.Gid) == a.GID:
		return st.Mode&0o040 != 0
	}
	return st.Mode&0o004 != 0
}

// own gives f, which is new in a directory, its owner, mode and access list. What the command made
// belongs to whom the file belonged to whose place it takes, else to the directory's owner, and is
// writable by nobody else, unless that file was. What belonged to somebody else, and was only moved or
// written to, stays as it was.
func (a *applier) own(f, src *os.File, in *place, old *outgoing) error {
	var st, made unix.Stat_t
	if err := errors.Join(unix.Fstat(int(src.Fd()), &st), unix.Fstat(int(f.Fd()), &made)); err != nil {
		return err
	}
	if a.root && int(st.Uid) != a.UID {
		err := errors.Join(f.Chown(int(st.Uid), int(st.Gid)), CopyAccessList(f, src))
		return errors.Join(err, unix.Fchmod(int(f.Fd()), st.Mode&0o777|made.Mode&unix.S_ISGID))
	}
	kept, err := a.give(f, in, old)
	if err != nil {
		return err
	}
	mode := st.Mode & 0o755
	if made.Mode&unix.S_IFMT == unix.S_IFDIR {
		mode |= 0o700 | made.Mode&unix.S_ISGID
	}
	if old != nil {
		mode |= st.Mode & uint32(old.Mode) & 0o022
		if err := unix.Fstat(int(f.Fd()), &made); err != nil {
			return err
		}
		switch same := made.Uid == old.Uid && made.Gid == old.Gid; {
		case same:
			if err := CopyAccessList(f, old.f); err != nil {
				return err
			}
		case hasList(old.f):
			mode &^= 0o070 // what the list's mask was
		case made.Gid != old.Gid:
			mode &^= 0o020
		}
	}
	if kept {
		mode = uint32(old.Mode) & 0o777
	}
	return unix.Fchmod(int(f.Fd()), mode)
}

// give gives a file that the command made its owner and group, as far as the server may. It reports
// whether those are somebody's whose file the command could write to and nothing else: programs trust a
// file by its owner if nobody else may write to it, and so its mode must stay.
func (a *applier) give(f *os.File, in *place, old *outgoing) (kept bool, err error) {
	if !a.root {
		if old != nil {
			_ = f.Chown(-1, int(old.Gid)) // if that is a group of the server's
		}
		return false, nil
	}
	e, err := in.statx("", unix.AT_EMPTY_PATH)
	if err != nil {
		return false, err
	}
	if old == nil && e.Mode&unix.S_ISVTX != 0 {
		return false, f.Chown(a.UID, a.GID) // there the owner tells who made a file
	}
	if old != nil && (old.Uid == e.Uid || a.writable(old)) {
		kept = old.Uid != e.Uid && int(old.Uid) != a.UID
		e = old.entry
	}
	return kept, f.Chown(int(e.Uid), int(e.Gid))
}

// writable reports whether the command could have put its bytes into a file under the file's own
// owner. No others are to look as if that owner had written them.
func (a *applier) writable(o *outgoing) bool {
	switch {
	case int(o.Uid) == a.UID:
		return o.Mode&0o200 != 0
	case hasList(o.f):
		return false
	case int(o.Gid) == a.GID:
		return o.Mode&0o020 != 0
	}
	return o.Mode&0o002 != 0
}

// keepTime gives f the time the command's file has, which tools compare, unless it is later than
// now, before all that is kept of times, or would hide that there is something else than before.
func keepTime(f *os.File, at time.Time, old *outgoing) {
	if at.Before(time.Unix(0, 0)) || at.After(time.Now()) || old != nil && !at.After(time.Unix(old.Mtime.Sec, int64(old.Mtime.Nsec))) {
		return
	}
	_ = os.Chtimes(procPath(f), time.Time{}, at)
}

// procPath is where the kernel shows an open file.
func procPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

func hasList(f *os.File) bool {
	n, err := unix.Getxattr(procPath(f), accessList, nil)
	return err == nil && n > 0
}

// CopyAccessList carries an access list over: without it the mode's bits for the group, which are the
// list's mask, would be the group's rights.
func CopyAccessList(f, src *os.File) error {
	if !hasList(src) {
		err := unix.Fremovexattr(int(f.Fd()), accessList)
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
			return nil
		}
		return err
	}
	buf := make([]byte, 64<<10)
	n, err := unix.Getxattr(procPath(src), accessList, buf)
	if err != nil {
		return err
	}
	return unix.Fsetxattr(int(f.Fd()), accessList, buf[:n], 0)
}
