//go:build unix

package fsys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Flags for opening what is not a regular file, 0 where a system has no such thing.
const (
	// NonBlock keeps an open from waiting for the other end of a named pipe.
	NonBlock = syscall.O_NONBLOCK
	// NoFollow makes an open fail for a symbolic link. An os.Root follows links all the same.
	NoFollow = syscall.O_NOFOLLOW
	// Directory makes an open fail for anything but a directory.
	Directory = syscall.O_DIRECTORY
)

// SyncDir makes the entries of a directory below root durable, on systems that can do so.
//
// Errors: system errors.
func SyncDir(root *os.Root, name string) error {
	dir, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Names returns how many names a file has, 1 if the system does not say.
func Names(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Nlink)
	}
	return 1
}

// Exposed returns why somebody besides this user and the superuser can change a file or a directory: its
// owner, or its mode. It does not look at access lists, nor at the directories around it.
func Exposed(info fs.FileInfo) error {
	if info.Mode().Type() != fs.ModeSymlink && info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("others can write it (mode %04o)", info.Mode().Perm())
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return errors.New("it belongs to another user")
	}
	return nil
}
