//go:build unix

package filestore

import (
	"io/fs"
	"math"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// sharedMode prevents changes in place to a file that several sessions share.
const sharedMode = 0o400

// syncsLater reports whether a file can be synced through a read-only descriptor.
const syncsLater = true

// links returns the number of links to a file.
func links(info fs.FileInfo) (n uint64, known bool) {
	return uint64(info.Sys().(*syscall.Stat_t).Nlink), true
}

// fileID is equal for all links to a file.
type fileID struct{ dev, ino uint64 }

// identity returns the ID of a file.
func identity(info fs.FileInfo) (id fileID, known bool) {
	stat := info.Sys().(*syscall.Stat_t)
	return fileID{uint64(stat.Dev), uint64(stat.Ino)}, true
}

// linkIn links a file of directory from into directory to under the same name.
func linkIn(from, to *os.File, name string) error {
	err := unix.Linkat(int(from.Fd()), name, int(to.Fd()), name, 0)
	// Otherwise a finalizer could close one of the descriptors while the kernel uses it.
	runtime.KeepAlive(from)
	runtime.KeepAlive(to)
	return err
}

// descriptors is the maximum number of file descriptors of a session: its lock, its record, the directory of
// its texts and, for a moment, one file. Keeping a text needs more, from the other half; see [MaxOpen].
const descriptors = 4

// MaxOpen returns how many sessions can be open with half of this process's file descriptors, at least 1. The
// other half is for all other work, including writing views.
func MaxOpen() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32
	}
	return int(min(max(uint64(limit.Cur)/2/descriptors, 1), math.MaxInt32))
}

// freeSpace returns how many bytes an ordinary user can still write to the file system of dir.
func freeSpace(dir string) (bytes int64, known bool) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, false
	}
	return int64(fs.Bavail) * int64(fs.Bsize), true
}
