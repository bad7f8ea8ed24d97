//go:build !linux

package install

import "errors"

// exchange is left to two renames here.
func exchange(_, _ string) error { return errors.ErrUnsupported }
