package staged

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const accessList = "system.posix_acl_access"

// An outgoing file is a regular file to be replaced by an incoming one. It is nil if nothing is replaced.
type outgoing struct {
	entry
	f *os.File // opened as a path, which does not require the right to read it
}

// replaced returns the file to be replaced.
func (in *incoming) replaced() *outgoing {
	fd, err := unix.Openat(int(in.to.Fd()), in.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	old := &outgoing{f: os.NewFile(uintptr(fd), in.name)}
	old.entry, err = statAt(fd, "", unix.AT_EMPTY_PATH)
	if err != nil || !old.isRegular() {
		old.close()
		return nil
	}
	return old
}

func (o *outgoing) close() {
	if o != nil {
		_ = o.f.Close()
	}
}

// couldRead reports whether the command could read a file of the layer.
func (a *applier) couldRead(src *os.File) bool {
	var st unix.Stat_t
	// A root server can also read files of other users that the command only moved, and a digest would reveal
	// their content.
	switch err := unix.Fstat(int(src.Fd()), &st); {
	case err != nil:
		return false
	case !a.root || int(st.Uid) == a.UID:
		return true
	case hasList(src):
		return false
	case int(st.Gid) == a.GID:
		return st.Mode&0o040 != 0
	}
	return st.Mode&0o004 != 0
}

// inWorkspace maps a user and a group of the layer to the ones in the workspace.
func (a *applier) inWorkspace(uid, gid uint32) (user, group uint32) {
	if a.root && int(uid) == a.UID {
		uid = uint32(a.FileUID)
	}
	if a.root && int(gid) == a.GID {
		gid = uint32(a.FileGID)
	}
	return uid, gid
}

// own sets the owner, group, access list and mode of f, which is new in directory in. None of its three rules
// gives a file to a user who did not have it:
//
//   - A file of another user in the layer was only moved or written to, and keeps all four.
//   - A file that replaces another gets that file's owner, group and list, or is refused.
//   - A new file belongs to the directory's owner or, in a sticky directory, where the owner shows who
//     created a file, to the command.
//
// Only the owner can write to f, and users who could write to the file that it replaces.
func (a *applier) own(f, src *os.File, in *dir, old *outgoing) error {
	var like, made unix.Stat_t
	if err := errors.Join(unix.Fstat(int(src.Fd()), &like), unix.Fstat(int(f.Fd()), &made)); err != nil {
		return err
	}
	if a.root && int(like.Uid) != a.UID {
		_, group := a.inWorkspace(like.Uid, like.Gid)
		err := errors.Join(f.Chown(int(like.Uid), int(group)), a.copyAccessList(f, src))
		return errors.Join(err, unix.Fchmod(int(f.Fd()), like.Mode&0o777|made.Mode&unix.S_ISGID))
	}
	// Set-id bits are never copied; a directory inherits the one of its group.
	mode := like.Mode & 0o755
	if made.Mode&unix.S_IFMT == unix.S_IFDIR {
		mode |= 0o700 | made.Mode&unix.S_ISGID
	}
	var err error
	switch {
	case old != nil:
		mode |= like.Mode & uint32(old.Mode) & 0o022
		err = a.takeOver(f, &made, in, old)
	case a.root && in.Mode&unix.S_ISVTX != 0:
		err = f.Chown(a.FileUID, a.FileGID)
	case a.root:
		err = f.Chown(int(in.Uid), int(in.Gid))
	}
	if err != nil {
		return err
	}
	return unix.Fchmod(int(f.Fd()), mode)
}

// takeOver sets the owner, group and access list of f to the ones of the file that it replaces.
func (a *applier) takeOver(f *os.File, made *unix.Stat_t, in *dir, old *outgoing) error {
	switch {
	case a.root && old.Uid != in.Uid && int(old.Uid) != a.FileUID:
		// The file would appear to have been written by that user.
		return errOwner
	case a.root:
		if err := f.Chown(int(old.Uid), int(old.Gid)); err != nil {
			return err
		}
	case old.Uid != made.Uid, old.Gid != made.Gid && f.Chown(-1, int(old.Gid)) != nil:
		return errOwner
	}
	return CopyAccessList(f, old.f)
}

// keepTime sets the modification time of f to the time of the command's file. It does not if the time is in
// the future, before the range of file systems, or not later than the replaced file's, which would hide the
// change.
func keepTime(f *os.File, at time.Time, old *outgoing) {
	if at.Before(time.Unix(0, 0)) || at.After(time.Now()) ||
		old != nil && !at.After(time.Unix(old.Mtime.Sec, int64(old.Mtime.Nsec))) {
		return
	}
	// Tools compare the times of files.
	_ = os.Chtimes(procPath(f), time.Time{}, at)
}

// procPath returns the path of an open file in /proc.
func procPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

func hasList(f *os.File) bool {
	n, err := unix.Getxattr(procPath(f), accessList, nil)
	return err == nil && n > 0
}

// copyAccessList sets the access list of a file in the workspace to the list of a file in the layer, with
// users and groups mapped.
func (a *applier) copyAccessList(to, from *os.File) error {
	list, err := accessListOf(from)
	if err != nil {
		return err
	}
	const header, entry, id = 4, 8, 4 // bytes of the version, of an entry, and of an entry before its ID
	const aUser, aGroup = 2, 8        // the tags, which begin an entry, of entries with an ID
	for at := header; at+entry <= len(list); at += entry {
		number := list[at+id : at+entry]
		before := binary.LittleEndian.Uint32(number)
		user, group := a.inWorkspace(before, before)
		switch binary.LittleEndian.Uint16(list[at:]) {
		case aUser:
			binary.LittleEndian.PutUint32(number, user)
		case aGroup:
			binary.LittleEndian.PutUint32(number, group)
		}
	}
	return setAccessList(to, list)
}

// CopyAccessList sets the access list of a file to the list of another. If the other has none, the list is
// removed, because otherwise its mask, which is in the mode's group bits, would become the group's rights.
func CopyAccessList(to, from *os.File) error {
	list, err := accessListOf(from)
	if err != nil {
		return err
	}
	return setAccessList(to, list)
}

// accessListOf returns the access list of a file, or nil if it has none.
func accessListOf(f *os.File) ([]byte, error) {
	if !hasList(f) {
		return nil, nil
	}
	buf := make([]byte, 64<<10)
	n, err := unix.Getxattr(procPath(f), accessList, buf)
	return buf[:max(n, 0)], err
}

func setAccessList(f *os.File, list []byte) error {
	if list != nil {
		return unix.Fsetxattr(int(f.Fd()), accessList, list, 0)
	}
	err := unix.Fremovexattr(int(f.Fd()), accessList)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}
