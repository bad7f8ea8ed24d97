//go:build unix

package filestore

import (
	"io/fs"
	"syscall"
)

// unlinked reports whether the file has no name any more, so that what is written to it is lost.
func unlinked(info fs.FileInfo) bool {
	n, known := links(info)
	return known && n == 0
}

// links is how many names a file has.
func links(info fs.FileInfo) (n uint64, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return uint64(stat.Nlink), true
}
