//go:build !linux

package install

import "errors"

// limitFiles does nothing: this system cannot set the limits of another process.
func limitFiles(int, int64) error { return nil }

// exchange is not supported on this system.
func exchange(_, _ string) error { return errors.ErrUnsupported }

// umask returns 0: this system does not show the file mode creation mask without changing it.
func umask() int64 { return 0 }
