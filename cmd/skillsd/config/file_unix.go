//go:build unix

package config

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// OthersRead reports whether users other than the owner can read a file. For a file of root, its group may
// read it: Kubernetes makes secrets readable for the group of the pod.
func OthersRead(info fs.FileInfo) bool {
	others := fs.FileMode(0o044)
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == 0 && os.Geteuid() != 0 {
		others = 0o004
	}
	return info.Mode().Perm()&others != 0
}

// CheckOwner refuses a file, a directory or a link that others can write, because they could then control the
// server. Files of root are accepted.
func CheckOwner(path string, info fs.FileInfo) (hint string, err error) {
	err = fsys.Exposed(info)
	switch {
	case err == nil:
	case info.Mode().Type() == fs.ModeSymlink:
		hint, err = "name the directory itself", errors.New("it is a link of another user")
	case info.Mode().Perm()&0o022 != 0:
		hint = "run: chmod go-w " + report.ShellLine(path)
	default:
		hint = "use one of your own"
	}
	return hint, err
}
