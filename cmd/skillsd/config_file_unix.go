//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// openNonblock keeps the opening of a named pipe from waiting for a writer.
const openNonblock = syscall.O_NONBLOCK

// openNoFollow has the opening of a link fail.
const openNoFollow = syscall.O_NOFOLLOW

// othersRead reports whether others than its owner can read a file.
func othersRead(info fs.FileInfo) bool { return info.Mode().Perm()&0o044 != 0 }

// checkOwner refuses a file that others can write: what the server is told by it would be theirs. A
// file of the superuser is as good as one's own.
func checkOwner(path string, info fs.FileInfo) (hint string, err error) {
	if info.Mode().Perm()&0o022 != 0 {
		return "run: chmod go-w " + shellLine([]string{path}), fmt.Errorf("others can write it (mode %04o)", info.Mode().Perm())
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return "use a file of your own", errors.New("it belongs to another user")
	}
	return "", nil
}
