//go:build !linux

package staged

import (
	"context"
	"errors"
)

// Run returns errors.ErrUnsupported: no workspace is staged on this system.
func (u *Undo) Run(context.Context) ([]Undone, error) { return nil, errors.ErrUnsupported }
