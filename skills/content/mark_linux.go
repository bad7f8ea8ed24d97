package content

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Marks reports whether the system has marks. Elsewhere change times are not reliable: every mark is zero,
// and every check hashes the bytes.
const Marks = true

// MarkOf returns the mark of a file.
func MarkOf(info fs.FileInfo) Mark {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return Mark{s.Mode, s.Ino, s.Size, s.Mtim.Nano(), s.Ctim.Nano()}
	}
	return Mark{}
}

// Holds reports whether the member at a path below top still has the mark; a zero mark never holds. The
// caller checks a directory before its members, because links in the directories of a path are followed.
func (m Mark) Holds(top *os.File, name string) bool {
	if m == (Mark{}) {
		return false
	}
	// An os.Root would resolve each directory of the path, which costs four times as much.
	var s unix.Stat_t
	if unix.Fstatat(int(top.Fd()), name, &s, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	return m == Mark{s.Mode, s.Ino, s.Size, s.Mtim.Nano(), s.Ctim.Nano()}
}
