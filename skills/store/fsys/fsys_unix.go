//go:build unix

package fsys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Flags for opening files that may not be regular, or 0 if the system does not support them.
const (
	// NonBlock keeps open from waiting for the other end of a named pipe.
	NonBlock = syscall.O_NONBLOCK
	// NoFollow makes open fail for a symbolic link. An os.Root follows links nevertheless.
	NoFollow = syscall.O_NOFOLLOW
	// Directory makes open fail for anything but a directory.
	Directory = syscall.O_DIRECTORY
)

// SyncFile syncs a regular file below root. A name that is a link is refused.
//
// Errors: system errors; *fs.PathError with ErrNotRegular.
func SyncFile(root *os.Root, name string) error {
	file, _, err := OpenIn(root, name) // a program that is running cannot be opened for writing
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// SyncDir syncs the entries of a directory below root.
//
// Errors: system errors.
func SyncDir(root *os.Root, name string) error {
	dir, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Names returns the number of hard links of a file, or 1 if unknown.
func Names(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Nlink)
	}
	return 1
}

// Exposed returns an error if another user than this one and the superuser can change a file or a directory,
// by its owner or mode. It does not check access lists or the directories above.
func Exposed(info fs.FileInfo) error {
	// Every symbolic link has mode 0777, and the kernel does not use it.
	if info.Mode().Type() != fs.ModeSymlink && info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("others can write it (mode %04o)", info.Mode().Perm())
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return errors.New("it belongs to another user")
	}
	return nil
}
