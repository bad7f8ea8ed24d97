package filestore

import "os"

// syncDir does nothing: Windows has no way to flush a directory entry by itself.
func syncDir(*os.Root, string) error { return nil }
