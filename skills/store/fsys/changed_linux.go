package fsys

import (
	"io/fs"
	"syscall"
)

// ChangeTime returns when a file or its inode was last touched, in nanoseconds since 1970; 0 where that is
// not known.
func ChangeTime(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ctim.Nano()
	}
	return 0
}
