package environment

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errLinks is the error of a file with the most hard links that the file system allows.
var errLinks error = unix.EMLINK

// syncAll syncs the file system of dir: cheaper than fsync of thousands of files.
func syncAll(dir *os.File) error { return unix.Syncfs(int(dir.Fd())) }

func stateOf(info fs.FileInfo) state {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return state{s.Mode, s.Ino, s.Size, s.Mtim.Nano(), s.Ctim.Nano()}
	}
	return state{}
}

// walk compares the chosen members with their states, with two workers, and hashes those that differ. It
// reports whether it recorded a new state.
func (t *Tree) walk(ctx context.Context, chosen func(*member) bool) (renewed bool, err error) {
	const (
		workers = 2
		share   = 128 // members that a worker takes at a time: both end at about the same time
	)
	var work sync.WaitGroup
	var next atomic.Int64
	var fresh atomic.Bool
	var failures [workers]error
	for w := range workers {
		work.Go(func() {
			for failures[w] == nil {
				from := int(next.Add(share)) - share
				if from >= len(t.members) {
					return
				}
				failures[w] = t.compare(ctx, t.members[from:min(from+share, len(t.members))], chosen, &fresh)
			}
		})
	}
	work.Wait()
	return fresh.Load(), cmp.Or(failures[:]...)
}

// compare is walk for a part of the members.
func (t *Tree) compare(ctx context.Context, part []member, chosen func(*member) bool,
	fresh *atomic.Bool) error {
	for i := range part {
		m := &part[i]
		if !chosen(m) || t.untouched(m) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		now, err := t.hash(m)
		if err != nil {
			return err // the old state stays, so that the next check finds the same
		}
		if time.Since(time.Unix(0, now.ctime)) > settling {
			m.seen = now
			fresh.Store(true)
		}
	}
	return nil
}

// untouched reports whether the state of a member is the one at which it was hashed. The times of a
// directory change with its names.
func (t *Tree) untouched(m *member) bool {
	if m.seen == (state{}) {
		return false
	}
	var s unix.Stat_t
	if unix.Fstatat(int(t.top.Fd()), m.Path, &s, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	return m.seen == state{s.Mode, s.Ino, s.Size, s.Mtim.Nano(), s.Ctim.Nano()}
}

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
				return true // no more events, or an error
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
