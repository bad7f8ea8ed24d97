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

// errLinks is the error of giving a file more names than it may have.
var errLinks error = unix.EMLINK

// syncAll makes the file system that dir is on durable: cheaper than each of thousands of files.
func syncAll(dir *os.File) error { return unix.Syncfs(int(dir.Fd())) }

func stateOf(info fs.FileInfo) state {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return state{s.Mode, s.Ino, s.Size, s.Mtim.Nano(), s.Ctim.Nano()}
	}
	return state{}
}

// walk compares the members that are chosen with their state, two at a time, and hashes those that look
// different. It reports whether a state is new.
func (t *Tree) walk(ctx context.Context, chosen func(*member) bool) (renewed bool, err error) {
	const (
		workers = 2
		share   = 128 // of members that a worker takes: neither waits for the other at the end
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

// compare is walk for some of the members.
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
			return err // with its old state, so that the next look finds the same
		}
		if time.Since(time.Unix(0, now.ctime)) > settling {
			m.seen = now
			fresh.Store(true)
		}
	}
	return nil
}

// untouched reports whether a member looks as it did when it was hashed. The times of a directory change with
// its names.
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

// quiet reports whether no directory of the tree has changed since the last call, by what the kernel
// reports through inotify. The first call asks for these reports and returns false, and so do all where it
// gives none.
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
				return true // there are no more, or an error
			}
		}
	})
	return err == nil && quiet && errors.Is(ended, unix.EAGAIN)
}

// watch returns what has an event for every change of a directory, nil if there is no such thing: users
// have a limited number of them, and of directories. It is closed when the tree is no longer used.
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
