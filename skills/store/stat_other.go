//go:build !unix

package store

import (
	"io/fs"
	"os"
)

// nonBlocking has no meaning here: there are no FIFOs among files.
const nonBlocking = 0

// Directories cannot be synced here; the rename that follows is as durable as the system makes it.
func syncDir(*os.File) error { return nil }

// Without inode and change time nothing vouches for bytes, so every check hashes them.
func fingerprintOf(info fs.FileInfo) fingerprint {
	return fingerprint{size: info.Size(), mtime: info.ModTime().UnixNano()}
}
