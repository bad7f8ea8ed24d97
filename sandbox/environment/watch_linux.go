package environment

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// quiet reports whether no directory of the tree changed since the last call, by inotify. The first call
// starts inotify and returns false; without inotify every call does.
func (t *Tree) quiet() bool {
	if !t.asked {
		t.asked, t.events = true, t.watch()
		return false
	}
	if t.events == nil {
		return false
	}
	events, err := t.events.SyscallConn()
	if err != nil {
		return false
	}
	buffer, quiet, ended := make([]byte, 4096), true, error(nil)
	err = events.Read(func(fd uintptr) bool {
		for ; ; quiet = false {
			_, ended = unix.Read(int(fd), buffer)
			if ended != nil {
				// There are no more events, or there was an error.
				return true
			}
		}
	})
	return err == nil && quiet && errors.Is(ended, unix.EAGAIN)
}

// watch returns an inotify descriptor for the tree's directories, or nil: users have a limited number of
// instances and of watches. It is closed by the garbage collector, with the tree.
func (t *Tree) watch() *os.File {
	const changes = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVE | unix.IN_MODIFY | unix.IN_ATTRIB |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil
	}
	events := os.NewFile(uintptr(fd), "inotify")
	// The watches are on the verified directory, even if its name leads elsewhere by now.
	top := "/proc/self/fd/" + strconv.Itoa(int(t.top.Fd())) + "/"
	for i := range t.members {
		if t.members[i].Kind != directory {
			continue
		}
		if _, err := unix.InotifyAddWatch(fd, top+t.members[i].Path, changes); err != nil {
			_ = events.Close()
			return nil
		}
	}
	return events
}
