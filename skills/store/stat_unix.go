//go:build unix

package store

import (
	"io/fs"
	"syscall"
	"time"
)

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
