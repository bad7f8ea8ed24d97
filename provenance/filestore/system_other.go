//go:build !unix

package filestore

import (
	"io/fs"
	"math"
)

// sharedMode is the mode of other files: a read-only file cannot be replaced.
const sharedMode = fileMode

// links returns how many names a file has, which is known on Unix only.
func links(fs.FileInfo) (n uint64, known bool) { return 0, false }

// MaxOpen returns how many sessions can be open. Systems without a limit of file descriptors for a
// process allow any number.
func MaxOpen() int { return math.MaxInt32 }

// freeSpace returns how many bytes of the file system a user may still fill, which is known on Unix only.
func freeSpace(string) (bytes int64, known bool) { return 0, false }
