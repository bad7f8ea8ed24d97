//go:build unix

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
)

// OthersRead reports whether others than its owner can read a file.
func OthersRead(info fs.FileInfo) bool { return info.Mode().Perm()&0o044 != 0 }

// CheckOwner refuses a file or a directory that others can write, since they could then decide what the
// server does. It accepts those of the superuser.
func CheckOwner(path string, info fs.FileInfo) (hint string, err error) {
	if info.Mode().Perm()&0o022 != 0 {
		return "run: chmod go-w " + report.ShellLine(path),
			fmt.Errorf("others can write it (mode %04o)", info.Mode().Perm())
	}
	if ownedByOther(info) {
		return "use one of your own", errors.New("it belongs to another user")
	}
	return "", nil
}

// ownedByOther reports whether a file belongs to somebody who is neither this user nor the superuser.
func ownedByOther(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid()
}
