//go:build !linux

package install

import "errors"

// limitFiles does nothing: this system cannot set the limits of another process.
func limitFiles(int, int64) error { return nil }

// exchange is not supported on this system.
func exchange(_, _ string) error { return errors.ErrUnsupported }
