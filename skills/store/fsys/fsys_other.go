//go:build !unix

package fsys

import (
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

// SyncDir does nothing: Windows cannot flush the entries of a directory separately.
func SyncDir(*os.Root, string) error { return nil }

// Names returns 1: the number of hard links is not known.
func Names(fs.FileInfo) uint64 { return 1 }

// Exposed returns nil: the mode does not tell which users may change a file.
func Exposed(fs.FileInfo) error { return nil }
