//go:build !unix

package skills

import "io/fs"

// names is how many names a file has, 1 where that cannot be told.
func names(fs.FileInfo) uint64 { return 1 }
