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

// CheckOwner refuses a file that others can write, since they could then configure the server. It accepts a
// file of the superuser.
func CheckOwner(path string, info fs.FileInfo) (hint string, err error) {
	if info.Mode().Perm()&0o022 != 0 {
		return "run: chmod go-w " + report.ShellLine(path),
			fmt.Errorf("others can write it (mode %04o)", info.Mode().Perm())
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return "use a file of your own", errors.New("it belongs to another user")
	}
	return "", nil
}
