//go:build unix

package store

import (
	"io/fs"
	"os"
	"syscall"
	"time"
)

// nonBlocking keeps an open from waiting for the other end of a FIFO.
const nonBlocking = syscall.O_NONBLOCK

func syncDir(dir *os.File) error { return dir.Sync() }

func fingerprintOf(info fs.FileInfo) fingerprint {
	mark := fingerprint{size: info.Size(), mtime: info.ModTime().UnixNano()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		changed := changeTime(stat)
		mark.inode, mark.ctime, mark.vouched = uint64(stat.Ino), changed.UnixNano(), true
		mark.settled = time.Since(changed) > settling
	}
	return mark
}

func unixTime(sec, nsec int64) time.Time { return time.Unix(sec, nsec) }
