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

// sharedMode keeps a file that several sessions have from being changed in place.
const sharedMode = 0o400

// syncsLater says that a file can be put on stable storage without the right to write to it.
const syncsLater = true

// links returns how many names a file has.
func links(info fs.FileInfo) (n uint64, known bool) {
	return uint64(info.Sys().(*syscall.Stat_t).Nlink), true
}

// fileID is the same for all names of a file.
type fileID struct{ dev, ino uint64 }

// identity returns which file is meant.
func identity(info fs.FileInfo) (id fileID, known bool) {
	stat := info.Sys().(*syscall.Stat_t)
	return fileID{uint64(stat.Dev), uint64(stat.Ino)}, true
}

// linkIn gives a file of a directory the same name in another.
func linkIn(from, to *os.File, name string) error {
	err := unix.Linkat(int(from.Fd()), name, int(to.Fd()), name, 0)
	runtime.KeepAlive(from)
	runtime.KeepAlive(to)
	return err
}

// descriptors is how many file descriptors a session may hold at a time: its lock, its record, the directory
// of its texts, and for a moment one of a file. What it needs besides while it keeps a text is of the other
// half.
const descriptors = 4

// MaxOpen returns how many sessions can be open with half of the file descriptors this process may
// have, at least 1. The other half is for the other work of the process, including writing views.
func MaxOpen() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32
	}
	return int(min(max(uint64(limit.Cur)/2/descriptors, 1), math.MaxInt32))
}

// freeSpace returns how many bytes of the file system of dir a user may still fill.
func freeSpace(dir string) (bytes int64, known bool) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, false
	}
	return int64(fs.Bavail) * int64(fs.Bsize), true
}
