//go:build !unix

package fsys

import (
	"io/fs"
	"os"
)

// Flags for opening what is not a regular file, 0 where a system has no such thing.
const (
	// NonBlock keeps an open from waiting for the other end of a named pipe.
	NonBlock = 0
	// NoFollow makes an open fail for a symbolic link. An os.Root follows links all the same.
	NoFollow = 0
	// Directory makes an open fail for anything but a directory.
	Directory = 0
)

// SyncDir does nothing: Windows cannot flush the entries of a directory by themselves.
func SyncDir(*os.Root, string) error { return nil }

// Names returns 1: how many names a file has is not known.
func Names(fs.FileInfo) uint64 { return 1 }

// Exposed returns nil: who may change a file is not in its mode.
func Exposed(fs.FileInfo) error { return nil }
