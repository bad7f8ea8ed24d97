//go:build !unix

package filestore

import (
	"io/fs"
	"math"
	"os"
	"path/filepath"
)

// sharedMode is the mode of other files: a read-only file cannot be replaced.
const sharedMode = fileMode

// syncsLater says that a file can be put on stable storage without the right to write to it.
const syncsLater = false

// links returns how many names a file has, which is known on Unix only.
func links(fs.FileInfo) (n uint64, known bool) { return 0, false }

// fileID is the same for all names of a file.
type fileID struct{}

// identity returns which file is meant, which is known on Unix only.
func identity(fs.FileInfo) (id fileID, known bool) { return id, false }

// linkIn gives a file of a directory the same name in another.
func linkIn(from, to *os.File, name string) error {
	return os.Link(filepath.Join(from.Name(), name), filepath.Join(to.Name(), name))
}

// MaxOpen returns how many sessions can be open. Systems without a limit of file descriptors for a
// process allow any number.
func MaxOpen() int { return math.MaxInt32 }

// freeSpace returns how many bytes of the file system a user may still fill, which is known on Unix only.
func freeSpace(string) (bytes int64, known bool) { return 0, false }
