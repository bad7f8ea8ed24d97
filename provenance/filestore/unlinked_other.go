//go:build !unix

package filestore

import "io/fs"

// unlinked reports whether the file has no name any more. Elsewhere than on Unix a file that is open
// keeps its name.
func unlinked(fs.FileInfo) bool { return false }

// links is how many names a file has, which is known on Unix only.
func links(fs.FileInfo) (n uint64, known bool) { return 0, false }
