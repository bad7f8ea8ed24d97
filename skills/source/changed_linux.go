package source

import (
	"io/fs"
	"syscall"
)

// changeTime is when the file or its inode was last touched, in nanoseconds since 1970.
func changeTime(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ctim.Nano()
	}
	return 0
}
