//go:build !unix

package filestore

import (
	"io/fs"
	"math"
)

// unlinked reports whether the file has no name any more. Elsewhere than on Unix a file that is open
// keeps its name.
func unlinked(fs.FileInfo) bool { return false }

// links is how many names a file has, which is known on Unix only.
func links(fs.FileInfo) (n uint64, known bool) { return 0, false }

// MaxOpen returns how many sessions can be open. Systems without a limit of file descriptors for a
// process allow any number.
func MaxOpen() int { return math.MaxInt32 }
