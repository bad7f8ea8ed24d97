//go:build unix

package wire

import (
	"errors"
	"syscall"
)

func isClosedPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
