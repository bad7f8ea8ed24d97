//go:build !unix

package filestore

import (
	"io/fs"
	"math"
)

// unlinked reports whether the file no longer has a name. On systems other than Unix, an open file keeps its
// name.
func unlinked(fs.FileInfo) bool { return false }

// links returns how many names a file has, which is known on Unix only.
func links(fs.FileInfo) (n uint64, known bool) { return 0, false }

// MaxOpen returns how many sessions can be open. Systems without a limit of file descriptors for a
// process allow any number.
func MaxOpen() int { return math.MaxInt32 }
