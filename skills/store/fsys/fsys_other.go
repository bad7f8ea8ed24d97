//go:build !unix

package fsys

import (
	"errors"
	"io/fs"
	"os"
)

// Flags for opening files that may not be regular, or 0 if the system does not support them.
const (
	// NonBlock keeps open from waiting for the other end of a named pipe.
	NonBlock = 0
	// NoFollow makes open fail for a symbolic link. An os.Root follows links nevertheless.
	NoFollow = 0
	// Directory makes open fail for anything but a directory.
	Directory = 0
)

// SyncFile syncs a regular file below root. A name that is a link is refused.
//
// Errors: system errors; *fs.PathError with ErrNotRegular.
func SyncFile(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &fs.PathError{Op: "sync", Path: name, Err: ErrNotRegular}
	}
	file, err := root.OpenFile(name, os.O_WRONLY, 0) // Windows flushes only files that are open for writing
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// SyncDir does nothing: Windows cannot flush the entries of a directory separately.
func SyncDir(*os.Root, string) error { return nil }

// Names returns 1: the number of hard links is not known.
func Names(fs.FileInfo) uint64 { return 1 }

// Exposed returns nil: the mode does not show which users may change a file.
func Exposed(fs.FileInfo) error { return nil }
