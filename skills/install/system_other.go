//go:build !linux

package install

import "errors"

// limitFiles does nothing: the limits of another process cannot be set here.
func limitFiles(int, int64) error { return nil }

// exchange cannot be done in one step here.
func exchange(_, _ string) error { return errors.ErrUnsupported }
