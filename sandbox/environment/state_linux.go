package environment

import (
	"cmp"
	"context"
	"io/fs"
	"os"
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
