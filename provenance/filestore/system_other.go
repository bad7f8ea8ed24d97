//go:build !unix

package filestore

import (
	"io/fs"
	"math"
	"os"
	"path/filepath"
)

// sharedMode is the mode of ordinary files: here, a read-only file could not be replaced.
const sharedMode = fileMode

// syncsLater reports whether a file can be synced through a read-only descriptor.
const syncsLater = false

// links returns the number of links to a file, which is known on Unix only.
func links(fs.FileInfo) (n uint64, known bool) { return 0, false }

// fileID is equal for all links to a file.
type fileID struct{}

// identity returns the ID of a file, which is known on Unix only.
func identity(fs.FileInfo) (id fileID, known bool) { return id, false }

// linkIn links a file of directory from into directory to under the same name.
func linkIn(from, to *os.File, name string) error {
	return os.Link(filepath.Join(from.Name(), name), filepath.Join(to.Name(), name))
}

// MaxOpen returns how many sessions can be open: any number, because these systems have no limit of file
// descriptors for a process.
func MaxOpen() int { return math.MaxInt32 }

// freeSpace returns how many bytes an ordinary user can still write to the file system, which is known on
// Unix only.
func freeSpace(string) (bytes int64, known bool) { return 0, false }
