package fsys

import (
	"io/fs"
	"syscall"
)

// ChangeTime returns the time of the last change of a file or its inode, in nanoseconds since 1970, or 0 if
// unknown.
func ChangeTime(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ctim.Nano()
	}
	return 0
}
