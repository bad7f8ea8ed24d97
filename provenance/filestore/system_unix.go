//go:build unix

package filestore

import (
	"io/fs"
	"math"
	"syscall"
)

// unlinked reports whether the file no longer has a name, so that writes to it are lost.
func unlinked(info fs.FileInfo) bool {
	n, known := links(info)
	return known && n == 0
}

// links returns how many names a file has.
func links(info fs.FileInfo) (n uint64, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return uint64(stat.Nlink), true
}

// descriptors is how many file descriptors an open session holds: its lock and its record.
const descriptors = 2

// MaxOpen returns how many sessions can be open with half of the file descriptors this process may
// have, at least 1. The other half is for the other work of the process, including writing views.
func MaxOpen() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32
	}
	return int(min(max(uint64(limit.Cur)/2/descriptors, 1), math.MaxInt32))
}
