package filestore

import "os"

// sharedMode is that of other files: a read-only file cannot be replaced.
const sharedMode = fileMode

// syncDir does nothing: Windows has no way to flush a directory entry by itself.
func syncDir(*os.Root, string) error { return nil }
